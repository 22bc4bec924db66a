//! A link to a scripted node behaves as one to a real probe.

use super::*;
use nodeglass_protocol::job::JobState;
use nodeglass_protocol::probe::{Control, MAGIC, PING_TIMEOUT_MS, ProbeLine, Sample};
use nodeglass_sim::{DEMO, QUIET};
use std::time::Duration;
use tokio::time::{sleep, timeout};

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

/// Reads lines of a link, as a session does.
struct Reader {
    stream: NodeStream,
    unread: Vec<u8>,
}

impl Reader {
    async fn connect(cluster: &ScriptedCluster, name: &str) -> Self {
        let stream = cluster.launcher().launch(&node(name)).await.unwrap();
        Self { stream, unread: Vec::new() }
    }

    async fn raw_line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return Some(String::from_utf8(line).unwrap());
            }
            self.unread.extend_from_slice(&self.stream.stdout.recv().await?);
        }
    }

    async fn line(&mut self) -> Option<ProbeLine> {
        let line = self.raw_line().await?;
        Some(serde_json::from_str(line.strip_prefix(MAGIC).unwrap_or(&line)).unwrap())
    }

    async fn sample(&mut self) -> Sample {
        loop {
            if let ProbeLine::Sample(sample) = self.line().await.unwrap() {
                return *sample;
            }
        }
    }

    async fn live(&mut self) -> Sample {
        loop {
            let sample = self.sample().await;
            if !sample.replay {
                return sample;
            }
        }
    }

    async fn order(&self, order: Control) {
        let line = serde_json::to_string(&order).unwrap() + "\n";
        self.stream.stdin.send(line.into()).await.unwrap();
    }

    async fn end(mut self) -> StreamEnd {
        while self.line().await.is_some() {}
        self.stream.end.await.unwrap()
    }
}

fn quiet() -> ScriptedCluster {
    ScriptedCluster::from_toml(QUIET).unwrap()
}

/// Two H100 nodes with four GPUs each, a job on both since an hour ago, and a fault.
fn faulty_toml(fault: &str) -> String {
    format!(
        "cluster = \"c\"\nuser = \"alice\"\nseed = 5\n\
         [[node]]\nname = \"n[1-2]\"\nmodel = \"h100\"\ngpus = 4\n{fault}\n\
         [[job]]\nid = 7\nname = \"j\"\npartition = \"p\"\nsubmitted = \"-1h\"\nstart = \"-1h\"\n\
         nodes = \"n[1-2]\"\nargs = \"python3 j.py\"\n"
    )
}

