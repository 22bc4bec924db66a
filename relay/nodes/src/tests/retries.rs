//! When a node is tried again: after a refused login, a broken link, or a denial.

use super::*;

#[tokio::test(start_paused = true)]
async fn f32_t34_a_refused_login_is_never_retried_without_the_user() {
    let mut harness = Harness::empty();
    harness.launcher.fails(LaunchError::Auth { why: "no key".into(), advice: "ssh-add".into() });
    harness.launcher.fails(LaunchError::HostKey { why: "changed".into(), advice: "ask".into() });
    harness.launcher.fails(LaunchError::Capability { why: "gssapi".into(), advice: "openssh".into() });
    harness.set_targets();
    for (tries, why) in ["no key", "changed", "gssapi"].into_iter().enumerate() {
        assert_eq!(harness.next().await, SessionEvent::Connecting { failures: 0 });
        assert!(
            matches!(harness.next().await, SessionEvent::Refused { why: sent_interval, .. } if sent_interval.as_str() == why)
        );
        sleep(Duration::from_secs(7_200)).await;
        // A new target or interval is no request of the user.
        harness.supervisor.set_targets(&wanted(&["n1"], 2_000 + tries as u32));
        sleep(Duration::from_secs(3_600)).await;
        assert_eq!(harness.launcher.tries(), tries + 1);
        harness.supervisor.retry(Some(&node("n1")));
    }
}

/// A plan for `n1` with these jobs that run there; without any the jobs there are completing.
fn plan(number: u64, jobs: &[u32]) -> Plan {
    let (jobs, is_ending) = (jobs.iter().copied().map(JobId).collect(), jobs.is_empty());
    let plan = NodePlan { interval_ms: 1_000, jobs, is_ending, ..NodePlan::default() };
    let list = JobListVersion { number, is_fresh: true };
    Plan { nodes: BTreeMap::from([(node("n1"), plan)]), list }
}

/// No node is wanted.
fn nowhere(number: u64) -> Plan {
    Plan { nodes: BTreeMap::new(), list: JobListVersion { number, is_fresh: true } }
}

#[tokio::test(start_paused = true)]
async fn t34_changing_jobs_do_not_repeat_a_refused_login() {
    let mut harness = Harness::empty();
    (0..99).for_each(|_| harness.launcher.fails(no_key()));
    harness.supervisor.follow(&plan(1, &[1]));
    assert_eq!(harness.refused().await, "no key");
    // The same job, listed or missing for a moment, is no reason to offer the key again.
    for round in 0..9 {
        harness.supervisor.follow(&nowhere(10 * round + 2));
        sleep(Duration::from_secs(7)).await;
        harness.supervisor.follow(&plan(10 * round + 3, &[1]));
        assert_eq!(harness.refused().await, "no key");
    }
    assert_eq!(harness.launcher.tries(), 1);
    // A new job is one, but jobs without end do not make a flood of logins.
    for job in 2..32 {
        harness.supervisor.follow(&nowhere(1_000 + u64::from(job)));
        sleep(Duration::from_secs(7)).await;
        harness.supervisor.follow(&plan(2_000 + u64::from(job), &[job]));
        assert_eq!(harness.refused().await, "no key");
        sleep(Duration::from_secs(7)).await;
    }
    assert_eq!(harness.launcher.tries(), 1 + auth_failures::MAX_LOGIN_RETRIES);
    // The limit ends: after a time it may be retried.
    sleep(auth_failures::REMEMBER_FOR).await;
    assert!(harness.launcher.tries() > 1 + auth_failures::MAX_LOGIN_RETRIES);
}

