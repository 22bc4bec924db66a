//! `relay gpu`: everything about one GPU.

use super::list::{command, gpu_mem, holders, model, unlisted};
use super::{Answer, or_dash, table};
use anyhow::bail;
use nodeglass_api::{Absence, Gpu, Link, Snapshot};
use nodeglass_config::GpuArgs;
use nodeglass_protocol::field::{Group, Unit, ValueKind};
use nodeglass_protocol::{Field, GpuField};
use nodeglass_rules::text::{gib, grouped, rate};
use nodeglass_rules::throttle;

/// Shortest beginning of a UUID that selects a GPU, in characters.
const MIN_PREFIX: usize = 6;

/// Maximum number of GPUs that are named where several are meant.
const MAX_NAMED: usize = 8;

/// The groups of readings, in the order of the output, with their titles.
const GROUPS: [(Group, &str); 8] = [
    (Group::Activity, "Activity"),
    (Group::Memory, "Memory"),
    (Group::Power, "Power"),
    (Group::Temperature, "Temperature"),
    (Group::Clocks, "Clocks"),
    (Group::Links, "Links"),
    (Group::Engines, "Engines"),
    (Group::Errors, "Errors since the driver was loaded"),
];

/// The facts and readings of the GPU, or JSON.
///
/// # Errors
/// No GPU or several are meant.
pub fn answer(snapshot: &Snapshot, args: &GpuArgs) -> anyhow::Result<Answer> {
    if snapshot.nodes.iter().any(|node| node.name == args.gpu) {
        return of_node(snapshot, args);
    }
    let gpu = find(snapshot, &args.gpu)?;
    match args.json {
        true => Answer::json(gpu),
        false => Ok(Answer::text(text(snapshot, gpu))),
    }
}

/// The GPU that is named by its UUID, the beginning of it, or by its node and index.
fn find<'a>(snapshot: &'a Snapshot, named: &str) -> anyhow::Result<&'a Gpu> {
    let by_place = named.rsplit_once(':').and_then(|(node, index)| Some((node, index.parse::<u32>().ok()?)));
    let is_meant = |gpu: &&Gpu| match by_place {
        Some((node, index)) => gpu.node == node && gpu.index == index && gpu.mig.is_none(),
        None => {
            let start = gpu.uuid.get(..named.len());
            named.len() >= MIN_PREFIX.min(gpu.uuid.len())
                && start.is_some_and(|start| start.eq_ignore_ascii_case(named))
        }
    };
    let found: Vec<&Gpu> = snapshot.gpus.iter().filter(is_meant).collect();
    // A whole UUID may be the beginning of another.
    let whole = found.iter().find(|gpu| gpu.uuid.eq_ignore_ascii_case(named));
    match (whole, &found[..]) {
        (Some(only), _) | (None, [only]) => Ok(only),
        (None, []) if (1..MIN_PREFIX).contains(&named.len()) && by_place.is_none() => {
            bail!("{named:?} is too short: write at least {MIN_PREFIX} characters of the UUID, or NODE:INDEX")
        }
        (None, []) => bail!("no GPU {named:?} is watched; `relay list --json` prints the UUIDs"),
        (None, several) => {
            let some = several
                .iter()
                .take(MAX_NAMED)
                .map(|gpu| format!("  {}  {}:{}", gpu.uuid, gpu.node, gpu.index));
            let rest = if several.len() > MAX_NAMED { "\n  …" } else { "" };
            bail!(
                "{named:?} is the beginning of {} UUIDs; choose one:\n{}{rest}",
                several.len(),
                some.collect::<Vec<_>>().join("\n")
            )
        }
    }
}

/// The GPUs of a node that is named instead of one of its GPUs.
fn of_node(snapshot: &Snapshot, args: &GpuArgs) -> anyhow::Result<Answer> {
    let gpus: Vec<&Gpu> = snapshot.gpus.iter().filter(|gpu| gpu.node == args.gpu).collect();
    if args.json {
        return Answer::json(&gpus);
    }
    if gpus.is_empty() {
        return Ok(Answer { notice: Some(format!("{} has no known GPU", args.gpu)), ..Answer::default() });
    }
    let row = |gpu: &&Gpu| vec![format!("{}:{}", gpu.node, gpu.index), model(gpu), gpu.uuid.clone()];
    Ok(Answer::text(table(&["GPU", "TYPE", "UUID"], gpus.iter().map(row).collect(), 3)))
}

