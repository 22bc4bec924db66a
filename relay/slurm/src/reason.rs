//! Explains SLURM's reason codes: why a job is pending or failed, and what the user can do.
//!
//! The codes are those of `job_reason_string` in SLURM's sources, 20.02 to 26.05. An unknown code gets no
//! explanation; the page always shows SLURM's own code.

use nodeglass_protocol::LongText;
use nodeglass_protocol::job::{Job, JobState};

/// All codes that are not composed of parts.
#[rustfmt::skip]
const SENTENCES: &[(&str, &str)] = &[
    // Waiting its turn.
    ("Priority", "Other jobs are ahead in the queue. A shorter time limit or fewer resources may start it sooner."),
    ("Resources", "It is next in the queue and waits until enough nodes, GPUs or memory are free; asking for less or for less time helps."),
    ("Scheduling", "SLURM is scheduling it right now."),
    ("SchedDefer", "It is deferred to the next regular scheduling cycle."),
    ("Dependency", "It waits for another job to finish."),
    ("DependencyNeverSatisfied", "The job that it waits for did not end as required, so it will never start; cancel it, or change the dependency (`scontrol update JobId=ID Dependency=…`)."),
    ("BeginTime", "It may not start before its begin time, or it was requeued and waits some minutes; `scontrol update JobId=ID StartTime=now` lifts that."),
    ("JobHeldUser", "On hold by you. Release it to put it back in the queue."),
    ("JobHeldAdmin", "On hold by an administrator; ask them why."),
    ("JobHoldMaxRequeue", "It was requeued too often and is held now; find out why it failed, then release it."),
    ("Reservation", "It waits for its reservation to begin."),
    ("ReservationDeleted", "Its reservation was deleted; submit it to another, or without one."),
    ("Licenses", "A software licence that it requests is in use; it starts when one is free."),
    ("JobArrayTaskLimit", "Its array is at its limit of concurrent tasks (the number after %); the others follow."),
    ("Prolog", "Its nodes are being prepared."),
    ("Cleaning", "It was requeued and its last run is still being cleaned up."),
    ("FedJobLock", "The clusters of the federation are agreeing on which of them runs it."),
    ("FedMember", "The clusters of the federation are agreeing on which of them runs it."),
    ("BurstBufferResources", "There is not enough space in the burst buffer; it starts when there is."),
    ("BurstBufferStageIn", "Its files are being copied to the burst buffer."),
    ("BurstBufferOperation", "Its burst buffer could not be set up; see `scontrol show job` and ask the administrators."),
    // Nodes and partitions.
    ("ReqNodeNotAvail", "The requested nodes, or all that could run it, are down, drained or reserved; request others, or shorten its time limit so that it ends before the reservation."),
    ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "The nodes that could run it are down, drained or kept for partitions of higher priority; `sinfo -R` shows why; another partition may be faster."),
    ("Reserved for maintenance", "It would overlap a maintenance; with a time limit that ends before it, it can start now."),
    ("PartitionDown", "Its partition is down: jobs can be submitted but do not start; ask the administrators, or use another."),
    ("PartitionInactive", "Its partition currently accepts no jobs; use another."),
    ("PartitionNodeLimit", "It requests more or fewer nodes than its partition allows; change the number or the partition."),
    ("PartitionTimeLimit", "Its time limit exceeds its partition's; shorten it (`scontrol update JobId=ID TimeLimit=…`), or use another partition."),
    ("PartitionConfig", "It requests something that its partition does not allow; see `scontrol show partition`."),
    ("BadConstraints", "No node can ever satisfy its request; correct its nodes, features, GPUs or memory."),
    ("NodeDown", "A node that it needs is down."),
    ("FrontEndDown", "No front end is available to run its script."),
    ("PowerNotAvail", "There is not enough power available."),
    ("PowerReserved", "The power that it needs is reserved for a later time."),
    ("MaxPoweredUp", "No more nodes may be powered up in its partition."),
    ("NvmlNotReady", "The GPUs of its node are not ready."),
    // Accounts.
    ("AccountNotAllowed", "Its account may not use this partition; submit with another account or partition."),
    ("InvalidAccount", "Its account is unknown; correct `--account` (`sacctmgr show assoc user=$USER` lists yours)."),
    ("InvalidQOS", "Its QOS is unknown or not yours; correct `--qos`."),
    ("QOSNotAllowed", "Its QOS cannot be used with this partition or account; choose another."),
    ("QOSUsageThreshold", "Your fair share is below what its QOS requires; it starts when your usage has decayed, or use another QOS."),
    ("QOSJobLimit", "Its QOS is at its limit of jobs; it starts when others of them end."),
    ("QOSResourceLimit", "Its QOS has reached a limit; it starts when other jobs of it end."),
    ("QOSTimeLimit", "Its time limit exceeds its QOS's; shorten it, or use another QOS."),
    ("AssociationJobLimit", "Your account is at its limit of jobs; it starts when others of them end."),
    ("AssociationResourceLimit", "Your account has reached a limit; it starts when other jobs of it end."),
    ("AssociationTimeLimit", "Its time limit exceeds your account's, or the account's time is used up; shorten it, or use another account."),
    ("AccountingPolicy", "A limit of your account or QOS is reached; it starts when other jobs end."),
    // How it failed.
    ("NonZeroExitCode", "Its script exited with an error; see its log."),
    ("RaisedSignal", "A signal ended it; 9 often means that memory ran out, 15 that it was cancelled, 11 a bug in the program."),
    ("TimeLimit", "It reached its time limit; request a longer one, or let it save its state in time (`--signal`)."),
    ("OutOfMemory", "It exceeded its requested memory; request more (`--mem`)."),
    ("JobLaunchFailure", "It could not be started on its nodes; often its folder or log file cannot be written there."),
    ("launch failed requeued held", "It could not be started on its nodes and is held now; check its folder and log file, then release it."),
    ("JobHoldLaunchFailure", "It could not be started on its nodes and is held now; check its folder and log file, then release it."),
    ("NodeFail", "One of its nodes failed."),
    ("SystemFailure", "SLURM or a node failed; the job is not at fault."),
    ("InactiveLimit", "It was inactive for too long."),
    ("DeadLine", "It could no longer finish before its deadline."),
    ("Preempted", "A job of higher priority took its place."),
];

