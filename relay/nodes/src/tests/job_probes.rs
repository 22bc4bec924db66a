//! Probes in jobs: beside the probe of their node, seldom retried, and ended with their job.

use super::*;

/// A supervisor whose launcher starts probes in jobs.
fn harness() -> (Harness, Arc<FakeJobLauncher>) {
    let jobs = Arc::new(FakeJobLauncher::default());
    let launcher = FakeLauncher { in_jobs: Some(jobs.clone()), ..FakeLauncher::default() };
    (Harness::with(launcher), jobs)
}

fn plan(jobs: &[u32]) -> BTreeMap<NodeName, NodePlan> {
    let job_probes = jobs.iter().map(|job| JobId(*job)).collect();
    let plan = NodePlan { interval_ms: 1_000, phase_ms: 100, job_probes, ..Default::default() };
    BTreeMap::from([(node("n1"), plan)])
}

#[tokio::test(start_paused = true)]
async fn a_job_has_a_probe_beside_that_of_its_node_and_samples_before_it() {
    let (mut harness, jobs) = harness();
    let (mut own, mut of_job) = (harness.launcher.probe(), jobs.launcher.probe());
    harness.supervisor.set_targets(&plan(&[17]));
    own.hello(1).await;
    of_job.hello(2).await;
    assert_eq!(own.control().await, Some(Control::Interval { ms: 1_000, phase_ms: 100 }));
    assert_eq!(of_job.control().await, Some(Control::Interval { ms: 1_000, phase_ms: 900 }));
    let mut hellos = Vec::new();
    while hellos.len() < 2 {
        let from = harness.events.recv().await.unwrap();
        hellos.extend(matches!(from.event, SessionEvent::Line(_)).then_some(from.job));
    }
    hellos.sort();
    assert_eq!(hellos, [None, Some(JobId(17))]);
    // The job ends; the probe of the node continues.
    harness.supervisor.set_targets(&plan(&[]));
    assert_eq!(of_job.control().await, Some(Control::Stop));
    own.sample(1).await;
    assert_eq!((*jobs.jobs.lock().unwrap()).clone(), [JobId(17)]);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_node_ends_the_probes_of_its_jobs() {
    let (mut harness, jobs) = harness();
    let (mut own, mut of_job) = (harness.launcher.probe(), jobs.launcher.probe());
    harness.supervisor.set_targets(&plan(&[17]));
    for probe in [&mut own, &mut of_job] {
        probe.hello(1).await;
        assert!(matches!(probe.control().await, Some(Control::Interval { .. })));
    }
    harness.supervisor.set_targets(&BTreeMap::new());
    for probe in [&mut own, &mut of_job] {
        assert_eq!(probe.control().await, Some(Control::Stop));
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_slurm_does_not_create_is_requested_at_most_twice_a_minute() {
    let (mut harness, jobs) = harness();
    let own = harness.launcher.probe();
    harness.supervisor.set_targets(&plan(&[17]));
    own.hello(1).await;
    let began = Instant::now();
    let draining = tokio::spawn(async move { while harness.events.recv().await.is_some() {} });
    sleep(Duration::from_secs(600)).await;
    let tries = jobs.launcher.tries.lock().unwrap().clone();
    assert!((10..=21).contains(&tries.len()), "{tries:?}");
    assert!(tries.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(30)), "{began:?} {tries:?}");
    draining.abort();
}

#[tokio::test(start_paused = true)]
async fn the_number_of_probes_in_jobs_is_limited() {
    let (mut harness, jobs) = harness();
    let draining = tokio::spawn(async move { while harness.events.recv().await.is_some() {} });
    harness.supervisor.set_targets(&plan(&(1..=70).collect::<Vec<_>>()));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(jobs.jobs.lock().unwrap().len(), 64);
    // Those that remain wanted keep their probes, and the others take the free places.
    harness.supervisor.set_targets(&plan(&(60..=70).collect::<Vec<_>>()));
    sleep(Duration::from_secs(1)).await;
    let started: std::collections::BTreeSet<_> = jobs.jobs.lock().unwrap().iter().copied().collect();
    assert!((65..=70).all(|job| started.contains(&JobId(job))), "{started:?}");
    draining.abort();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_started_in_jobs_where_that_is_impossible() {
    let mut harness = Harness::empty();
    let own = harness.launcher.probe();
    harness.supervisor.set_targets(&plan(&[17]));
    own.hello(1).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(harness.launcher.tries(), 1);
}