fn text(snapshot: &Snapshot, gpu: &Gpu) -> String {
    let mut out = format!("{}  {} of {}\n", gpu.name.as_deref().unwrap_or(&gpu.vendor), gpu.label, gpu.node);
    let mut line = |name: &str, value: String| {
        if !value.is_empty() && value != "-" {
            out += &format!("  {name:<24}{value}\n");
        }
    };
    line("UUID", gpu.uuid.clone());
    line("PCI", gpu.pci.clone().unwrap_or_default());
    line("Serial", gpu.serial.clone().unwrap_or_default());
    line("Architecture", gpu.architecture.clone().unwrap_or_default());
    line("MIG", gpu.mig.as_ref().and_then(|mig| mig.profile.clone()).unwrap_or_default());
    let jobs: Vec<_> =
        gpu.jobs.iter().map(|job| format!("{} ({})", job.job, job.evidence.replace('_', " "))).collect();
    line("Job", jobs.join(", "));
    line("Connection", gpu.connection.name().to_owned());
    line("Sampled", gpu.sampled_at.map(|at| at.to_string()).unwrap_or_default());
    line("Fault", gpu.fault.clone().unwrap_or_default());
    line("PCIe", pcie(gpu));
    line("ECC errors, lifetime", ecc(gpu));
    line("NVLinks up", links(&gpu.health.nvlinks));
    for (group, title) in GROUPS {
        let fields = GpuField::ALL.iter().filter(|field| field.metric().group == group);
        let lines: String = fields.filter_map(|field| reading(gpu, *field)).collect();
        if !lines.is_empty() {
            out += &format!("{title}\n{lines}");
        }
    }
    let processes: Vec<_> = holders(gpu, snapshot).collect();
    let unlisted = unlisted(gpu, snapshot);
    if !processes.is_empty() || unlisted.is_some() {
        out += "Processes\n";
    }
    for process in processes {
        let user = process.user.as_deref().unwrap_or("?");
        out +=
            &format!("  {:<8} {user:<12} {:>8} GiB  {}\n", process.pid, gpu_mem(process), command(process));
    }
    if let Some(unlisted) = unlisted {
        out += &format!("  {unlisted}\n");
    }
    out
}

/// Returns the number of NVLinks that are up; links of unknown state are neither up nor down.
fn links(links: &[Link]) -> String {
    let count = |state| links.iter().filter(|link| link.up == state).count();
    match (links.len(), count(None)) {
        (0, _) => String::new(),
        (all, 0) => format!("{} of {all}", count(Some(true))),
        (all, unknown) => format!("{} of {all}, {unknown} not known", count(Some(true))),
    }
}

/// A reading with its unit, or that it failed; `None` if it is not supported, or was not taken yet.
fn reading(gpu: &Gpu, field: GpuField) -> Option<String> {
    let metric = field.metric();
    let value = match (gpu.readings.value(field), gpu.absent.get(field.name())) {
        (Some(value), _) => format_value(field, value),
        (None, Some(Absence::Unsupported)) => return None,
        (None, Some(Absence::Failed)) => "failed".to_owned(),
        (None, None) => return None,
    };
    Some(format!("  {:<24}{value}\n", metric.title))
}

fn format_value(field: GpuField, value: u64) -> String {
    let metric = field.metric();
    match metric.unit {
        _ if field == GpuField::Throttle => {
            u32::try_from(value).map_or_else(|_| value.to_string(), throttle::names)
        }
        _ if field == GpuField::PState => format!("P{value}"),
        _ if metric.kind == ValueKind::BitMask => format!("0x{value:x}"),
        Unit::WattHour if value >= 10_000 => format!("{:.1} kWh", value as f64 / 1_000.0),
        Unit::Byte => format!("{} GiB", gib(value)),
        Unit::BytePerSecond => rate(value),
        Unit::One => grouped(value),
        Unit::Hundredth => format!("{:.2}", value as f64 / 100.0),
        unit => format!("{} {}", grouped(value), unit.symbol()),
    }
}

