//! A relay that is throttled, short of memory, has too many nodes, or is not used; with paused time and a meter of the test.

use super::*;
use crate::own_load::{CpuUse, Meter, OwnLimits};
use crate::plan::MAX_NODES;
use nodeglass_api::{LimitedBy, OwnLoad};
use nodeglass_platform::cgroup::MemoryUse;
use nodeglass_protocol::picture::Link;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What the relay measures of itself.
#[derive(Clone, Debug, Default)]
struct Measured {
    used_ms: Arc<AtomicU64>,
    throttled_us: Arc<AtomicU64>,
    /// Memory in use of 200 MiB, in MiB; 0 for no limit.
    used_mib: Arc<AtomicU64>,
}

impl Meter for Measured {
    fn cpu(&self) -> CpuUse {
        CpuUse { used_ms: self.used_ms.load(Relaxed), throttled_us: self.throttled_us.load(Relaxed) }
    }

    fn memory(&self) -> Option<MemoryUse> {
        let used_bytes = self.used_mib.load(Relaxed) << 20;
        (used_bytes > 0).then_some(MemoryUse { used_bytes, limit_bytes: 200 << 20 })
    }
}

impl Harness {
    fn limited(load: OwnLoad, auto_exit: Option<Duration>) -> (Self, Measured, oneshot::Receiver<()>) {
        let measured = Measured::default();
        let (exit, exits) = oneshot::channel();
        let limits = OwnLimits {
            load,
            history_mem: 64 << 20,
            auto_exit: auto_exit.map(|after| (after, exit)),
            meter: Box::new(measured.clone()),
        };
        let harness = Self::changed(Options::default(), Sinks::default(), |core| core.limited(limits));
        (harness, measured, exits)
    }

    async fn notices(&self) -> Vec<Text> {
        self.hub.everything(Viewer::Owner).await.unwrap().0.relay.notices
    }
}