/// Fills the explanation of its reason, with commands for this job, into a job that has none.
pub fn explain(job: &mut Job) {
    if job.reason_text.is_none() {
        let waits = !matches!(job.state, JobState::Ended(_));
        let text = job.reason.as_ref().and_then(|reason| explanation(reason.as_str(), waits));
        job.reason_text =
            text.map(|text| text.as_str().replace("JobId=ID", &format!("JobId={}", job.id)).into());
    }
}

/// Explains a reason as squeue or scontrol write it, including the nodes that it names.
///
/// Limits of accounts only keep a job pending; `waits` states whether it is.
pub fn explanation(reason: &str, waits: bool) -> Option<LongText> {
    // scontrol writes an underscore for each space.
    let plain = reason.replace('_', " ");
    let sentence = SENTENCES.iter().find(|(code, _)| *code == plain.trim()).map(|(_, text)| *text);
    if let Some(text) = sentence {
        return Some(text.into());
    }
    let (code, rest) = match plain.split_once([',', ':', ' ', '(']) {
        Some((code, rest)) => (code, rest.trim_matches([',', ' ', ')'])),
        None => (plain.as_str(), ""),
    };
    let known = SENTENCES.iter().find(|(known, _)| *known == code).map(|(_, text)| (*text).to_owned());
    let text = known.or_else(|| waits.then(|| limit(code)).flatten())?;
    let rest = rest.replace('(', ", ");
    Some(if rest.is_empty() { text.into() } else { format!("{text} ({rest})").into() })
}

/// Explains a limit, whose code is composed of parts: `QOSMaxGRESPerUser`, `AssocGrpCPURunMinutesLimit`.
fn limit(code: &str) -> Option<String> {
    let (whose, rest) = [("QOS", "its QOS"), ("Assoc", "your account"), ("Max", "its QOS")]
        .into_iter()
        .find_map(|(prefix, whose)| code.strip_prefix(prefix).map(|rest| (whose, rest)))?;
    let rest = if code.starts_with("Max") { code } else { rest };
    let rest = rest.strip_suffix("Limit").unwrap_or(rest);
    let (kind, rest) = ["Grp", "Max", "Min"]
        .into_iter()
        .find_map(|kind| rest.strip_prefix(kind).map(|rest| (kind, rest)))?;
    let (what, per) = match rest.split_once("Per") {
        Some((what, per)) => (what, Some(per)),
        None => (rest.strip_suffix("NotSatisfied").unwrap_or(rest), None),
    };
    let what = thing(what)?;
    let another = whose.split(' ').next_back().unwrap_or(whose);
    Some(match (kind, per) {
        ("Min", _) => format!(
            "It requests {} {what} than {whose} requires; request more, or use another {another}.",
            if is_countable(what) { "fewer" } else { "less" }
        ),
        (_, Some("Job" | "Node")) => {
            format!(
                "It requests more {what} than {whose} allows for one job; request less, or use another {another}."
            )
        }
        (_, Some("User")) => format!(
            "You have reached the limit of {whose} on {what} per user; it starts when others of your jobs end."
        ),
        (_, Some(_)) => format!(
            "The jobs of your account have reached the limit of {whose} on {what}; it starts when others of them end."
        ),
        ("Grp", None) => format!(
            "All jobs of {whose} together have reached its limit on {what}; it starts when others of them end or the usage decays."
        ),
        (_, None) => format!(
            "{} has reached its limit on {what}; it starts when others of your jobs end, or use another {another}.",
            if whose == "its QOS" { "Its QOS" } else { "Your account" }
        ),
    })
}

fn is_countable(what: &str) -> bool {
    !what.contains("time") && (what.ends_with('s') || what.starts_with("GPUs"))
}

