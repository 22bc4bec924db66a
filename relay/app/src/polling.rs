//! Polls SLURM: the job list on its schedule, and accounting for ended jobs.

use super::terminal::Terminal;
use nodeglass_fleet::{Event, Host};
use nodeglass_launch::srun::{self, JobsByNode};
use nodeglass_launch::ssh_config::Local;
use nodeglass_nats::RemoteJobs;
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::Text;
use nodeglass_report::Factors;
use nodeglass_slurm::accounting::AccountingQueries;
use nodeglass_slurm::command::Commands;
use nodeglass_slurm::{JobSource, PollSchedule, PollTrigger};
use nodeglass_store::JobStore;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Polls the job list until its receiver is dropped, earlier when requested. Passes the cluster's name on once SLURM states it.
pub async fn poll(
    mut jobs: Box<dyn JobSource>,
    mut poll_schedule: PollSchedule,
    clock: Clock,
    (events, jobs_by_node): (mpsc::Sender<Event>, watch::Sender<Arc<JobsByNode>>),
    on_cluster: impl Fn(&str) + Send,
    poll_trigger: PollTrigger,
) {
    let mut last = Vec::new();
    let own_name = Local::from_env().user;
    loop {
        poll_trigger.begin();
        let began = Instant::now();
        let answer = jobs.jobs().await;
        poll_schedule.took(began.elapsed());
        let (event, wait) = match answer {
            Ok(mut list) => {
                list.iter_mut().for_each(nodeglass_slurm::explain);
                // Before the event, which may start probes.
                jobs_by_node.send_replace(Arc::new(srun::jobs_by_node(&list, &own_name)));
                let now: Vec<_> =
                    list.iter().map(|job| (job.id, job.state.clone(), job.nodes.clone())).collect();
                let changed = std::mem::replace(&mut last, now) != last;
                let wait = poll_schedule.after_success(jobs.requests(), changed);
                (Event::Jobs { jobs: list, wall_ahead_ms: clock.wall_ahead_ms() }, wait)
            }
            Err(error) => {
                let wait = poll_schedule.after_failure();
                tracing::warn!(why = %error.why, retry_s = wait.as_secs(), "no job list");
                let retry_at_ms = clock.now_ms() + wait.as_millis() as u64;
                (Event::JobsFailed { why: error.why, retry_at_ms }, wait)
            }
        };
        if let Some(name) = jobs.cluster_name() {
            on_cluster(name);
        }
        let cluster = jobs.take_cluster().map(Event::Cluster);
        for event in [Some(event), cluster].into_iter().flatten() {
            if events.send(event).await.is_err() {
                return;
            }
        }
        rest(wait, &mut poll_schedule, &poll_trigger).await;
    }
}

/// Passes on what other relays watch, until the fleet ends.
pub(super) async fn follow_others(
    mut others: watch::Receiver<RemoteJobs>,
    clock: Clock,
    events: mpsc::Sender<Event>,
    terminal: Terminal,
) {
    let (mut last, mut last_found) = ((BTreeSet::new(), Vec::<Text>::new()), Vec::new());
    loop {
        let RemoteJobs { jobs, hosts, no_slurm, notices, clusters } = others.borrow_and_update().clone();
        let jobs = match jobs {
            Some(Ok(mut jobs)) => {
                jobs.iter_mut().for_each(nodeglass_slurm::explain);
                Some(Event::Jobs { jobs, wall_ahead_ms: clock.wall_ahead_ms() })
            }
            // Announcements arrive every other second.
            Some(Err(why)) => Some(Event::JobsFailed { why, retry_at_ms: clock.now_ms() + 2_000 }),
            None => no_slurm.then_some(Event::NoSlurm),
        };
        notices.iter().filter(|notice| !last.1.contains(notice)).for_each(|notice| terminal.warn(notice));
        for over in last.1.iter().filter(|notice| !notices.contains(notice)) {
            terminal.notice(&format!("no longer: {over}").into());
        }
        let now = (hosts, notices);
        let changed = (last != now).then(|| Event::Hosts {
            hosts: now.0.iter().map(|host| (host.clone(), Host::default())).collect(),
            notices: now.1.clone(),
        });
        last = now;
        let found = (last_found != clusters).then(|| Event::Clusters(clusters.clone()));
        last_found = clusters;
        for event in [found, jobs, changed].into_iter().flatten() {
            if events.send(event).await.is_err() {
                return;
            }
        }
        if others.changed().await.is_err() {
            return;
        }
    }
}