#[tokio::test(start_paused = true)]
async fn f21_a_throttled_relay_samples_every_node_slower_and_returns_when_it_is_over() {
    let (harness, measured, _exits) = Harness::limited(OwnLoad::default(), None);
    harness.jobs(vec![job(1, &[("n1", &[0])])]).await;
    let mut subscriber = harness.hub.join(Form::Binary, Viewer::Owner).await.unwrap();
    subscriber.set_topics(vec![Topic::Overview, job_topic()]).await;
    let interval = || harness.plan.borrow().nodes[&name("n1")].interval_ms;
    sleep(Duration::from_secs(30)).await;
    assert_eq!((interval(), harness.notices().await), (1_000, Vec::new()));
    for _ in 0..15 {
        measured.throttled_us.fetch_add(500_000, Relaxed);
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(interval(), 5_000);
    let notices = harness.notices().await;
    assert!(notices[0].as_str().contains("nodes are sampled every 5 s"), "{notices:?}");
    let status = harness.hub.own_load().await.unwrap();
    assert_eq!(status.slower_sampling.as_deref(), Some(notices[0].as_str()));
    sleep(Duration::from_secs(90)).await;
    assert_eq!((interval(), harness.notices().await), (1_000, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn without_a_control_group_a_limit_of_cpu_time_is_kept_by_slower_sampling() {
    let load = OwnLoad {
        cpu_max_pct: Some(10),
        cpu_limited_by: Some(LimitedBy::SlowerSampling),
        ..OwnLoad::default()
    };
    let (harness, measured, _exits) = Harness::limited(load, None);
    harness.jobs(vec![job(1, &[("n1", &[0])])]).await;
    let interval = || harness.plan.borrow().nodes[&name("n1")].interval_ms;
    for _ in 0..35 {
        measured.used_ms.fetch_add(300, Relaxed);
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(interval(), 10_000);
    assert!(harness.notices().await[0].as_str().contains("cpu-max allows 10 %"));
}

#[tokio::test(start_paused = true)]
async fn f20_a_relay_short_of_memory_drops_history_and_continues_live() {
    let (harness, measured, _exits) = Harness::limited(OwnLoad::default(), None);
    let mut subscriber = harness.hub.join(Form::Binary, Viewer::Owner).await.unwrap();
    harness.jobs(vec![job(1, &[("n1", &[0])])]).await;
    harness.line("n1", hello("n1", &[0])).await;
    harness.line("n1", sample(1, &[50])).await;
    // The history of half a week, far more than the least that stays.
    let mut node = harness.hub.everything(Viewer::Owner).await.unwrap().0.nodes.remove(0);
    let mut restored = LongHistory::default();
    for number in 0..400 {
        node.name = name(&format!("n{number}"));
        for minute in 0..60 {
            node.sampled_at_ms = Some(harness.clock.now_ms() + minute * 60_000);
            restored.record(&node);
        }
    }
    let restored_bytes = restored.len();
    harness.hub.restore_history(Some(restored)).await;
    measured.used_mib.store(198, Relaxed);
    sleep(Duration::from_secs(30)).await;
    let notices = harness.notices().await;
    assert!(notices[0].as_str().contains("memory is short"), "{restored_bytes}: {notices:?}");
    assert!(harness.hub.own_load().await.unwrap().dropped_history.is_some());
    let mut pictures = BTreeMap::new();
    subscriber.set_topics(vec![job_topic()]).await;
    follow(&mut subscriber, &mut pictures).await;
    harness.line("n1", sample(40, &[60])).await;
    while !matches!(follow(&mut subscriber, &mut pictures).await, ServerMessage::Delta(_)) {}
    let picture = pictures.values().next().unwrap();
    assert_eq!(picture.nodes[0].gpus[0].row.value(GpuField::Util), Some(60));
}

#[tokio::test(start_paused = true)]
async fn a_relay_exits_by_itself_once_no_job_viewer_or_request_uses_it() {
    let (harness, _, mut exits) = Harness::limited(OwnLoad::default(), Some(Duration::from_secs(600)));
    sleep(Duration::from_secs(3_600)).await;
    assert!(exits.try_recv().is_err(), "SLURM has not answered, so that there may be jobs");
    harness.jobs(vec![job(1, &[("n1", &[0])])]).await;
    sleep(Duration::from_secs(3_600)).await;
    assert!(exits.try_recv().is_err(), "a job runs");
    harness.jobs(Vec::new()).await;
    sleep(Duration::from_secs(500)).await;
    let unused_s = harness.hub.own_load().await.unwrap().auto_exit.map(|auto_exit| auto_exit.unused_s);
    assert!(unused_s.is_some_and(|unused_s| (495..=505).contains(&unused_s)), "{unused_s:?}");
    // A request of a script.
    harness.notices().await;
    sleep(Duration::from_secs(500)).await;
    assert!(exits.try_recv().is_err());
    let subscriber = harness.hub.join(Form::Binary, Viewer::Owner).await.unwrap();
    sleep(Duration::from_secs(3_600)).await;
    assert!(exits.try_recv().is_err(), "somebody watches");
    drop(subscriber);
    sleep(Duration::from_secs(598)).await;
    assert!(exits.try_recv().is_err());
    sleep(Duration::from_secs(4)).await;
    assert_eq!(exits.try_recv(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn of_ten_thousand_nodes_the_most_are_watched_and_the_others_say_why_not() {
    let harness = Harness::open();
    let names: Vec<String> = (0..10_000).map(|number| format!("n{number:05}")).collect();
    let nodes: Vec<(&str, &[u32])> = names.iter().map(|name| (name.as_str(), &[][..])).collect();
    harness.jobs(vec![job(1, &nodes)]).await;
    assert_eq!(harness.plan.borrow().nodes.len(), MAX_NODES);
    let (picture, _) = harness.hub.everything(Viewer::Owner).await.unwrap();
    assert_eq!(picture.relay.notices.len(), 1);
    let notice = picture.relay.notices[0].as_str();
    assert!(
        notice.contains("4,096 of 10,000 nodes are watched") && notice.contains("--partition"),
        "{notice}"
    );
    let refused = |node: &&NodePicture| matches!(node.head.link, Link::Refused { .. });
    assert_eq!(picture.nodes.iter().filter(refused).count(), 10_000 - MAX_NODES);
    harness.jobs(vec![job(1, &nodes[..4_000])]).await;
    assert_eq!((harness.plan.borrow().nodes.len(), harness.notices().await), (4_000, Vec::new()));
}