/// The limited resource, as text.
fn thing(code: &str) -> Option<&'static str> {
    Some(match code.to_ascii_lowercase().as_str() {
        "cpu" | "cpus" => "CPUs",
        "cpuminutes" => "CPU time",
        "cpurunminutes" => "CPU time of running jobs",
        "mem" | "memory" => "memory",
        "memminutes" => "memory time",
        "memrunminutes" => "memory time of running jobs",
        "gres" => "GPUs (GRES)",
        "gresminutes" => "GPU time (GRES)",
        "gresrunminutes" => "GPU time (GRES) of running jobs",
        "node" | "nodes" => "nodes",
        "nodeminutes" => "node time",
        "noderunminutes" => "node time of running jobs",
        "billing" => "billing units",
        "billingminutes" => "billed time",
        "billingrunminutes" => "billed time of running jobs",
        "bb" => "burst buffer",
        "bbminutes" => "burst buffer time",
        "bbrunminutes" => "burst buffer time of running jobs",
        "energy" | "energyminutes" | "energyrunminutes" => "energy",
        "license" | "licenseminutes" | "licenserunminutes" => "licences",
        "job" | "jobs" => "jobs",
        "submitjob" | "submitjobs" => "submitted jobs",
        "wall" | "wallduration" => "run time",
        "unknown" | "unk" | "unkminutes" | "unkrunminutes" => "resources",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(reason: &str) -> String {
        explanation(reason, true).map(|text| text.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_pending_job_has_its_reason_and_a_remedy() {
        assert!(text("Priority").contains("ahead in the queue"));
        assert!(text("JobHeldUser").contains("Release it"));
        assert!(text("DependencyNeverSatisfied").contains("never start"));
        assert!(text("BeginTime").contains("StartTime=now"));
    }

    #[test]
    fn nodes_named_by_slurm_are_kept_in_either_spelling() {
        for reason in
            ["ReqNodeNotAvail, UnavailableNodes:g[01-02]", "ReqNodeNotAvail,_UnavailableNodes:g[01-02]"]
        {
            let text = text(reason);
            assert!(text.contains("down, drained or reserved"), "{text}");
            assert!(text.ends_with("(UnavailableNodes:g[01-02])"), "{text}");
        }
        let down =
            "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions";
        assert!(text(down).contains("sinfo -R"));
        assert!(text("ReqNodeNotAvail, Reserved for maintenance").contains("Reserved for maintenance"));
        assert!(text("RaisedSignal:9(Killed)").ends_with("(9, Killed)"));
    }

    #[test]
    fn every_limit_of_accounts_and_qos_is_put_together_from_its_parts() {
        let scopes = ["QOSGrp", "AssocGrp"];
        let things = ["Cpu", "CPU", "Mem", "Node", "GRES", "Billing", "BB", "Energy", "License"];
        for scope in scopes {
            for thing in things {
                for kind in ["Limit", "Minutes", "RunMinutes", "MinutesLimit", "RunMinutesLimit", ""] {
                    let code = format!("{scope}{thing}{kind}");
                    assert!(text(&code).contains("together"), "{code}: {}", text(&code));
                }
            }
        }
        for (code, part) in [
            ("QOSMaxGRESPerUser", "the limit of its QOS on GPUs (GRES) per user"),
            ("QOSMaxCpuPerUserLimit", "the limit of its QOS on CPUs per user"),
            ("QOSMaxJobsPerUserLimit", "You have reached the limit of its QOS on jobs per user"),
            ("QOSMaxSubmitJobPerUserLimit", "submitted jobs"),
            ("QOSMaxWallDurationPerJobLimit", "more run time than its QOS allows for one job"),
            ("QOSMaxNodePerJobLimit", "more nodes"),
            ("QOSMinCpuNotSatisfied", "fewer CPUs"),
            ("QOSMinMemory", "requests less memory than its QOS requires; request more, or use another QOS."),
            ("QOSMinGRES", "fewer GPUs"),
            ("QOSGrpJobsLimit", "All jobs of its QOS together"),
            ("QOSGrpWallLimit", "run time"),
            ("AssocMaxJobsLimit", "Your account has reached its limit on jobs"),
            ("AssocMaxCpuPerJobLimit", "more CPUs than your account allows"),
            ("AssocMaxGRESPerJob", "more GPUs"),
            ("AssocMaxWallDurationPerJobLimit", "more run time"),
            ("AssocGrpSubmitJobsLimit", "submitted jobs"),
            ("MaxCpuPerAccount", "jobs of your account"),
            ("MaxGRESPerAccount", "jobs of your account"),
            ("MaxMemPerLimit", "memory"),
        ] {
            assert!(text(code).contains(part), "{code}: {}", text(code));
        }
    }

    #[test]
    fn a_code_that_is_not_known_gets_no_sentence() {
        for code in ["", "SomethingNew", "QOSMaxFooPerUser", "(null)", "MaxFoo", "None"] {
            assert_eq!(explanation(code, true), None, "{code}");
        }
    }

    #[test]
    fn no_sentence_is_too_long_and_none_is_there_twice() {
        for (at, (code, text)) in SENTENCES.iter().enumerate() {
            assert!(text.ends_with('.') && text.len() < 260, "{code}");
            assert!(SENTENCES[..at].iter().all(|(other, _)| other != code), "{code}");
        }
    }
}