fn faulty(fault: &str) -> ScriptedCluster {
    ScriptedCluster::from_toml(&faulty_toml(fault)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_first_line_has_the_magic_and_history_precedes_live_samples() {
    let cluster = quiet();
    let mut link = Reader::connect(&cluster, "q1").await;
    let first = link.raw_line().await.unwrap();
    assert!(first.starts_with(MAGIC));
    let hello: ProbeLine = serde_json::from_str(first.strip_prefix(MAGIC).unwrap()).unwrap();
    assert!(matches!(hello, ProbeLine::Hello(hello) if hello.gpus.len() == 2));
    let mut past = Vec::new();
    let live = loop {
        let sample = link.sample().await;
        if !sample.replay {
            break sample;
        }
        past.push(sample);
    };
    assert!((599..=601).contains(&past.len()), "{}", past.len());
    for pair in past.windows(2) {
        assert_eq!(pair[1].seq, pair[0].seq + 1);
        assert_eq!(pair[1].mono_ns, pair[0].mono_ns + 1_000_000_000);
        assert_eq!(pair[1].wall_ms % 1_000, 0);
    }
    // A probe samples as soon as it starts, then at aligned times.
    let last = &past[past.len() - 1];
    assert_eq!(live.seq, last.seq + 1);
    assert!((1..=1_000).contains(&(live.wall_ms - last.wall_ms)), "{} ms", live.wall_ms - last.wall_ms);
    let next = link.live().await;
    assert_eq!((next.seq, next.wall_ms % 1_000), (live.seq + 1, 0));
}

#[tokio::test(start_paused = true)]
async fn every_line_of_every_node_of_the_demo_can_be_read() {
    let cluster = ScriptedCluster::demo();
    let names: Vec<NodeName> = cluster.scenario().node_names().cloned().collect();
    for name in names {
        let mut link = Reader::connect(&cluster, name.as_str()).await;
        let mut lines = 0;
        while !matches!(link.line().await.unwrap(), ProbeLine::Processes(_)) {
            lines += 1;
        }
        assert!(lines > 500, "{name} has a past: {lines}");
    }
}

#[tokio::test(start_paused = true)]
async fn samples_are_aligned_to_the_requested_interval() {
    let mut link = Reader::connect(&quiet(), "q1").await;
    let before = link.live().await;
    link.order(Control::Interval { ms: 5_000, phase_ms: 0 }).await;
    let (first, second) = (link.live().await, link.live().await);
    assert_eq!((first.seq, second.seq), (before.seq + 1, before.seq + 2));
    assert_eq!((first.wall_ms % 5_000, second.wall_ms - first.wall_ms), (0, 5_000));
    assert_eq!(first.interval_ms, 5_000);
}

#[tokio::test(start_paused = true)]
async fn a_line_arrives_every_six_seconds_however_slow_the_samples() {
    let mut link = Reader::connect(&quiet(), "q1").await;
    link.live().await;
    link.order(Control::Interval { ms: 60_000, phase_ms: 0 }).await;
    let mut heartbeats = 0;
    for _ in 0..20 {
        let line = timeout(Duration::from_millis(6_010), link.line()).await.expect("a line in time").unwrap();
        heartbeats += u32::from(matches!(line, ProbeLine::Heartbeat(_)));
        link.order(Control::Ping).await;
    }
    assert!(heartbeats >= 10, "{heartbeats}");
}

#[tokio::test(start_paused = true)]
async fn missed_samples_are_replayed_on_request() {
    let cluster = quiet();
    let mut first = Reader::connect(&cluster, "q1").await;
    let Some(ProbeLine::Hello(hello)) = first.line().await else { panic!("no hello") };
    let last = first.live().await;
    drop(first);
    sleep(Duration::from_secs(20)).await;

    let mut second = Reader::connect(&cluster, "q1").await;
    let now = second.live().await;
    assert!(now.seq >= last.seq + 20, "numbering continued without a connection");
    second.order(Control::Backfill { stream: hello.stream, after_seq: last.seq }).await;
    // A replay begins with a complete sample, and live samples may arrive in between.
    let mut missed = Vec::new();
    while missed.last() != Some(&now.seq) {
        let sample = second.sample().await;
        if sample.replay && sample.seq > last.seq {
            missed.push(sample.seq);
        }
    }
    assert_eq!(missed, (last.seq + 1..=now.seq).collect::<Vec<_>>());
    second.order(Control::Backfill { stream: hello.stream + 1, after_seq: 0 }).await;
    assert!(!second.sample().await.replay, "another boot's numbers mean nothing");
}

#[tokio::test(start_paused = true)]
async fn control_lines_are_parsed_across_chunks() {
    let link = Reader::connect(&quiet(), "q1").await;
    for piece in ["rubbish\n\"st", "op", "\"\n"] {
        link.stream.stdin.send(piece.into()).await.unwrap();
    }
    assert_eq!(link.end().await.exit, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_probe_ends_with_its_pipe_and_without_pings() {
    let mut link = Reader::connect(&quiet(), "q1").await;
    link.live().await;
    let NodeStream { mut stdout, stdin, end } = link.stream;
    drop(stdin);
    while stdout.recv().await.is_some() {}
    assert_eq!(end.await.unwrap().exit, Some(0));

    let mut link = Reader::connect(&quiet(), "q1").await;
    let mut last = link.line().await.unwrap();
    let read_all = async {
        while let Some(line) = link.line().await {
            last = line;
        }
    };
    timeout(Duration::from_millis(PING_TIMEOUT_MS + 2_000), read_all).await.expect("it ends by itself");
    assert!(matches!(last, ProbeLine::Bye(_)));

    let NodeStream { stdout, stdin, end } = quiet().launcher().launch(&node("q2")).await.unwrap();
    drop(stdout);
    let ended = timeout(Duration::from_secs(1), end).await.expect("it ends without a reader").unwrap();
    assert_eq!(ended.exit, Some(0));
    drop(stdin);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_host_key_is_not_known_needs_its_user() {
    let cluster = faulty("[[fault]]\nnodes = \"n1\"\nkind = \"unknown_host_key\"");
    let refused = cluster.launcher().launch(&node("n1")).await.unwrap_err();
    assert!(matches!(refused, LaunchError::HostKey { .. }), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crashing_node_drops_its_link_and_returns() {
    let cluster = faulty("[[fault]]\nnodes = \"n1\"\nkind = \"dies\"\nat = \"10s\"\nfor = \"30s\"");
    let mut link = Reader::connect(&cluster, "n1").await;
    let Some(ProbeLine::Hello(before)) = link.line().await else { panic!("no hello") };
    assert!(link.end().await.broken.is_some());
    let refused = cluster.launcher().launch(&node("n1")).await.unwrap_err();
    assert!(matches!(refused, LaunchError::Unreachable { .. }));
    Reader::connect(&cluster, "n2").await.live().await;

    sleep(Duration::from_secs(31)).await;
    let mut link = Reader::connect(&cluster, "n1").await;
    let Some(ProbeLine::Hello(after)) = link.line().await else { panic!("no hello") };
    assert_ne!(before.stream, after.stream);
    assert!(link.live().await.seq < 20, "a new boot counts anew");
}

#[tokio::test(start_paused = true)]
async fn a_node_behind_a_broken_network_keeps_counting() {
    let cluster = faulty("[[fault]]\nnodes = \"n1\"\nkind = \"unreachable\"\nat = \"10s\"\nfor = \"30s\"");
    let mut link = Reader::connect(&cluster, "n1").await;
    let seq = link.live().await.seq;
    assert!(link.end().await.broken.is_some());
    assert!(cluster.launcher().launch(&node("n1")).await.is_err());
    sleep(Duration::from_secs(31)).await;
    assert!(Reader::connect(&cluster, "n1").await.live().await.seq > seq + 30);
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_keeps_its_link_without_lines() {
    let cluster = faulty("[[fault]]\nnodes = \"n1\"\nkind = \"silent\"\nat = \"5s\"\nfor = \"20s\"");
    let mut link = Reader::connect(&cluster, "n1").await;
    while timeout(Duration::from_secs(10), link.line()).await.is_ok() {}
    let before = cluster.now().t_ms;
    assert!((14_000..17_000).contains(&before), "{before}");
    let sample = link.live().await;
    assert!(!sample.replay && cluster.now().t_ms >= 25_000);
}

#[tokio::test(start_paused = true)]
async fn a_hung_nvml_is_reported_by_heartbeats_while_the_host_is_sampled() {
    let cluster = faulty("[[fault]]\nnodes = \"n1\"\nkind = \"nvml_stuck\"\nat = \"5s\"\nfor = \"12s\"");
    let mut link = Reader::connect(&cluster, "n1").await;
    let (mut stuck, mut of_host, mut events) = (Vec::new(), 0, Vec::new());
    while cluster.now().t_ms < 20_000 {
        match link.line().await.unwrap() {
            ProbeLine::Heartbeat(tick) => stuck.extend(tick.driver_stuck_ms),
            ProbeLine::Sample(sample) if !sample.replay && (5_500..17_000).contains(&cluster.now().t_ms) => {
                // The first one reports the fault of each GPU, later ones omit what has not changed.
                let faults = sample.gpus.iter().filter(|gpu| gpu.fault.is_some()).count();
                assert_eq!(faults, if of_host == 0 { 4 } else { sample.gpus.len() });
                of_host += 1;
            }
            ProbeLine::Event(event) => events.push(event.text.to_string()),
            _ => {}
        }
    }
    assert!(stuck.len() >= 5 && stuck.is_sorted() && stuck[stuck.len() - 1] > 9_000, "{stuck:?}");
    assert!(of_host >= 5, "{of_host}");
    let begins = ["the NVIDIA driver has not responded since ", "the NVIDIA driver responds again after "];
    assert!(events.iter().zip(begins).all(|(event, begin)| event.starts_with(begin)), "{events:?}");
    assert_eq!(events.len(), 2, "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_gpu_that_falls_off_the_bus_is_an_event_with_its_xid() {
    let cluster =
        faulty("[[fault]]\nnodes = \"n1\"\nkind = \"lost_gpu\"\ngpu = 3\nat = \"5s\"\nfor = \"5s\"");
    let mut link = Reader::connect(&cluster, "n1").await;
    let mut events = Vec::new();
    while cluster.now().t_ms < 15_000 {
        if let ProbeLine::Event(event) = link.line().await.unwrap() {
            events.push(event);
        }
    }
    // Its readings fail, the driver reports the Xid, and its readings return.
    assert_eq!(events.iter().map(|event| event.xid).collect::<Vec<_>>(), [None, Some(79), None]);
    let uuid = cluster.scenario().hello(&node("n1"), cluster.now()).map(|hello| hello.gpus[3].uuid.clone());
    assert!(events.iter().all(|event| event.gpu == uuid));
}

#[tokio::test(start_paused = true)]
async fn recent_xids_are_reported_once_on_connecting() {
    let cluster =
        faulty("[[fault]]\nnodes = \"n1\"\nkind = \"xid\"\nxid = 94\ngpu = 1\nat = \"-1m\"\nfor = \"1s\"");
    let mut link = Reader::connect(&cluster, "n1").await;
    let mut events = Vec::new();
    while cluster.now().t_ms < 15_000 {
        if let ProbeLine::Event(event) = link.line().await.unwrap() {
            events.push(event);
        }
    }
    let [event] = &events[..] else { panic!("{events:?}") };
    assert!(event.text.as_str().starts_with("Xid 94 on GPU 1: a memory error hit one program only"));
    assert_eq!(event.xid, Some(94));
}

#[tokio::test(start_paused = true)]
async fn readings_and_health_are_sent_between_process_lists() {
    let mut link = Reader::connect(&quiet(), "q2").await;
    let (mut lists, mut readings, mut health) = (0, 0, 0);
    link.live().await;
    while lists < 4 {
        match link.line().await.unwrap() {
            ProbeLine::Processes(list) => {
                assert_eq!(list.processes.len(), 2);
                lists += 1;
                // The first sample is not on a whole second, so that the first period may be longer.
                if lists == 2 {
                    readings = 0;
                }
            }
            ProbeLine::ProcessReadings(line) => {
                assert_eq!(line.now.len(), 2);
                readings += 1;
            }
            ProbeLine::Health(report) => {
                assert_eq!(report.gpus.len(), 2);
                health += 1;
            }
            _ => {}
        }
        link.order(Control::Ping).await;
    }
    assert_eq!((readings, health), (8, 1));
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_returns_sends_a_new_hello() {
    let cluster = faulty("[[fault]]\nnodes = \"n1\"\nkind = \"no_driver\"\nat = 0\nfor = \"5s\"");
    let mut link = Reader::connect(&cluster, "n1").await;
    let mut gpus = Vec::new();
    while cluster.now().t_ms < 8_000 {
        if let ProbeLine::Hello(hello) = link.line().await.unwrap() {
            gpus.push(hello.gpus.len());
        }
    }
    assert_eq!(gpus, [0, 4]);
}

#[tokio::test(start_paused = true)]
async fn login_shell_output_precedes_the_magic() {
    let text =
        faulty_toml("").replace("gpus = 4", "gpus = 4\nmotd = \"Welcome!\\n*** maintenance on Monday\\n\"");
    let cluster = ScriptedCluster::from_toml(&text).unwrap();
    let mut link = Reader::connect(&cluster, "n1").await;
    assert_eq!(link.raw_line().await.unwrap(), "Welcome!\n");
    link.raw_line().await.unwrap();
    assert!(link.raw_line().await.unwrap().starts_with(MAGIC));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_node_is_unreachable() {
    let refused = quiet().launcher().launch(&node("q9")).await.unwrap_err();
    assert_eq!(refused.to_string(), "cannot find q9: name or service not known");
}

#[tokio::test(start_paused = true)]
async fn the_job_list_is_the_scenarios() {
    let cluster = quiet();
    let jobs = cluster.jobs().jobs().await.unwrap();
    assert_eq!(jobs, cluster.scenario().jobs(cluster.now()));
    assert_eq!(jobs.len(), 3);
}

#[test]
fn each_reason_of_the_demos_pending_jobs_is_explained() {
    let scenario = Scenario::from_toml(DEMO).unwrap();
    let jobs = scenario.jobs(ScenarioTime { t_ms: 1_000, start_wall_ms: 1_767_225_600_000 });
    let pending = jobs.iter().filter(|job| job.state == JobState::Pending);
    let reasons: Vec<_> = pending.filter_map(|job| job.reason.as_ref()).collect();
    assert!(reasons.len() >= 7, "{reasons:?}");
    assert!(reasons.iter().all(|reason| nodeglass_slurm::explanation(reason.as_str(), true).is_some()));
}
