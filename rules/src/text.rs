//! Formats numbers, durations and names the same way everywhere on the page.

use nodeglass_protocol::process::ProcessFacts;
use nodeglass_protocol::{Cell, Text};

/// Placeholder of a missing reading; never a zero.
pub const ABSENT: &str = "–";

/// Explains a reading that the device or its driver does not offer.
pub const UNSUPPORTED: &str = "not supported by this device or driver";

/// Maximum number of failures, jobs or nodes that a sentence names.
pub const MAX_NAMED: usize = 4;

/// Returns why a cell has no value, for a tooltip; empty if it has one.
pub fn absence(cell: Cell) -> &'static str {
    match cell {
        Cell::NOT_YET => "not read yet",
        Cell::UNSUPPORTED => UNSUPPORTED,
        Cell::FAILED => "reading failed this time",
        _ => "",
    }
}

/// Returns a value's text, or [`ABSENT`].
pub fn or_absent(value: Option<String>) -> String {
    value.unwrap_or_else(|| ABSENT.to_owned())
}

/// Formats bytes in GiB: one decimal below 1,000, none above: `70.8`, `1,008`.
pub fn gib(bytes: u64) -> String {
    let gib = bytes as f64 / f64::from(1u32 << 30);
    if gib >= 999.95 { grouped(gib.round() as u64) } else { tenths(gib) }
}

/// Formats bytes in whole GiB, such as a total: `80`, `1,008`.
pub fn whole_gib(bytes: u64) -> String {
    grouped((bytes as f64 / f64::from(1u32 << 30)).round() as u64)
}

/// Formats a non-negative number with one decimal and integer arithmetic, because float formatting would
/// add a tenth to the size of the page.
pub fn tenths(value: f64) -> String {
    let tenths = (value.max(0.0) * 10.0).round() as u64;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Formats a fraction of 0 to 1 with three decimals, for CSS.
pub fn share(share: f64) -> String {
    let thousandths = (share.clamp(0.0, 1.0) * 1_000.0).round() as u32;
    format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000)
}

/// Formats used and total memory with the unit of the total: `70.8` and `/ 80 GiB`.
pub fn memory_parts(used: u64, whole: Option<u64>) -> (String, String) {
    const TIB: f64 = (1u64 << 40) as f64;
    if whole.unwrap_or(used) < 10_000 << 30 {
        let used = if whole >= Some(1_000 << 30) { whole_gib(used) } else { gib(used) };
        return (used, whole.map_or("GiB".to_owned(), |whole| format!("/ {} GiB", whole_gib(whole))));
    }
    let tib = |bytes: u64| tenths(bytes as f64 / TIB);
    (tib(used), whole.map_or("TiB".to_owned(), |whole| format!("/ {} TiB", tib(whole))))
}

/// Formats power and limit with the unit of the limit: `1,412` and `/ 1,600 W`.
pub fn power_parts(watts: u64, limit: Option<u64>) -> (String, String) {
    if limit.unwrap_or(watts) < 10_000 {
        return (grouped(watts), limit.map_or("W".to_owned(), |limit| format!("/ {} W", grouped(limit))));
    }
    let kilo = |watts: u64| tenths(watts as f64 / 1_000.0);
    (kilo(watts), limit.map_or("kW".to_owned(), |limit| format!("/ {} kW", kilo(limit))))
}

/// Formats bytes with a suitable unit and at most four digits: `812 MiB`, `70.8 GiB`, `1,008 GiB`, `1.2 TiB`, `2.5 PiB`.
pub fn bytes(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    const TIB: u64 = 1 << 40;
    const PIB: u64 = 1 << 50;
    let in_tenths = |unit: u64| match bytes as f64 / unit as f64 {
        many @ 999.95.. => grouped(many.round() as u64),
        few => tenths(few),
    };
    match bytes {
        0..KIB => format!("{bytes} B"),
        KIB..MIB => format!("{} KiB", grouped(bytes / KIB)),
        MIB..GIB => format!("{} MiB", grouped(bytes / MIB)),
        GIB..TIB if bytes.is_multiple_of(GIB) => format!("{} GiB", grouped(bytes / GIB)),
        GIB..TIB => format!("{} GiB", in_tenths(GIB)),
        TIB..PIB => format!("{} TiB", in_tenths(TIB)),
        _ => format!("{} PiB", in_tenths(PIB)),
    }
}

/// Formats a rate in B/s with a suitable unit, as [`bytes`].
pub fn rate(bytes_s: u64) -> String {
    format!("{}/s", bytes(bytes_s))
}