fn pcie(gpu: &Gpu) -> String {
    let (now, most) = (&gpu.health.pcie, &gpu.limits);
    match (now.generation, now.width) {
        (Some(generation), Some(width)) => format!(
            "gen {generation} x{width} (at most gen {} x{})",
            or_dash(most.pcie_gen_max),
            or_dash(most.pcie_width_max)
        ),
        _ => String::new(),
    }
}

fn ecc(gpu: &Gpu) -> String {
    match (gpu.health.ecc_corrected, gpu.health.ecc_uncorrected) {
        (None, None) => String::new(),
        (corrected, uncorrected) => {
            format!("{} corrected, {} uncorrected", or_dash(corrected), or_dash(uncorrected))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::snapshot;
    use super::*;

    #[test]
    fn a_gpu_is_named_by_its_uuid_its_beginning_or_its_place() {
        let snapshot = snapshot();
        let uuid = |named: &str| {
            find(&snapshot, named).map(|gpu| gpu.uuid.clone()).map_err(|error| error.to_string())
        };
        assert_eq!(uuid("GPU-n1-0"), Ok("GPU-n1-0".to_owned()));
        assert_eq!(uuid("n2:1"), Ok("GPU-n2-1".to_owned()));
        assert_eq!(
            (uuid("gpu-N1-0"), uuid("gpu-n2-1")),
            (Ok("GPU-n1-0".to_owned()), Ok("GPU-n2-1".to_owned()))
        );
        let several = uuid("GPU-n1").unwrap_err();
        assert!(several.contains("3 UUIDs") && several.contains("GPU-n1-2  n1:2"), "{several}");
        assert!(uuid("GPU-n").unwrap_err().contains("at least 6 characters"));
        for wrong in ["", "n2:9", "n9:0", "GPU-n9-0"] {
            assert!(uuid(wrong).unwrap_err().contains("relay list"), "{wrong}");
        }
    }

    #[test]
    fn small_rates_and_unknown_links_are_not_zero() {
        let rate = |value| format_value(GpuField::PcieTx, value);
        assert_eq!([rate(0), rate(900 << 10), rate(3 << 20)], ["0 B/s", "900 KiB/s", "3 MiB/s"]);
        assert_eq!(rate(104 << 30), "104 GiB/s");
        assert_eq!(format_value(GpuField::SmClock, 1_980), "1,980 MHz");
        let link = |up| Link { link: 0, up, remote: None, rx_mib_s: None, tx_mib_s: None, errors: None };
        assert_eq!(links(&[link(Some(true)), link(Some(false))]), "1 of 2");
        assert_eq!(links(&[link(Some(true)), link(None)]), "1 of 2, 1 not known");
        assert_eq!(links(&[]), "");
    }

    #[test]
    fn a_node_lists_its_gpus() {
        let args = |gpu: &str| GpuArgs { gpu: gpu.to_owned(), json: false, which: Default::default() };
        let text = answer(&snapshot(), &args("n2")).unwrap().text;
        assert!(text.contains("n2:0  H100  GPU-n2-0\n") && text.contains("n2:1  H100  GPU-n2-1\n"), "{text}");
    }

    #[test]
    fn codes_are_printed_in_words() {
        assert_eq!(format_value(GpuField::Throttle, 0), "none");
        assert_eq!(format_value(GpuField::Throttle, 0x4), "power limit");
        assert_eq!(format_value(GpuField::PState, 0), "P0");
        assert_eq!(format_value(GpuField::Energy, 176_630), "176.6 kWh");
        assert_eq!(format_value(GpuField::Energy, 812), "812 Wh");
    }

    #[test]
    fn readings_have_units_and_missing_ones_no_zero() {
        let text = text(&snapshot(), find(&snapshot(), "GPU-n1-0").unwrap());
        assert!(text.contains("Utilisation             90 %\n"), "{text}");
        assert!(text.contains("17 (gres index)") && text.contains("4711"), "{text}");
        assert!(!text.contains("Fan"), "{text}");
    }
}
