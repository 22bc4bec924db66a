//! Bounds of what a node reports, so that a hostile one cannot delay others: each list has more room than hardware
//! needs, and what comes after is dropped.

use nodeglass_protocol::Text;
use nodeglass_protocol::probe::delta::ParsedLine;
use nodeglass_protocol::probe::{GpuHealth, ProbeLine};

/// Maximum number of GPUs and MIG instances of a node, and of what refers to them.
const MAX_GPUS: usize = 512;
/// Maximum number of GPUs whose connections with each other are kept.
const MAX_CONNECTED: usize = 64;
/// Maximum number of NVLinks, and of virtual GPUs, of a GPU.
const MAX_LINKS: usize = 64;
/// Maximum number of sources: there is one per vendor.
const MAX_SOURCES: usize = 16;
/// Maximum number of CPUs.
const MAX_CPUS: usize = 8_192;
/// Maximum number of jobs on a node.
const MAX_JOBS: usize = 4_096;

/// Truncates the lists of a line; returns a sentence for the user if the node reports too many GPUs.
pub(crate) fn truncate(line: &mut ParsedLine) -> Option<Text> {
    match line {
        ProbeLine::Hello(hello) => {
            let count = hello.gpus.len();
            hello.gpus.truncate(MAX_GPUS);
            hello.sources.truncate(MAX_SOURCES);
            hello.topology.truncate(MAX_CONNECTED);
            hello.topology.iter_mut().for_each(|paths| paths.truncate(MAX_CONNECTED));
            return (count > MAX_GPUS)
                .then(|| format!("the probe lists {count} GPUs; the first {MAX_GPUS} are shown").into());
        }
        ProbeLine::Sample(sample) => {
            sample.gpus.rows = sample.gpus.rows.min(MAX_GPUS as u32);
            sample.gpus.cells.retain(|cell| (cell.row as usize) < MAX_GPUS);
            sample.gpus.faults.retain(|(row, _)| (*row as usize) < MAX_GPUS);
            sample.cores.iter_mut().for_each(|cores| cores.truncate(MAX_CPUS));
            sample.jobs.iter_mut().for_each(|jobs| jobs.truncate(MAX_JOBS));
        }
        ProbeLine::Health(report) => {
            report.gpus.truncate(MAX_GPUS);
            for GpuHealth { nvlinks, vgpus, .. } in &mut report.gpus {
                nvlinks.truncate(MAX_LINKS);
                vgpus.truncate(MAX_LINKS);
            }
        }
        ProbeLine::LinkRates(rates) => rates.gpus.truncate(MAX_GPUS),
        // Texts and numbers alone, what is bounded where it is used, or for the caller who asked.
        ProbeLine::Processes(_)
        | ProbeLine::ProcessReadings(_)
        | ProbeLine::Heartbeat(_)
        | ProbeLine::Event(_)
        | ProbeLine::Response(_)
        | ProbeLine::Bye(_)
        | ProbeLine::Piece(_)
        | ProbeLine::Notes(_)
        | ProbeLine::Usage(_) => {}
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fleet;
    use crate::scene::{health, heartbeat, hello, job, jobs, line, name, node, process, sample};
    use nodeglass_protocol::Reading;
    use nodeglass_protocol::job::Job;
    use nodeglass_protocol::probe::{GpuPath, MAX_PROCESSES, ProcessList};

    /// More than anything has.
    const MANY: u32 = 20_000;

    #[test]
    fn t18_lists_that_no_hardware_needs_are_truncated_and_the_node_says_so() {
        let mut fleet = Fleet::new();
        fleet.watch_hosts([name("evil")]);
        let ProbeLine::Hello(mut many) = hello("evil", &Vec::from_iter(0..MANY)) else { unreachable!() };
        many.topology = vec![vec![GpuPath::Same; 200]; 200];
        line(&mut fleet, "evil", ProbeLine::Hello(many), 1_000);
        let ProbeLine::Sample(mut many) = sample(1, &vec![7; MANY as usize]) else { unreachable!() };
        many.cores = vec![1; MANY as usize];
        line(&mut fleet, "evil", ProbeLine::Sample(many), 1_001);
        line(&mut fleet, "evil", health(&vec![(2, 0, 0); 600]), 1_002);
        line(&mut fleet, "evil", health(&[(200, 0, 0)]), 1_003);
        let evil = node(&fleet, "evil");
        assert_eq!((evil.gpus.len(), evil.cores.len()), (MAX_GPUS, MAX_CPUS));
        assert_eq!(evil.gpus[0].health.nvlinks.len(), MAX_LINKS);
        let topology = &evil.head.facts.as_ref().unwrap().topology;
        assert_eq!((topology.len(), topology[0].len()), (MAX_CONNECTED, MAX_CONNECTED));
        assert!(evil.head.notes.iter().any(|note| note.as_str().contains("lists 20000 GPUs")));
    }

    #[test]
    fn a_node_may_have_as_many_gpus_as_the_limit() {
        let mut fleet = Fleet::new();
        fleet.watch_hosts([name("large")]);
        line(&mut fleet, "large", hello("large", &Vec::from_iter(0..MAX_GPUS as u32)), 1_000);
        let large = node(&fleet, "large");
        assert_eq!((large.gpus.len(), large.head.notes.len()), (MAX_GPUS, 0));
    }

    /// Deriving owners from each line, or for each GPU from all processes, takes minutes here.
    #[test]
    fn t18_full_lists_that_change_with_every_line_do_not_occupy_the_relay() {
        let jobs_here: Vec<_> =
            (1..=16).map(|id| Job { gpus: vec![], ..job(id, &[("evil", &[])]) }).collect();
        let mut fleet = Fleet::new();
        jobs(&mut fleet, jobs_here, 0);
        line(&mut fleet, "evil", hello("evil", &Vec::from_iter(0..MAX_GPUS as u32)), 1_000);
        for list in 0..20 {
            let entry = |pid: u32| {
                let ProbeLine::Processes(mut one) = process("evil", pid % MAX_GPUS as u32, pid, Some(99))
                else {
                    unreachable!()
                };
                one.processes[0].facts.command = Reading::Value(format!("{list}").into());
                one.processes.remove(0)
            };
            let processes = (0..MAX_PROCESSES as u32).map(entry).collect();
            let all = ProcessList { processes, ..ProcessList::default() };
            line(&mut fleet, "evil", ProbeLine::Processes(all), 1_000);
            (0..50).for_each(|_| line(&mut fleet, "evil", heartbeat(None), 1_000));
        }
        assert_eq!(node(&fleet, "evil").processes.len(), MAX_PROCESSES);
    }
}
