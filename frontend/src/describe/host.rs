//! The details of a node's host, and of what each job uses of it against its limit.

use super::fact::{self, Emphasis, Fact, FactGroup, bytes, rate};
use crate::domain::text;
use nodeglass_protocol::field::{Field as _, FullScale, Group};
use nodeglass_protocol::picture::{JobUsagePicture, NodePicture};
use nodeglass_protocol::{HostField as H, JobField as J, Row};

/// Returns the groups of readings and facts of a host.
pub fn groups(node: &NodePicture) -> Vec<FactGroup> {
    vec![processor(node), memory(node), disks(node), network(node), system(node)]
}

/// Returns the groups for a guest of some jobs if other jobs use the host, too: a note in place of the
/// readings, and the facts.
pub fn shared_groups(node: &NodePicture) -> Vec<FactGroup> {
    let note = if node.job_usage.is_empty() {
        "Other jobs use this node's CPUs, memory, disks and network, too, and are not shared with you. What the shared job uses is not known: its cgroup cannot be read."
    } else {
        "You see what the shared job uses. Other jobs use the rest of this node, which is not shared with you."
    };
    let mut system = system(node);
    system.facts.remove(0);
    vec![FactGroup::new("Other jobs", []).with_note(note), system]
}

/// Returns whether a host's readings are withheld from a guest: a guest of jobs sees them only if those jobs
/// have the node alone.
pub fn is_withheld(sees_only_jobs: bool, node: &NodePicture) -> bool {
    sees_only_jobs && node.sampled_at_ms.is_some() && node.host == Row::default()
}

/// Appends the fields of a group that the catalogue lists and `facts` does not contain.
fn with_catalogue(row: &Row<H>, group: Group, facts: Vec<Fact>) -> Vec<Fact> {
    let full_scale = |field: H| match field.metric().full_scale {
        FullScale::Constant(value) => Some(value),
        FullScale::Field(whole) => row.value(whole),
        FullScale::None | FullScale::Limit(_) => None,
    };
    fact::with_catalogue(facts, group, row, full_scale, "hue-host")
}

fn processor(node: &NodePicture) -> FactGroup {
    let row = &node.host;
    let pressure = |label, field| {
        Fact::percent(label, row, field, "hue-host")
            .with_note("PSI some, 10 s")
            .with_emphasis_if(row.value(field).is_some_and(|pct| pct >= 40), Emphasis::Warning)
    };
    let cpus = node.head.facts.as_ref().map_or(0, |facts| facts.cpus);
    FactGroup::new(
        "Processor",
        with_catalogue(
            row,
            Group::Pressure,
            with_catalogue(
                row,
                Group::Activity,
                vec![
                    Fact::percent("CPU", row, H::Cpu, "hue-host"),
                    Fact::cell("Load", row, H::Load1, |centi| text::tenths(centi as f64 / 100.0)).with_note(
                        if cpus > 0 {
                            format!("on {}", text::count(cpus as usize, "CPU", "CPUs"))
                        } else {
                            String::new()
                        },
                    ),
                    pressure("CPU pressure", H::PsiCpu),
                    pressure("Memory pressure", H::PsiMem),
                    pressure("I/O pressure", H::PsiIo),
                ],
            ),
        ),
    )
}

fn memory(node: &NodePicture) -> FactGroup {
    let row = &node.host;
    let usage = |label, used, total| {
        let share = row.value(used).zip(row.value(total)).filter(|(_, total)| *total > 0);
        Fact::part(label, row, used, total, "hue-host")
            .with_emphasis_if(share.is_some_and(|(used, total)| used * 100 >= total * 95), Emphasis::Warning)
    };
    let swap = match row.value(H::SwapTotal) {
        Some(0) => Fact { field: Some(H::SwapUsed.name()), ..Fact::new("Swap", "none") },
        _ => Fact::part("Swap", row, H::SwapUsed, H::SwapTotal, "hue-host"),
    };
    let scratch = node.head.facts.as_ref().and_then(|facts| facts.scratch.as_ref());
    let mut facts = vec![
        usage("Memory", H::MemUsed, H::MemTotal),
        swap,
        usage("/dev/shm", H::ShmUsed, H::ShmTotal).with_note("shared memory: data loaders fill it"),
        usage("/tmp", H::TmpUsed, H::TmpTotal),
    ];
    facts.extend(
        scratch.map(|path| usage(path.as_str(), H::ScratchUsed, H::ScratchTotal).with_note("scratch disk")),
    );
    let has_scratch = scratch.is_some();
    let mut facts = with_catalogue(row, Group::Memory, facts);
    facts.retain(|fact| has_scratch || fact.field != Some(H::ScratchUsed.name()));
    FactGroup::new("Memory and space", facts)
}