/// Shortens a text to `max` characters, of which the last one is then an ellipsis.
pub fn shortened(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// Groups digits by three: `1,412`.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a duration by its two largest units, so that it changes rarely: `12 s`, `4 min`, `6 h 57 min`,
/// `2 d 6 h`.
pub fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{minutes} min"),
        3_600..86_400 if minutes == 0 => format!("{hours} h"),
        3_600..86_400 => format!("{hours} h {minutes} min"),
        _ if hours == 0 => format!("{days} d"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Formats a length of time to the second below an hour: `42 s`, `2 min 05 s`, then as [`span`].
pub fn duration(seconds: u64) -> String {
    match seconds {
        60..3_600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => span(seconds),
    }
}

/// Formats a length of time as [`duration`], but whole minutes without seconds: `30 s`, `1 min`, `1 min 30 s`.
pub fn exact_span(seconds: u64) -> String {
    if seconds.is_multiple_of(60) { span(seconds) } else { duration(seconds) }
}

/// Formats the age of a sample: tenths below ten seconds, then as [`span`].
pub fn age(ms: u64) -> String {
    if ms < 9_950 { format!("{} s", tenths(ms as f64 / 1_000.0)) } else { span((ms + 50) / 1_000) }
}

/// Formats a count: `1 node`, `4 nodes`.
pub fn count(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number as u64), if number == 1 { one } else { many })
}

/// Counts GPUs and MIG instances, which are listed beside the GPUs that they are parts of: `3 GPUs, 2 instances`.
pub fn gpu_count(gpus: usize, instances: usize) -> String {
    let [gpus_text, instances_text] = [count(gpus, "GPU", "GPUs"), count(instances, "instance", "instances")];
    match (gpus, instances) {
        (_, 0) => gpus_text,
        (0, _) => instances_text,
        _ => format!("{gpus_text}, {instances_text}"),
    }
}

/// Begins a text with a capital letter.
pub fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Begins a text with a small letter, to continue a sentence.
pub fn uncapitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}

/// Makes a sentence of a message that begins in lower case and has no full stop.
pub fn sentence(message: &str) -> String {
    let stop = if message.is_empty() || message.ends_with(['.', '!', '?', '…']) { "" } else { "." };
    format!("{}{stop}", capitalised(message))
}

/// Strips the vendor's prefix from a model name: `A100-SXM4-80GB`.
pub fn model(name: &str) -> &str {
    name.strip_prefix("NVIDIA ").unwrap_or(name)
}

/// Returns the last part of a command's path: `/usr/bin/python3` is `python3`.
pub fn program(command: &str) -> &str {
    command.rsplit('/').next().unwrap_or(command)
}

/// Returns what a user calls a process by its command line and its name: the script or the module that Python runs, else the
/// program; the name if the command line is not known.
pub fn process_name(args: Option<&str>, name: Option<&str>) -> Option<String> {
    let mut words = args.unwrap_or_default().split(' ').filter(|word| !word.is_empty());
    let first = words.next().map(program);
    let is_python = first.is_some_and(|first| first.starts_with("python"));
    // After -c follows a program, and not its name.
    let script = words.by_ref().take_while(|word| *word != "-c").find(|word| !word.starts_with('-'));
    script.filter(|_| is_python).map(program).or(first).or(name.map(program)).map(ToOwned::to_owned)
}

/// [`process_name`] of a process as its probe describes it.
pub fn name_of(process: &ProcessFacts) -> Option<String> {
    process_name(process.args.value().map(Text::as_str), process.command.value().map(Text::as_str))
}

/// Formats a duration as [`span`] does, without the second unit from ten of the first one on: `17 h`, `5 d 16 h`.
pub fn short_span(seconds: u64) -> String {
    let whole = span(seconds);
    let mut words = whole.split(' ');
    match (words.next(), words.next()) {
        (Some(count), Some(unit)) if count.len() > 1 => format!("{count} {unit}"),
        _ => whole,
    }
}

