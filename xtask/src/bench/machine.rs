//! Describes the machine, and whether it was busy during the measurement.

use crate::shell::output_of;
use std::fs;

/// The machine in one line, and a warning if it is busy.
pub(crate) fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = load();
    let mut text = format!(
        "{cores} cores of {}, Linux {}, {}, load {load:.1}",
        processor(),
        output_of("uname", &["-r"]).unwrap_or_else(|| "?".to_owned()),
        output_of("date", &["-u", "+%F %R UTC"]).unwrap_or_else(|| "?".to_owned()),
    );
    if load > cores as f64 * 0.75 {
        text += "\nthe machine is busy: shares of CPU are valid, wall-clock times are too long";
    }
    text
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| "an unnamed processor".to_owned(), |(_, name)| name.trim().to_owned())
}

/// Load average of the last minute.
fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}