fn disks(node: &NodePicture) -> FactGroup {
    FactGroup::new(
        "Local disks",
        with_catalogue(
            &node.host,
            Group::Disks,
            vec![
                Fact::cell("Read", &node.host, H::DiskRead, rate),
                Fact::cell("Written", &node.host, H::DiskWrite, rate),
            ],
        ),
    )
}

fn network(node: &NodePicture) -> FactGroup {
    let row = &node.host;
    let errors = row.value(H::IbErrors).is_some_and(|count| count > 0);
    FactGroup::new(
        "Network",
        with_catalogue(
            row,
            Group::Network,
            vec![
                Fact::cell("Received", row, H::NetRx, rate),
                Fact::cell("Sent", row, H::NetTx, rate),
                Fact::cell("InfiniBand received", row, H::IbRx, rate),
                Fact::cell("InfiniBand sent", row, H::IbTx, rate),
                Fact::cell("InfiniBand errors", row, H::IbErrors, text::grouped)
                    .with_note(if errors { "since the links came up" } else { "" })
                    .with_emphasis_if(errors, Emphasis::Warning),
            ],
        ),
    )
}

fn system(node: &NodePicture) -> FactGroup {
    let facts = node.head.facts.as_ref();
    let mut entries = vec![Fact::cell("Uptime", &node.host, H::Uptime, text::span)];
    if let Some(facts) = facts {
        entries.push(Fact::new("Kernel", facts.kernel.as_str()));
        if !facts.cpu_model.is_empty() {
            entries.push(Fact::new("CPU model", facts.cpu_model.as_str()));
        }
        for (vendor, versions) in facts.drivers() {
            let platform = format!("{} (driver)", vendor.platform());
            entries.push(Fact::read("Driver", &versions.driver, ToString::to_string));
            entries.push(Fact::read(&platform, &versions.platform, ToString::to_string));
        }
        let absent = facts.absent_accelerators().filter(|_| node.head.no_gpu.is_none());
        entries.extend(absent.map(|reason| Fact::new("Accelerators without readings", reason.as_str())));
        let confinement = facts.confinement().filter(|_| node.head.no_gpu.is_none());
        entries.extend(confinement.map(|reason| Fact::new("Visible accelerators", reason.as_str())));
    }
    FactGroup::new("System", with_catalogue(&node.host, Group::System, entries))
}

/// Describes what a job uses of a node, against its limits.
pub fn usage(usage: &JobUsagePicture, name: String) -> FactGroup {
    let row = &usage.row;
    let cores = |pct: u64| text::tenths(pct as f64 / 100.0);
    let limit = row.value(J::CpuLimit).filter(|limit| *limit > 0);
    let share = row.value(J::Cpu).zip(limit).map(|(now, limit)| now as f64 / limit as f64);
    let cpu = Fact::cell("CPU", row, J::Cpu, |pct| match limit {
        Some(limit) => format!("{} of {} CPUs busy", cores(pct), cpu_count(limit)),
        None => format!("{} CPUs busy", cores(pct)),
    });
    let oom = row.value(J::OomKills).is_some_and(|kills| kills > 0);
    let kills = Fact::cell("OOM kills", row, J::OomKills, text::grouped);
    FactGroup::new(
        "Job",
        [
            Fact { bar: share.map(|share| (share, "hue-host")), ..cpu },
            memory_of_job(usage),
            kills
                .with_note(if oom { "the job exceeded its memory limit" } else { "" })
                .with_emphasis_if(oom, Emphasis::Error),
        ],
    )
    .with_note(name)
}

/// Formats a limit in % of one CPU: `8`, or `2.5` for a fraction.
fn cpu_count(pct: u64) -> String {
    if pct.is_multiple_of(100) { (pct / 100).to_string() } else { text::tenths(pct as f64 / 100.0) }
}

