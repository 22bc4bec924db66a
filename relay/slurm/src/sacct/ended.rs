//! The ended jobs of a user by SLURM's accounting, whether or not a relay has watched them.

use super::{ended_state, exit_status, moment, size};
use crate::squeue::Delimiter;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::report::Accounting;
use nodeglass_protocol::{JobId, Text};
use nodeglass_report::JobRecord;

/// The format of each job. The name comes last, because its user writes it.
const FIELDS: &str = "JobIDRaw,JobID,User,Account,Partition,State,ExitCode,Submit,Start,End,ElapsedRaw,AllocCPUS,AllocNodes,\
                      AllocTRES,JobName";
/// Number of these fields.
const FIELD_COUNT: usize = 15;
/// Maximum number of jobs; the oldest are left out.
pub const MAX_ENDED: usize = 10_000;

/// sacct's arguments for the jobs of a user in the last days, without their steps.
pub fn args(user: &str, days: u32, delimiter: &Delimiter) -> Vec<String> {
    vec![
        format!("--user={user}"),
        "--allocations".to_owned(),
        "--duplicates".to_owned(),
        "--noheader".to_owned(),
        "--parsable2".to_owned(),
        "--units=K".to_owned(),
        format!("--starttime=now-{days}days"),
        format!("--delimiter={}", delimiter.field()),
        format!("--format={FIELDS}"),
    ]
}

/// Parses the output of sacct for [`args`] with the same `delimiter`: records without an observation of the jobs that
/// ran and have ended, newest first. Skips other lines.
pub fn read(out: &[u8], delimiter: &Delimiter) -> Vec<JobRecord> {
    let out = String::from_utf8_lossy(out);
    let mark = delimiter.field();
    let mut records: Vec<JobRecord> = out.lines().filter_map(|line| record(line, &mark)).collect();
    records.sort_by_key(|record| std::cmp::Reverse((record.job.start, record.job.id)));
    records.truncate(MAX_ENDED);
    records
}

fn record(line: &str, mark: &str) -> Option<JobRecord> {
    let mut fields = line.splitn(FIELD_COUNT, mark);
    let mut next = || fields.next();
    let (raw_id, label, user, account, partition) = (next()?, next()?, next()?, next()?, next()?);
    let (state, exit, submit, start, end) = (next()?, next()?, next()?, next()?, next()?);
    let (elapsed, cpus, nodes, tres, name) = (next()?, next()?, next()?, next()?, next()?);
    let (ended, start_s, ended_s) = (ended_state(state)?, moment(start)?, moment(end)?);
    let text = |field: &str| Some(Text::new(field)).filter(|text| !text.is_empty());
    let job = Job {
        label: Text::new(label),
        name: Text::new(name),
        account: text(account),
        partition: Text::new(partition),
        submitted: moment(submit),
        start: Some(start_s),
        ended: Some(ended_s.max(start_s)),
        node_count: nodes.parse().unwrap_or(0),
        cpus: cpus.parse().ok(),
        mem_bytes: tres_value(tres, "mem").and_then(size),
        gpu_count: Some(gpus(tres)),
        exit: text(exit),
        ..Job::new(JobId(raw_id.parse().ok()?), Text::new(user), ended)
    };
    let accounting = accounting(state, exit, ended_s, elapsed)?;
    Some(JobRecord { is_final: true, accounting: Some(accounting), ..JobRecord::of(job, ended_s) })
}

fn accounting(state: &str, exit: &str, ended_s: i64, elapsed: &str) -> Option<Accounting> {
    let (exit_code, signal) = exit_status(exit)?;
    Some(Accounting {
        state: Text::new(state),
        exit_code,
        signal,
        step_exit_code: None,
        max_rss_bytes: None,
        ended_s,
        elapsed_s: elapsed.parse().ok(),
        reason: None,
    })
}

fn tres_value<'a>(tres: &'a str, name: &str) -> Option<&'a str> {
    tres.split(',').find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
}

/// The number of GPUs of `billing=2,cpu=2,gres/gpu:a100=4,gres/gpu=4,mem=200M,node=2`: the total, else the sum of the types,
/// which name the same GPUs.
fn gpus(tres: &str) -> u32 {
    let typed = tres.split(',').filter_map(|entry| entry.strip_prefix("gres/gpu:")?.split_once('='));
    let count = |number: &str| number.parse::<u32>().unwrap_or(0);
    let sum = || typed.map(|(_, number)| count(number)).fold(0, u32::saturating_add);
    tres_value(tres, "gres/gpu").map_or_else(sum, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn delimiter() -> Delimiter {
        Delimiter::of(0x0123_4567_89ab)
    }

    fn read_lines(lines: &str) -> Vec<JobRecord> {
        read(lines.replace('|', &delimiter().field()).as_bytes(), &delimiter())
    }

    #[test]
    fn an_ended_job_has_its_gpu_hours_and_nothing_observed() {
        let records = read_lines(
            "2|2|alice|research|gpu|COMPLETED|0:0|1000|1100|8300|7200|2|2|billing=2,cpu=2,gres/gpu:a100=4,gres/gpu=4,mem=200M,node=2|train-multi\n\
             40|38_2|alice|research|gpu|CANCELLED by 2001|0:15|1000|9000|12600|3600|1|1|cpu=1,gres/gpu:h100=1,gres/gpu:a100=2|a | name\n",
        );
        let [newest, first] = records.as_slice() else { panic!("{records:?}") };
        let report = first.report();
        assert_eq!((report.totals.gpu_hours_allocated, report.totals.gpu_hours_observed), (8.0, 0.0));
        assert_eq!((report.state.as_str(), report.observed_pct, report.is_final), ("COMPLETED", 0.0, true));
        assert_eq!((first.job.mem_bytes, first.job.node_count), (Some(200 << 20), 2));
        assert_eq!((newest.job.id, newest.job.label.as_str()), (JobId(40), "38_2"));
        assert_eq!((newest.job.gpu_count, newest.report().state.as_str()), (Some(3), "CANCELLED"));
        assert!(newest.job.name.as_str().starts_with("a "), "{}", newest.job.name);
    }

    #[test]
    fn each_run_of_a_requeued_job_has_a_record() {
        let records = read_lines(
            "5|5|alice|||REQUEUED|0:0|1000|1100|1130|30|1|1|gres/gpu=4|again\n\
             5|5|alice|||COMPLETED|0:0|1000|1300|1400|100|1|1|gres/gpu=4|again\n",
        );
        let states: Vec<_> = records.iter().map(|record| record.report().state.to_string()).collect();
        assert_eq!(states, ["COMPLETED", "REQUEUED"]);
    }

    #[test]
    fn jobs_that_run_wait_or_never_started_are_left_out() {
        let records = read_lines(
            "1|1|alice|||RUNNING|0:0|1000|1100|Unknown|5|1|1|gres/gpu=1|run\n\
             2|2|alice|||PENDING|0:0|1000|Unknown|Unknown|0|0|0||wait\n\
             3|3|alice|||CANCELLED by 7|0:0|1000|None|1500|0|0|0||never\n\
             4|4|alice|||COMPLETED|0:0|1000|1100\n\n",
        );
        assert_eq!(records, []);
    }

    proptest! {
        #[test]
        fn no_output_is_a_panic(out in ".*", fields in prop::collection::vec("[0-9A-Z:=/,]{0,9}", 15)) {
            read(out.as_bytes(), &delimiter());
            read_lines(&fields.join("|"));
        }
    }
}