/// Aligns the columns of a table: each row as a line, with two spaces between columns. Columns are as wide as their longest
/// cell; those that `is_number` selects are aligned to the right, and all others to the left.
pub fn aligned<R: AsRef<[String]>>(rows: &[R], is_number: impl Fn(usize) -> bool) -> Vec<String> {
    let cells = || rows.iter().map(AsRef::as_ref);
    let columns = cells().map(<[String]>::len).max().unwrap_or(0);
    let length = |row: &[String], column: usize| row.get(column).map_or(0, |cell| cell.chars().count());
    let width = |column: usize| cells().map(|row| length(row, column)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &[String]| {
        let padded = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if is_number(column) { format!("{cell:>width$}") } else { format!("{cell:width$}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    cells().map(line).collect()
}

/// Lists the first [`MAX_NAMED`] of `all` names, and the number of the others.
pub fn some_of(names: impl Iterator<Item = String>, all: usize) -> String {
    let named: Vec<String> = names.take(MAX_NAMED).collect();
    match all.saturating_sub(named.len()) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_called_by_its_script_or_program() {
        let name = |args| process_name(Some(args), Some("python3")).unwrap();
        assert_eq!(name("/usr/bin/python3.11 -u src/train_dpo.py --beta 0.1"), "train_dpo.py");
        assert_eq!(name("python -m torch.distributed.run train.py"), "torch.distributed.run");
        assert_eq!([name("lm_eval --model hf"), name("/opt/bin/vllm serve")], ["lm_eval", "vllm"]);
        assert_eq!([name("VLLM::Worker_TP0"), name("python3 -c import")], ["VLLM::Worker_TP0", "python3"]);
        // Of other users, only the name is known.
        assert_eq!(name(""), "python3");
        assert_eq!(
            (process_name(None, Some("namd3")).as_deref(), process_name(None, None)),
            (Some("namd3"), None)
        );
    }

    #[test]
    fn numbers_of_a_table_are_aligned_to_the_right() {
        let rows =
            [["GPU", "TYPE", "MEM"], ["0", "Größe", "7"], ["10", "", ""]].map(|row| row.map(str::to_owned));
        let lines = aligned(&rows, |column| column == 2);
        assert_eq!(lines, ["GPU  TYPE   MEM", "0    Größe    7", "10"]);
        assert!(aligned::<[String; 0]>(&[], |_| true).is_empty());
    }

    #[test]
    fn memory_has_one_decimal_where_it_matters() {
        assert_eq!(gib(70 << 30), "70.0");
        assert_eq!(gib((70 << 30) + (820 << 20)), "70.8");
        assert_eq!(gib(0), "0.0");
        assert_eq!(gib(1_008 << 30), "1,008");
        assert_eq!(gib((1_000 << 30) - 1), "1,000");
        assert_eq!(whole_gib(80 << 30), "80");
    }

    #[test]
    fn used_and_total_share_a_unit() {
        let pair = |(part, whole): (String, String)| format!("{part} {whole}");
        assert_eq!(pair(memory_parts(70 << 30, Some(80 << 30))), "70.0 / 80 GiB");
        assert_eq!(pair(memory_parts(412 << 30, Some(1_008 << 30))), "412 / 1,008 GiB");
        assert_eq!(pair(memory_parts(36_192 << 30, Some(40_960 << 30))), "35.3 / 40.0 TiB");
        assert_eq!(pair(power_parts(1_412, Some(1_600))), "1,412 / 1,600 W");
        assert_eq!(pair(power_parts(340_269, Some(358_400))), "340.3 / 358.4 kW");
        assert_eq!(pair(power_parts(300, None)), "300 W");
    }

    #[test]
    fn decimals_are_rounded_and_never_below_zero() {
        assert_eq!(
            [0.0, 0.04, 0.05, 9.96, -3.0].map(tenths),
            ["0.0", "0.0", "0.1", "10.0", "0.0"].map(String::from)
        );
        assert_eq!(
            [0.0, 0.5, 0.9996, 7.0].map(share),
            ["0.000", "0.500", "1.000", "1.000"].map(String::from)
        );
    }

    #[test]
    fn digits_are_grouped_from_the_right() {
        assert_eq!(
            [0, 999, 1_412, 1_000_000].map(grouped),
            ["0", "999", "1,412", "1,000,000"].map(String::from)
        );
    }

    #[test]
    fn a_short_duration_drops_a_unit_that_hardly_matters() {
        let shown = [62_280, 492_000, 34_080, 3_120, 45].map(short_span);
        assert_eq!(shown, ["17 h", "5 d 16 h", "9 h 28 min", "52 min", "45 s"]);
    }

    #[test]
    fn durations_have_at_most_two_units() {
        assert_eq!([span(0), span(59), span(60), span(3_600)], ["0 s", "59 s", "1 min", "1 h"]);
        assert_eq!(span(240), "4 min");
        assert_eq!(span(25_041), "6 h 57 min");
        assert_eq!(span(3_660), "1 h 1 min");
        assert_eq!(span(86_400 * 2 + 25_041), "2 d 6 h");
        assert_eq!([3_600, 86_400].map(span), ["1 h", "1 d"].map(String::from));
    }

    #[test]
    fn an_exact_span_keeps_seconds_below_an_hour() {
        assert_eq!(
            [30, 60, 90, 7_200].map(exact_span),
            ["30 s", "1 min", "1 min 30 s", "2 h"].map(String::from)
        );
    }

    #[test]
    fn young_ages_have_tenths_and_old_ones_do_not() {
        assert_eq!([420, 2_000].map(age), ["0.4 s", "2.0 s"].map(String::from));
        assert_eq!(age(9_949), "9.9 s");
        assert_eq!(age(10_400), "10 s");
        assert_eq!(age(125_000), "2 min");
    }

    #[test]
    fn every_kind_of_absence_has_its_own_reason_and_zero_has_none() {
        let reasons = [Cell::NOT_YET, Cell::UNSUPPORTED, Cell::FAILED].map(absence);
        assert!(reasons.iter().all(|reason| !reason.is_empty()));
        assert_ne!(reasons[0], reasons[1]);
        assert_ne!(reasons[1], reasons[2]);
        assert_eq!(absence(Cell::steps(0)), "");
    }

    #[test]
    fn a_message_becomes_a_sentence() {
        let sentences = ["job 17 is full", "Done.", "", "why?"].map(sentence);
        assert_eq!(sentences, ["Job 17 is full.", "Done.", "", "Why?"].map(String::from));
    }

    #[test]
    fn names_lose_the_vendor_prefix() {
        assert_eq!(model("NVIDIA A100-SXM4-80GB"), "A100-SXM4-80GB");
        assert_eq!(model("Tesla V100"), "Tesla V100");
        assert_eq!(program("/usr/bin/python3"), "python3");
        assert_eq!(program("python3"), "python3");
    }
}