fn memory_of_job(usage: &JobUsagePicture) -> Fact {
    let row = &usage.row;
    let (used, limit) = (row.value(J::MemUsed), row.value(J::MemLimit).filter(|limit| *limit > 0));
    let near = used.zip(limit).is_some_and(|(used, limit)| used * 100 >= limit * 95);
    let shm = row.value(J::Shmem).filter(|shm| *shm > 0);
    let shm = shm.map_or(String::new(), |shm| format!("{} of that in /dev/shm", bytes(shm)));
    let limitless = used.is_some() && limit.is_none();
    let note = match (near, limitless) {
        (true, _) => {
            format!(
                "{shm}{}close to its limit, at which it is killed",
                if shm.is_empty() { "" } else { "; " }
            )
        }
        (false, true) if shm.is_empty() => "no limit".to_owned(),
        (false, true) => format!("no limit; {shm}"),
        (false, false) => shm,
    };
    Fact::part("Memory", row, J::MemUsed, J::MemLimit, "hue-host")
        .with_note(note)
        .with_emphasis_if(near, Emphasis::Warning)
}

/// Summarises the per-CPU cells: how many are fully used, how many idle.
pub fn cores_summary(cores: &[u8]) -> String {
    let busy = cores.iter().filter(|pct| **pct >= 90).count();
    let idle = cores.iter().filter(|pct| **pct < 10).count();
    format!("{}: {busy} at 90 % or more, {idle} below 10 %", text::count(cores.len(), "CPU", "CPUs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::{Cell, JobId, NodeName};

    fn job(used_gib: u32, limit_gib: u32, shm_gib: u32) -> JobUsagePicture {
        let mut row = Row::default();
        row.set(J::MemUsed, Cell::steps(used_gib * 64));
        row.set(J::MemLimit, Cell::steps(limit_gib * 64));
        row.set(J::Shmem, Cell::steps(shm_gib * 64));
        JobUsagePicture { job: JobId(17), row }
    }

    #[test]
    fn a_job_near_its_limit_is_a_warning_that_names_shared_memory() {
        let fact = memory_of_job(&job(61, 64, 3));
        assert_eq!(fact.value, "61 GiB of 64 GiB");
        assert_eq!(fact.note, "3 GiB of that in /dev/shm; close to its limit, at which it is killed");
        assert_eq!(fact.emphasis, Emphasis::Warning);
        assert_eq!(memory_of_job(&job(30, 64, 0)).emphasis, Emphasis::Plain);
    }

    #[test]
    fn a_job_without_a_limit_is_described_as_such() {
        let mut usage = job(61, 0, 0);
        usage.row.set(J::MemLimit, Cell::UNSUPPORTED);
        let fact = memory_of_job(&usage);
        assert_eq!((fact.value.as_str(), fact.note.as_str(), fact.bar), ("61 GiB", "no limit", None));
    }

    #[test]
    fn an_oom_kill_is_an_error_and_none_is_a_plain_zero() {
        let mut usage = job(1, 2, 0);
        usage.row.set(J::OomKills, Cell::steps(0));
        let last = |usage: &JobUsagePicture| super::usage(usage, String::new()).facts.pop().unwrap();
        assert_eq!((last(&usage).value.as_str(), last(&usage).emphasis), ("0", Emphasis::Plain));
        usage.row.set(J::OomKills, Cell::steps(2));
        assert_eq!((last(&usage).value.as_str(), last(&usage).emphasis), ("2", Emphasis::Error));
    }

    #[test]
    fn a_guest_of_a_job_sees_that_the_host_is_not_shared() {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        assert!(!is_withheld(true, &node), "nothing was sampled yet");
        node.sampled_at_ms = Some(1);
        assert!(is_withheld(true, &node));
        assert!(!is_withheld(false, &node));
        let note = |node: &NodePicture| shared_groups(node).remove(0).note;
        assert!(note(&node).contains("not shared with you") && note(&node).contains("not known"));
        node.job_usage.push(super::tests::job(1, 2, 0));
        assert!(note(&node).contains("what the shared job uses"));
        assert!(shared_groups(&node)[1].facts.iter().all(|fact| fact.label != "Uptime"));
        node.host.set(H::Cpu, Cell::steps(1));
        assert!(!is_withheld(true, &node));
    }

    #[test]
    fn cpus_are_summarized_in_a_sentence() {
        assert_eq!(cores_summary(&[100, 95, 3, 40]), "4 CPUs: 2 at 90 % or more, 1 below 10 %");
    }
}