#[tokio::test(start_paused = true)]
async fn t34_changed_files_do_not_flood_a_node_with_connections() {
    let mut harness = Harness::empty();
    let credentials = |harness: &Harness, value| harness.launcher.credentials.store(value, Ordering::Relaxed);
    let unknown = || LaunchError::HostKey { why: "unknown".into(), advice: "ssh".into() };
    (0..999).for_each(|_| harness.launcher.fails(unknown()));
    credentials(&harness, 1);
    harness.set_targets();
    assert_eq!(harness.refused().await, "unknown");
    // The files are checked while n1 waits; they change while nothing waits.
    sleep(Duration::from_secs(6)).await;
    harness.supervisor.set_targets(&BTreeMap::new());
    sleep(Duration::from_secs(6)).await;
    credentials(&harness, 2);
    harness.supervisor.set_targets(&wanted(&["n2"], 1_000));
    let tries_after = async |harness: &mut Harness, s| {
        for _ in 0..s {
            sleep(Duration::from_secs(1)).await;
            while harness.events.try_recv().is_ok() {}
        }
        harness.launcher.tries() - 1
    };
    assert_eq!(tries_after(&mut harness, 3_600).await, 1, "nothing changed since n2 refused");
    credentials(&harness, 3);
    assert_eq!(tries_after(&mut harness, 3_600).await, 2, "one try after a change");
    // Files that change all the time.
    for value in 4..16 {
        credentials(&harness, value);
        tries_after(&mut harness, 10).await;
    }
    let tries = tries_after(&mut harness, 0).await;
    assert!((3..=6).contains(&tries), "{tries} tries, of which at most four in two minutes");
    // Not so the user.
    for more in 1..=5 {
        harness.supervisor.retry(None);
        assert_eq!(tries_after(&mut harness, 1).await, tries + more);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_requested_twice_is_one_attempt() {
    let mut harness = Harness::empty();
    for refuses in [false, true] {
        let before = harness.launcher.tries();
        if refuses {
            harness.launcher.fails(no_key());
        }
        harness.set_targets();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(harness.launcher.tries(), before + 1);
        // The second one finds the session about to try.
        harness.supervisor.retry(None);
        harness.supervisor.retry(None);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(harness.launcher.tries(), before + 2);
        harness.supervisor.set_targets(&BTreeMap::new());
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_job_is_a_reason_to_try_a_node_that_refused() {
    let mut harness = Harness::empty();
    harness.launcher.fails(LaunchError::HostKey { why: "unknown".into(), advice: "ssh".into() });
    harness.supervisor.follow(&plan(1, &[1]));
    assert_eq!(harness.refused().await, "unknown");
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!(harness.launcher.tries(), 1);
    let mut probe = harness.launcher.probe();
    harness.supervisor.follow(&plan(2, &[1, 2]));
    probe.hello(1).await;
    assert!(matches!(probe.control().await, Some(Control::Interval { .. })));
}

#[tokio::test(start_paused = true)]
async fn f32_after_three_refusals_no_further_node_is_tried_until_the_fix_which_all_notice() {
    let mut harness = Harness::empty();
    harness.launcher.credentials.store(1, Ordering::Relaxed);
    let names: Vec<String> = (0..20).map(|number| format!("n{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    (0..3).for_each(|_| harness.launcher.fails(no_key()));
    harness.supervisor.set_targets(&wanted(&names, 1_000));
    let mut reasons = BTreeMap::<String, usize>::new();
    for _ in &names {
        *reasons.entry(harness.refused().await).or_default() += 1;
    }
    let in_vain = "not tried, because 3 other nodes refused the login: no key".to_owned();
    assert_eq!(reasons, BTreeMap::from([("no key".to_owned(), 3), (in_vain, 17)]));
    sleep(Duration::from_secs(300)).await;
    assert_eq!(harness.launcher.tries(), 3, "nothing changed");
    // The key is loaded. Some nodes retry; the first success shows that all may.
    let probes: Vec<Probe> = names.iter().map(|_| harness.launcher.probe()).collect();
    harness.launcher.credentials.store(2, Ordering::Relaxed);
    sleep(Duration::from_secs(6)).await;
    assert_eq!(harness.launcher.tries(), 3 + auth_failures::MAX_LOGIN_RETRIES);
    for probe in &probes[..auth_failures::MAX_LOGIN_RETRIES] {
        probe.hello(1).await;
    }
    sleep(Duration::from_secs(6)).await;
    assert_eq!(harness.launcher.tries(), 3 + 20, "each once more");
}

#[tokio::test(start_paused = true)]
async fn f32_a_node_that_others_do_not_stand_for_is_tried() {
    let mut harness = Harness::empty();
    let mut nodes = wanted(&["n1", "n2", "n3"], 1_000);
    (0..3).for_each(|_| harness.launcher.fails(no_key()));
    harness.supervisor.set_targets(&nodes);
    for _ in 0..3 {
        harness.refused().await;
    }
    // A listed machine has an account of its own, and the user decides about any.
    nodes.insert(node("listed"), NodePlan { target: 7, ..NodePlan::default() });
    nodes.extend(wanted(&["n4"], 1_000));
    harness.supervisor.set_targets(&nodes);
    assert!(harness.refused().await.starts_with("not tried"));
    assert_eq!(harness.launcher.tries(), 4);
    harness.supervisor.retry(Some(&node("n4")));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(harness.launcher.tries(), 5);
    // Later, a refusal says nothing about other nodes any more.
    harness.supervisor.set_targets(&BTreeMap::new());
    sleep(auth_failures::REMEMBER_FOR).await;
    harness.supervisor.set_targets(&wanted(&["n5"], 1_000));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(harness.launcher.tries(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_fix_during_an_attempt_is_noticed() {
    let mut harness = Harness::empty();
    harness.launcher.credentials.store(1, Ordering::Relaxed);
    (0..2).for_each(|_| harness.launcher.fails(no_key()));
    harness.set_targets();
    harness.refused().await;
    // The attempt that the user requests has read the old files when they change.
    *harness.launcher.changes_to.lock().unwrap() = Some(2);
    harness.supervisor.retry(None);
    harness.refused().await;
    let mut probe = harness.launcher.probe();
    probe.hello(1).await;
    let control = timeout(Duration::from_secs(60), probe.control()).await.expect("a third attempt");
    assert!(matches!(control, Some(Control::Interval { .. })));
}

#[tokio::test(start_paused = true)]
async fn f32_t34_a_change_that_does_not_help_costs_few_logins() {
    let mut harness = Harness::empty();
    harness.launcher.credentials.store(1, Ordering::Relaxed);
    let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
    (0..99).for_each(|_| harness.launcher.fails(no_key()));
    harness.supervisor.set_targets(&wanted(&names.iter().map(String::as_str).collect::<Vec<_>>(), 1_000));
    for _ in &names {
        harness.refused().await;
    }
    for change in 2..40 {
        harness.launcher.credentials.store(change, Ordering::Relaxed);
        sleep(Duration::from_secs(15)).await;
        while harness.events.try_recv().is_ok() {}
    }
    assert_eq!(harness.launcher.tries(), 3 + auth_failures::MAX_LOGIN_RETRIES);
}

#[tokio::test(start_paused = true)]
async fn a_closed_link_waits_for_the_job_list_and_an_ended_job_is_not_retried() {
    let mut harness = Harness::empty();
    let probe = harness.launcher.probe();
    harness.supervisor.follow(&plan(1, &[1]));
    probe.hello(1).await;
    sleep(Duration::from_secs(1)).await;
    let closed = Instant::now();
    drop(probe.stdout);
    let _ = probe.end.send(StreamEnd::default());
    harness.down().await;
    assert_eq!(harness.poll_trigger.next().await, PollReason::Doubt);
    assert_eq!(closed.elapsed(), Duration::ZERO, "SLURM is polled at once");
    sleep(Duration::from_secs(6)).await;
    assert_eq!(harness.launcher.tries(), 1, "and not the node");
    // The job is completing: a login now would keep it from ending.
    harness.supervisor.follow(&plan(2, &[]));
    assert_eq!(harness.next().await, SessionEvent::Ending);
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!(harness.launcher.tries(), 1);
    // The next job there is connected at once.
    let next = harness.launcher.probe();
    harness.supervisor.follow(&plan(3, &[2]));
    assert!(matches!(harness.next().await, SessionEvent::Connecting { .. }));
    next.hello(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_link_that_broke_under_a_running_job_is_back_with_the_list_or_without_slurm_soon() {
    for answers in [true, false] {
        let mut harness = Harness::empty();
        let (probe, again) = (harness.launcher.probe(), harness.launcher.probe());
        harness.supervisor.follow(&plan(1, &[1]));
        probe.hello(1).await;
        sleep(Duration::from_secs(2)).await;
        let began = Instant::now();
        drop(probe.stdout);
        let _ = probe.end.send(StreamEnd::default());
        harness.down().await;
        if answers {
            harness.supervisor.follow(&plan(2, &[1]));
        }
        while harness.launcher.tries() < 2 {
            sleep(Duration::from_millis(100)).await;
        }
        let limit = if answers { 2 } else { 11 };
        assert!(began.elapsed() <= Duration::from_secs(limit), "{answers}: {:?}", began.elapsed());
        again.hello(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_does_not_wait_for_slurm() {
    let mut harness = Harness::empty();
    let (probe, _again) = (harness.launcher.probe(), harness.launcher.probe());
    harness.supervisor.follow(&plan(1, &[1]));
    probe.hello(1).await;
    let (_, _) = harness.down().await;
    let began = Instant::now();
    while harness.launcher.tries() < 2 {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(began.elapsed() <= Duration::from_millis(1_020), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_closes_each_login_is_retried_with_back_off() {
    let mut harness = Harness::empty();
    harness.supervisor.follow(&plan(1, &[1]));
    for round in 0..6 {
        let probe = harness.launcher.probe();
        while !matches!(harness.next().await, SessionEvent::Connecting { .. }) {}
        probe.hello(round).await;
        sleep(Duration::from_millis(500)).await;
        drop(probe.stdout);
        harness.down().await;
        harness.supervisor.follow(&plan(2 + round, &[1]));
    }
    assert!(
        matches!(harness.next().await, SessionEvent::Connecting { failures: 6 }),
        "a hello forgets no failure"
    );
}

#[tokio::test(start_paused = true)]
async fn a_denial_before_the_job_is_set_up_is_retried_soon() {
    let denied = || LaunchError::Denied { why: "denied".into() };
    let mut harness = Harness::empty();
    harness.launcher.fails(denied());
    let mut probe = harness.launcher.probe();
    harness.supervisor.follow(&plan(1, &[1]));
    assert_eq!(harness.down().await.0, "denied");
    assert_eq!(harness.poll_trigger.next().await, PollReason::Doubt);
    harness.supervisor.follow(&plan(2, &[1]));
    let began = Instant::now();
    probe.hello(1).await;
    assert!(matches!(probe.control().await, Some(Control::Interval { .. })));
    assert!(began.elapsed() <= Duration::from_secs(5));
}

/// Waits, in min, until the next attempts of a node whose logins hang or are denied; each is up to a tenth longer.
const LONG_WAITS_MINUTES: [u64; 5] = [10, 20, 40, 80, 150];

impl Harness {
    /// Checks that the node states these waits and is tried after each; then it is given up with this reason.
    async fn waits_long(&mut self, expected: &str) {
        let mut tries = None;
        for min in LONG_WAITS_MINUTES {
            // At first after short waits.
            let (why, wait_s) = loop {
                let (why, retry_at_ms) = self.down().await;
                let wait_s = retry_at_ms.saturating_sub(self.clock.now_ms()) / 1_000;
                if wait_s > 120 {
                    break (why, wait_s);
                }
            };
            assert!(why.starts_with(expected), "{why}");
            assert!((min * 60 - 1..=min * 66).contains(&wait_s), "{min} min: {wait_s} s");
            let before = tries.map_or(self.launcher.tries(), |tries| tries + 1);
            sleep(Duration::from_secs(min * 60 - 2)).await;
            assert_eq!(self.launcher.tries(), before, "{min} min");
            tries = Some(before);
        }
        assert_eq!(self.refused().await, expected);
        sleep(Duration::from_secs(24 * 3_600)).await;
        assert_eq!(self.launcher.tries(), tries.unwrap() + 1, "without a reason");
    }
}

#[tokio::test(start_paused = true)]
async fn f37_a_denial_that_lasts_is_retried_for_five_hours_and_at_once_for_the_next_job() {
    let denied = || LaunchError::Denied { why: "denied".into() };
    let mut harness = Harness::empty();
    (0..10).for_each(|_| harness.launcher.fails(denied()));
    harness.supervisor.follow(&plan(1, &[1]));
    harness.waits_long("denied").await;
    assert_eq!(harness.launcher.tries(), 10);
    // It does not affect a later job.
    harness.supervisor.follow(&nowhere(2));
    sleep(Duration::from_secs(1)).await;
    let _probe = harness.launcher.probe();
    harness.supervisor.follow(&plan(3, &[2]));
    while !matches!(harness.next().await, SessionEvent::Connecting { .. }) {}
    assert_eq!(harness.launcher.tries(), 11);
}

#[tokio::test(start_paused = true)]
async fn f37_a_new_job_is_a_reason_not_to_wait_for_a_denied_login() {
    let mut harness = Harness::empty();
    (0..5).for_each(|_| harness.launcher.fails(LaunchError::Denied { why: "denied".into() }));
    harness.supervisor.follow(&plan(1, &[1]));
    sleep(Duration::from_secs(300)).await;
    assert_eq!(harness.launcher.tries(), 5);
    // SLURM needs a moment to set it up.
    harness.launcher.fails(LaunchError::Denied { why: "denied".into() });
    let mut probe = harness.launcher.probe();
    let began = Instant::now();
    harness.supervisor.follow(&plan(2, &[1, 2]));
    probe.hello(1).await;
    assert!(matches!(probe.control().await, Some(Control::Interval { .. })));
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn f37_a_hanging_login_script_is_run_twice_and_then_rarely_for_five_hours() {
    let hangs =
        || LaunchError::Hangs { why: "the login script did not end".into(), advice: "mend it".into() };
    let mut harness = Harness::empty();
    (0..99).for_each(|_| harness.launcher.fails(hangs()));
    harness.set_targets();
    let (why, _) = harness.down().await;
    assert!(why.contains("did not end; mend it"), "{why}");
    harness.waits_long("the login script did not end").await;
    assert_eq!(harness.launcher.tries(), 2 + LONG_WAITS_MINUTES.len(), "each try leaves a process there");
    // The user's request begins again.
    harness.supervisor.retry(None);
    harness.waits_long("the login script did not end").await;
}

#[tokio::test(start_paused = true)]
async fn f37_hangs_between_failures_of_the_link_are_retried_as_those() {
    let mut harness = Harness::empty();
    for _ in 0..3 {
        harness.launcher.fails(LaunchError::Hangs { why: "it hangs".into(), advice: "mend it".into() });
        harness.launcher.fails(LaunchError::Unreachable { why: "it did not speak SSH within 10 s".into() });
    }
    let mut probe = harness.launcher.probe();
    let began = Instant::now();
    harness.set_targets();
    probe.hello(1).await;
    assert!(matches!(probe.control().await, Some(Control::Interval { .. })));
    assert!(began.elapsed() < Duration::from_secs(400), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn f37_a_node_whose_logins_hung_for_minutes_is_linked_and_waits_short_again() {
    let mut harness = Harness::empty();
    let hangs = || LaunchError::Hangs { why: "it hangs".into(), advice: "mend it".into() };
    (0..3).for_each(|_| harness.launcher.fails(hangs()));
    let probe = harness.launcher.probe();
    harness.set_targets();
    let began = Instant::now();
    while harness.launcher.tries() < 4 {
        sleep(Duration::from_secs(1)).await;
    }
    assert!((30..=35).contains(&(began.elapsed().as_secs() / 60)), "{:?}", began.elapsed());
    probe.hello(1).await;
    sleep(Duration::from_secs(1)).await;
    (0..2).for_each(|_| harness.launcher.fails(hangs()));
    drop(probe.stdout);
    loop {
        let (why, retry_at_ms) = harness.down().await;
        let wait_s = retry_at_ms.saturating_sub(harness.clock.now_ms()) / 1_000;
        if why.contains("it hangs") && wait_s > 60 {
            assert!((599..=660).contains(&wait_s), "{wait_s}");
            break;
        }
    }
}