/// Joins the statements of SLURM's accounting to the records of ended jobs, and adds the jobs of `user` that ended
/// while no relay ran.
pub(super) async fn account(
    mut queries: AccountingQueries<Commands>,
    user: Text,
    factors: Factors,
    store: JobStore,
    clock: Clock,
) {
    while !queries.is_off() {
        if let Some(listed) = queries.ended(user.as_str(), clock.now_ms()).await {
            store.set_incomplete(listed.as_ref().err().map(Text::new));
            let mut ended = listed.unwrap_or_default();
            ended.iter_mut().for_each(|record| record.factors.clone_from(&factors));
            while let Some(refused) = store.add_ended(ended) {
                sleep(AccountingQueries::<Commands>::PAUSE).await;
                ended = refused;
            }
        }
        queries.add(store.take_unaccounted().await, clock.now_ms());
        let mut joined = queries.join(clock.now_ms()).await;
        // The thread is busy for moments only.
        while let Some(refused) = store.save(joined).filter(|refused| !refused.is_empty()) {
            sleep(AccountingQueries::<Commands>::PAUSE).await;
            joined = refused;
        }
        sleep(AccountingQueries::<Commands>::PAUSE).await;
    }
}

/// Waits until the next poll is due, or is requested and may be brought forward.
async fn rest(wait: Duration, poll_schedule: &mut PollSchedule, poll_trigger: &PollTrigger) {
    let asked = Instant::now();
    let mut due = asked + wait;
    let mut is_hurried = false;
    loop {
        tokio::select! {
            // The poll is due.
            () = sleep_until(due) => break,
            // An early poll was requested.
            reason = poll_trigger.next() => if let Some(gap) = poll_schedule.requested(reason, asked.elapsed()) {
                is_hurried |= Instant::now() + gap < due;
                due = due.min(Instant::now() + gap);
            }
        }
    }
    if !is_hurried {
        poll_schedule.was_due();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_slurm::PollReason;

    #[tokio::test(start_paused = true)]
    async fn an_action_advances_the_next_poll_unless_slurm_is_failing() {
        let (mut poll_schedule, poll_trigger) =
            (PollSchedule::new(Duration::from_secs(15)), PollTrigger::default());
        let rested = async |poll_schedule: &mut PollSchedule, wait| {
            let began = Instant::now();
            rest(wait, poll_schedule, &poll_trigger).await;
            began.elapsed().as_secs()
        };
        let wait = poll_schedule.after_success(2, true);
        assert_eq!(rested(&mut poll_schedule, wait).await, 15);
        for reason in [PollReason::Order, PollReason::Doubt] {
            poll_trigger.send(reason);
            assert_eq!(rested(&mut poll_schedule, wait).await, PollSchedule::MIN_GAP.as_secs());
        }
        let wait = poll_schedule.after_failure();
        poll_trigger.send(PollReason::Order);
        assert_eq!(rested(&mut poll_schedule, wait).await, 10);
        // The owner's request brings it forward, even after minutes of silence.
        let wait = (0..9).map(|_| poll_schedule.after_failure()).last().unwrap();
        poll_trigger.send(PollReason::Retry);
        assert_eq!(
            (wait.as_secs(), rested(&mut poll_schedule, wait).await),
            (120, PollSchedule::MIN_GAP.as_secs())
        );
    }
}
