//! Whole screens from made-up pictures, and what keys do to them.

mod options;

use super::connection::Update;
use super::draw::{self, Scene};
use super::keys::{self, Command};
use super::model::{Effect, Model};
use super::mouse;
use super::palette::Palette;
use super::view::View;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use nodeglass_protocol::finding::{Finding, FindingGpu, FindingKind, FindingSeverity};
use nodeglass_protocol::gpu::MigFacts;
use nodeglass_protocol::history::History;
use nodeglass_protocol::job::{Job, JobState, TimeLimit};
use nodeglass_protocol::live::{Delta, Mode, Role, ServerMessage, Snapshot, Topic, Welcome};
use nodeglass_protocol::picture::{
    Evidence, GpuEvent, GpuPicture, JobsHealth, Link, NodeFacts, NodePicture, Owner, ProcessFacts,
    ProcessPicture, RelayStatus,
};
use nodeglass_protocol::process::{ProcessKind, Rank};
use nodeglass_protocol::replay::ReplayStatus;
use nodeglass_protocol::request::{ProcessRef, Request, Response, Signal};
use nodeglass_protocol::{Cell, GpuField, GpuUuid, HostField, JobId, Picture, ProcessField, Reading};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

const NOW_MS: u64 = 700_000_000;
const WALL_S: i64 = 1_800_000_000;
const GIB: u32 = 16;

fn id(number: u32) -> JobId {
    number.to_string().parse().unwrap()
}

fn job(number: u32, name: &str, nodes: &[&str]) -> Job {
    let mut job = Job::new(id(number), "alice".into(), JobState::Running);
    job.name = name.into();
    job.partition = "a100".into();
    job.nodes = nodes.iter().map(|name| name.parse().unwrap()).collect();
    job.node_count = nodes.len() as u32;
    job.gpu_count = Some(4);
    job.start = Some(WALL_S - 3_600);
    job.limit = TimeLimit::Seconds(86_400);
    job
}

fn gpu(index: u32, owner: Option<u32>, util: u32) -> GpuPicture {
    let mut gpu = GpuPicture::default();
    gpu.facts.uuid = GpuUuid::new(format!("GPU-{index}"));
    gpu.facts.index = index;
    gpu.facts.name = Reading::Value("NVIDIA A100-SXM4-80GB".into());
    gpu.owners = owner.map(|job| Owner { job: id(job), by: Evidence::GresIndex }).into_iter().collect();
    for (field, steps) in [
        (GpuField::Util, util),
        (GpuField::MemUsed, 40 * GIB),
        (GpuField::MemTotal, 80 * GIB),
        (GpuField::Power, 301),
        (GpuField::PowerLimit, 400),
        (GpuField::Temp, 61),
        (GpuField::SmClock, 94),
        (GpuField::MemClock, 1_593),
    ] {
        gpu.row.set(field, Cell::steps(steps));
    }
    gpu
}

fn process(gpu: u32, pid: u32, user: &str, rank: Option<u32>) -> ProcessPicture {
    let mut facts = ProcessFacts::new(GpuUuid::new(format!("GPU-{gpu}")), pid, ProcessKind::default());
    facts.kind.compute = true;
    facts.user = Reading::Value(user.into());
    facts.started_ms = Reading::Value((WALL_S as u64 - 600) * 1_000);
    facts.args = match user {
        "alice" => Reading::Value("python3 train.py --epochs 90".into()),
        _ => Reading::Failed("hidden: the process of another user".into()),
    };
    facts.command = Reading::Value("python3".into());
    facts.rank = rank.map(|global| Rank { global, local: None, world: None });
    let mut row = nodeglass_protocol::Row::default();
    row.set(ProcessField::GpuMem, Cell::steps(39 * 1_024 + pid % 100));
    row.set(ProcessField::Cpu, Cell::steps(101));
    row.set(ProcessField::Sm, if gpu == 2 { Cell::UNSUPPORTED } else { Cell::steps(pid % 100) });
    ProcessPicture { facts, row }
}

/// A node that is busy, hot, partly unreadable and divided.
fn busy() -> NodePicture {
    let mut node = NodePicture::new("gpu-01".parse().unwrap());
    node.head.link = Link::Live;
    node.head.interval_ms = 1_000;
    node.head.facts = Some(NodeFacts::default());
    node.sampled_at_ms = Some(NOW_MS - 400);
    node.host.set(HostField::Cpu, Cell::steps(34));
    node.host.set(HostField::MemUsed, Cell::steps(120 * GIB));
    node.host.set(HostField::MemTotal, Cell::steps(512 * GIB));
    let mut hot = gpu(1, Some(17), 64);
    hot.row.set(GpuField::Throttle, Cell::steps(0x40));
    hot.row.set(GpuField::Temp, Cell::steps(89));
    let mut partial = gpu(2, Some(17), 0);
    partial.row.set(GpuField::Util, Cell::UNSUPPORTED);
    partial.row.set(GpuField::Power, Cell::FAILED);
    partial.row.set(GpuField::Temp, Cell::NOT_YET);
    partial.row.set(GpuField::SmClock, Cell::UNSUPPORTED);
    let mut lost = gpu(3, Some(17), 0);
    lost.fault = Some("GPU is lost".into());
    let mut instance = gpu(4, None, 0);
    instance.facts.mig = Some(MigFacts { profile: Some("3g.40gb".into()), ..MigFacts::default() });
    instance.facts.mig_parent = Some(GpuUuid::new("GPU-3"));
    node.gpus = vec![gpu(0, Some(17), 97), hot, partial, lost, instance];
    let of = Some(GpuUuid::new("GPU-0"));
    let text = "Xid 13: graphics engine exception".into();
    node.head.events = vec![GpuEvent { at_ms: NOW_MS - 60_000, gpu: of, xid: Some(13), text }];
    let mut history = History { is_summary: true, ..History::default() };
    for second in (0..600).filter(|second| !(200..300).contains(second)) {
        let rows: Vec<_> =
            (0..2).map(|index| gpu(index, None, if second < 200 { 10 } else { 95 }).row).collect();
        history.push(NOW_MS - 600_000 + second * 1_000, rows.iter(), &node.host, 0);
    }
    node.history = Some(history);
    node
}

/// A node that went silent.
fn silent() -> NodePicture {
    let mut node = NodePicture::new("gpu-02".parse().unwrap());
    node.head.link = Link::Silent;
    node.head.interval_ms = 1_000;
    node.head.facts = Some(NodeFacts::default());
    node.sampled_at_ms = Some(NOW_MS - 42_000);
    node.gpus = vec![gpu(5, Some(18), 88)];
    node
}

fn welcome() -> Welcome {
    Welcome {
        proto: 2,
        build: "test".into(),
        epoch: 1,
        at_ms: NOW_MS,
        wall_ms: WALL_S as u64 * 1_000,
        user: "alice".into(),
        host: "login1".into(),
        cluster: Some("lab".into()),
        mode: Mode::Slurm,
        role: Role::Owner,
        may_act: true,
        tunnel: "".into(),
        share: None,
        downtimes: Vec::new(),
        report_webhook: None,
        utc_offset_min: 0,
        person: None,
        history_days: 0,
    }
}

fn overview() -> Picture {
    let mut waiting = Job::new(id(19), "alice".into(), JobState::Pending);
    (waiting.name, waiting.reason) = ("later".into(), Some("Priority".into()));
    Picture {
        at_ms: NOW_MS,
        relay: RelayStatus { jobs: JobsHealth::Fresh { at_ms: NOW_MS - 4_000 }, ..RelayStatus::default() },
        jobs: vec![job(17, "train-llm-7b", &["gpu-01"]), job(18, "eval", &["gpu-02"]), waiting],
        nodes: vec![busy(), silent()],
        ..Picture::default()
    }
}

/// A terminal that shows a picture.
struct Shown {
    model: Model,
    view: View,
    detail: Topic,
    at_ms: u64,
    is_ascii: bool,
}

impl Shown {
    fn new(welcome: Welcome, overview: Picture) -> Self {
        let mut model = Model::default();
        model.apply(Update::Connected(Box::new(welcome)), 0);
        let mut node = busy();
        node.processes = vec![
            process(0, 4_711, "alice", Some(0)),
            process(1, 4_650, "alice", Some(1)),
            process(2, 99, "bob", None),
        ];
        let detail = Picture { at_ms: NOW_MS, nodes: vec![node], ..Picture::default() };
        let topic = Topic::Node("gpu-01".parse().unwrap());
        let mut shown =
            Self { model, view: View::default(), detail: topic.clone(), at_ms: 0, is_ascii: false };
        shown.snapshot(Topic::Overview, 1, overview);
        shown.snapshot(topic, 2, detail);
        shown.screen(80, 24);
        shown
    }

    fn snapshot(&mut self, topic: Topic, number: u32, picture: Picture) {
        let snapshot = Snapshot { topic, number, seq: 0, picture };
        let message = ServerMessage::Snapshot(Box::new(snapshot));
        self.model.apply(Update::Message(Box::new(message)), 0);
    }

    fn screen(&mut self, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let world = self.model.world(Some(&self.detail), self.at_ms);
        if let Some(world) = &world {
            self.view.place(world);
        }
        let scene = Scene {
            is_ascii: self.is_ascii,
            model: &self.model,
            world: world.as_ref(),
            at_ms: self.at_ms,
            palette: Palette::Plain,
        };
        let view = &mut self.view;
        terminal.draw(|frame| draw::draw(frame.buffer_mut(), view, scene)).unwrap();
        terminal.backend().to_string()
    }

    fn press(&mut self, code: KeyCode) -> Option<Command> {
        self.press_with(code, KeyModifiers::NONE)
    }

    fn press_with(&mut self, code: KeyCode, modifiers: KeyModifiers) -> Option<Command> {
        let world = self.model.world(Some(&self.detail), self.at_ms);
        let key = KeyEvent::new(code, modifiers);
        let command = keys::handle(&mut self.view, key, &self.model, world.as_ref(), self.at_ms);
        // The cursor settles when the next frame is drawn.
        self.screen(120, 40);
        command
    }

    /// The mouse at the first occurrence of a text on the screen of 120 × 40.
    fn mouse(&mut self, kind: MouseEventKind, at: &str) {
        let screen = self.screen(120, 40);
        let line = |line: &str| line.find(at).map(|byte| line[..byte].chars().count() - 1);
        let found = screen.lines().enumerate().find_map(|(row, text)| Some((row, line(text)?)));
        let (row, column) = found.unwrap_or_else(|| panic!("no {at:?} on {screen}"));
        let (row, column) = (row as u16, column as u16);
        let world = self.model.world(Some(&self.detail), self.at_ms);
        let event = MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE };
        mouse::handle(&mut self.view, event, world.as_ref());
    }

    fn write(&mut self, text: &str) {
        text.chars().for_each(|letter| drop(self.press(KeyCode::Char(letter))));
    }
}

fn shown() -> Shown {
    Shown::new(welcome(), overview())
}

/// An error about a GPU of job 18.
fn finding(kind: FindingKind, reason: &str, gpu: &str) -> Finding {
    Finding {
        key: format!("{}/18/{gpu}", kind.name()).as_str().into(),
        kind,
        severity: FindingSeverity::Error,
        confidence_pct: 95,
        jobs: vec![id(18)],
        nodes: Vec::new(),
        gpus: vec![FindingGpu::new(&"gpu-01".parse().unwrap(), &GpuUuid::new(gpu), None)],
        title: reason.into(),
        reason: reason.into(),
        evidence: Vec::new(),
        advice: "".into(),
        since_ms: NOW_MS,
        or_earlier: false,
        found_ms: NOW_MS,
        ended_ms: None,
        silenced_until_ms: None,
        wasted_gpus: 0,
        capture: None,
        wasted_before: None,
    }
}

#[test]
fn jobs_that_need_attention_come_first_and_their_state_is_whole_on_80_columns() {
    let healthy = || (1..=9).map(|number| job(number, "a-job-with-a-rather-long-name", &[]));
    let mut ended = job(10, "over", &[]);
    ended.state = JobState::Ended("FAILED".into());
    let hung = finding(FindingKind::CollectiveHang, "2 of 8 GPUs idle for long", "GPU-5");
    let jobs = healthy().chain([job(18, "eval", &[]), ended]).collect();
    let picture = Picture { jobs, findings: vec![hung], nodes: Vec::new(), ..overview() };
    let screen = Shown::new(welcome(), picture).screen(80, 40);
    let row = |text: &str| screen.lines().position(|line| line.contains(text));
    assert!(row(" eval ").unwrap() < row(" a-job").unwrap(), "{screen}");
    assert!(row(" over ").unwrap() > row(" eval ").unwrap() + 9, "the head names what failed: {screen}");
    assert!(row("2 of 8 GPUs idle for long").is_some(), "{screen}");
    assert!(screen.contains("23 h left"), "{screen}");
}

#[test]
fn jobs_of_one_severity_are_in_the_order_of_the_pages_list() {
    let found = |job: u32, wasted_gpus| Finding {
        jobs: vec![id(job)],
        wasted_gpus,
        ..finding(FindingKind::CollectiveHang, "looks hung", "GPU-5")
    };
    let jobs = vec![job(17, "minor", &[]), job(18, "major", &[])];
    let findings = vec![found(17, 1), found(18, 16)];
    let picture = Picture { jobs, findings, nodes: Vec::new(), ..overview() };
    let screen = Shown::new(welcome(), picture).screen(120, 40);
    let row = |text: &str| screen.lines().position(|line| line.contains(text)).unwrap();
    assert!(row(" major ") < row(" minor "), "{screen}");
}

#[test]
fn gpus_of_jobs_are_named_as_such_where_the_nodes_have_more() {
    let head = |nodes: Vec<NodePicture>| {
        let screen = Shown::new(welcome(), Picture { nodes, ..overview() }).screen(120, 40);
        screen.lines().nth(1).unwrap().to_owned()
    };
    assert!(head(vec![busy(), silent()]).contains(" GPUs · "));
    let mut more = silent();
    more.gpus.push(gpu(6, None, 0));
    assert!(head(vec![busy(), more]).contains(" GPUs of jobs · "));
}

#[test]
fn what_slows_a_gpu_down_is_one_finding_with_it_as_in_the_page() {
    let found = finding;
    let slow = || found(FindingKind::Straggler, "GPU 5 slow", "GPU-5");
    let state = |findings: Vec<Finding>| {
        let screen = Shown::new(welcome(), Picture { findings, ..overview() }).screen(120, 40);
        screen.lines().find(|line| line.contains(" eval ")).unwrap().to_owned()
    };
    let one = state(vec![found(FindingKind::Thermal, "GPU 5 hot", "GPU-5"), slow()]);
    assert!(one.contains("GPU 5 slow ") && !one.contains('+'), "{one}");
    let two = state(vec![slow(), found(FindingKind::Thermal, "GPU 6 hot", "GPU-6")]);
    assert!(two.contains(" +1"), "{two}");
}

#[test]
fn a_node_is_as_ill_as_the_findings_that_affect_it() {
    let mut found = finding(FindingKind::CollectiveHang, "looks hung", "GPU-5");
    found.nodes = vec!["gpu-03".parse().unwrap()];
    let mut damaged = finding(FindingKind::MemoryErrors, "GPU 7 memory error", "GPU-7");
    damaged.severity = FindingSeverity::Warning;
    let mut node = busy();
    node.name = "gpu-03".parse().unwrap();
    node.gpus = vec![gpu(7, Some(18), 97), gpu(8, Some(18), 97)];
    node.gpus.iter_mut().for_each(|gpu| gpu.row.set(GpuField::EccUncorrected, Cell::steps(1)));
    let shown = |findings: Vec<Finding>| {
        let picture = Picture { findings, nodes: vec![node.clone()], ..overview() };
        let screen = Shown::new(welcome(), picture).screen(120, 40);
        let signs = ["gpu-03  ", "GPU 7  ", "GPU 8  "].map(|row| {
            let line = screen.lines().find(|line| line.contains(row)).unwrap_or_default();
            line.chars().find(|letter| "▲◆●".contains(*letter))
        });
        signs.map(Option::unwrap_or_default)
    };
    assert_eq!(shown(vec![]), ['◆', '◆', '◆'], "an error that may be older than the job");
    assert_eq!(shown(vec![damaged.clone()]), ['◆', '◆', '◆']);
    damaged.severity = FindingSeverity::Error;
    assert_eq!(shown(vec![damaged.clone()])[1..], ['▲', '◆'], "one of the job");
    assert_eq!(shown(vec![found.clone()]), ['▲', '◆', '◆'], "no node of a job that hangs is well");
    found.silenced_until_ms = Some(u64::MAX);
    assert_eq!(shown(vec![found])[0], '◆');
}

#[test]
fn the_name_of_a_job_is_whole_where_there_is_room_for_it() {
    let mut picture = overview();
    picture.jobs[0].name = "mixtral-8x7b-sft".into();
    let mut shown = Shown::new(welcome(), picture);
    for width in [80, 100, 120, 160] {
        let screen = shown.screen(width, 24);
        assert!(screen.contains(" mixtral-8x7b-sft ") && screen.contains(" 2 active jobs "), "{screen}");
    }
}

#[test]
fn the_smallest_screen_shows_one_pane() {
    let mut shown = shown();
    insta::assert_snapshot!("jobs_40x12", shown.screen(40, 12));
    shown.press(KeyCode::Enter);
    insta::assert_snapshot!("gpus_40x12", shown.screen(40, 12));
}

#[test]
fn an_ordinary_screen_shows_all_panes() {
    insta::assert_snapshot!("all_80x24", shown().screen(80, 24));
}

#[test]
fn a_large_screen_shows_all_columns() {
    insta::assert_snapshot!("all_200x50", shown().screen(200, 50));
}

#[test]
fn every_size_is_drawn_and_too_small_says_so() {
    let mut shown = shown();
    for overlay in [None, Some('?')] {
        overlay.map(|key| shown.press(KeyCode::Char(key)));
        for (width, height) in (1..60).flat_map(|width| (1..30).map(move |height| (width * 4, height * 2))) {
            let screen = shown.screen(width, height);
            let is_small = width < draw::MIN_SIZE.0 || height < draw::MIN_SIZE.1;
            assert_eq!(
                screen.contains("nodeglass") || overlay.is_some(),
                !is_small || overlay.is_some(),
                "{width} × {height}"
            );
        }
    }
    assert!(
        shown.screen(39, 12).contains("40 × 12 needed") && shown.screen(39, 12).contains("this is 39 × 12")
    );
}

#[test]
fn a_missing_value_is_never_zero_and_says_why_it_is_missing() {
    let mut shown = shown();
    let screen = shown.screen(200, 50);
    let row = screen.lines().find(|line| line.contains(" GPU 2 ")).unwrap();
    assert!(row.contains("n/a") && row.contains("err/400") && row.contains('–'), "{row}");
    assert!(!row.contains(" 0 "), "{row}");
}

#[test]
fn a_silent_node_is_shown_with_the_age_of_its_values() {
    let screen = shown().screen(200, 50);
    let node = screen.lines().find(|line| line.contains("gpu-02  silent")).unwrap();
    assert!(node.contains("▲ gpu-02  silent, stale 42 s"), "{node}");
    let row = screen.lines().find(|line| line.contains(" GPU 5 ")).unwrap();
    assert!(row.contains("○ GPU 5") && row.contains("stale 42 s"), "{row}");
}

#[test]
fn a_lost_connection_is_named_and_values_age() {
    let mut shown = shown();
    shown.model.apply(Update::Lost("the relay (pid 7) was stopped".to_owned()), 1_000);
    shown.at_ms = 31_000;
    let screen = shown.screen(120, 40);
    assert!(screen.contains("▲ the relay (pid 7) was stopped; retrying for 30 s"), "{screen}");
    assert!(screen.contains("stale 31 s"), "{screen}");
}

#[test]
fn an_action_whose_response_is_lost_with_the_connection_is_mentioned_once() {
    let mut model = shown().model;
    let lost = || Update::Lost("the relay (pid 7) was stopped".to_owned());
    model.expect_response(1);
    model.expect_response(2);
    let response = ServerMessage::Response { number: 1, response: Response::Done("sent".into()) };
    assert!(matches!(model.apply(Update::Message(Box::new(response)), 0), Effect::Answer(1, _)));
    assert_eq!(model.apply(lost(), 1_000), Effect::Unanswered);
    assert_eq!(model.apply(lost(), 2_000), Effect::Redraw);
}

#[test]
fn a_filter_keeps_what_contains_it_and_escape_clears_it() {
    let mut shown = shown();
    shown.press(KeyCode::Char('/'));
    shown.write("EVAL");
    assert!(shown.screen(80, 24).contains("/EVAL"));
    shown.press(KeyCode::Enter);
    let screen = shown.screen(80, 24);
    assert!(screen.contains("Jobs 1, filter \"EVAL\"") && !screen.contains("train-llm"), "{screen}");
    shown.press(KeyCode::Esc);
    assert!(shown.screen(80, 24).contains("train-llm"));
}

#[test]
fn a_filter_without_a_hit_says_so() {
    let mut shown = shown();
    shown.press(KeyCode::Tab);
    shown.press(KeyCode::Tab);
    shown.press(KeyCode::Char('/'));
    shown.write("carol");
    shown.press(KeyCode::Enter);
    let screen = shown.screen(120, 40);
    assert!(screen.contains("nothing matches \"carol\"; Esc clears the filter"), "{screen}");
    assert!(!screen.contains("no process on these GPUs"), "{screen}");
}

#[test]
fn the_node_that_is_looked_at_stays_when_another_is_listed_above_it() {
    let followed = |panes: usize| {
        let mut shown = shown();
        (0..panes).for_each(|_| drop(shown.press(KeyCode::Tab)));
        let mut first = silent();
        first.name = "gpu-00".parse().unwrap();
        let mut picture = overview();
        picture.nodes.insert(0, first);
        shown.snapshot(Topic::Overview, 3, picture);
        shown.screen(120, 40);
        let world = shown.model.world(Some(&shown.detail), 0).unwrap();
        shown.view.detail(&world, &shown.view.contents(&world))
    };
    let node = |name: &str| Some(Topic::Node(name.parse().unwrap()));
    assert_eq!(followed(0), node("gpu-00"), "nothing was chosen yet");
    assert_eq!((followed(1), followed(2)), (node("gpu-01"), node("gpu-01")));
}

#[test]
fn lines_that_no_other_list_needs_show_more_jobs() {
    let mut picture = overview();
    picture.jobs = (1..=9).map(|number| job(number, &format!("short-{number}"), &["gpu-02"])).collect();
    picture.nodes.remove(0);
    let mut shown = Shown::new(welcome(), picture);
    shown.press(KeyCode::Char('a'));
    let screen = shown.screen(80, 24);
    assert!((1..=9).all(|number| screen.contains(&format!("short-{number}"))), "{screen}");
}

#[test]
fn enter_opens_a_job_its_node_and_a_gpu_and_escape_goes_back() {
    let mut shown = shown();
    shown.press(KeyCode::Down);
    shown.press(KeyCode::Enter);
    assert!(shown.screen(120, 40).contains("━━ GPUs 4 of job 17 on 1 node"));
    shown.press(KeyCode::Down);
    shown.press(KeyCode::Enter);
    assert!(shown.screen(120, 40).contains("━━ Processes 1 on gpu-01 GPU 0 by node and GPU"));
    // A process of bob: its job's other GPUs are not listed.
    shown.press(KeyCode::Esc);
    shown.press(KeyCode::Esc);
    assert!(shown.screen(120, 40).contains("━━ GPUs 4 of job 17"));
    shown.press(KeyCode::Esc);
    assert!(shown.screen(120, 40).contains("━━ Jobs 3"));
}

#[test]
fn processes_are_sorted_by_the_letters_of_nvitop() {
    let mut shown = shown();
    let order = |shown: &mut Shown| -> Vec<&'static str> {
        let screen = shown.screen(200, 50);
        let pids = screen.lines().filter_map(|line| {
            ["4711", "4650", "99"].into_iter().find(|pid| line.contains(&format!(" {pid} ")))
        });
        pids.collect()
    };
    assert_eq!(order(&mut shown), ["4711", "4650", "99"]);
    shown.write("op");
    assert_eq!(order(&mut shown), ["99", "4650", "4711"]);
    shown.write("oP");
    assert_eq!(order(&mut shown), ["4711", "4650", "99"]);
    shown.write("osr");
    // By SM time: missing values last, and reversed first.
    assert_eq!(order(&mut shown), ["99", "4711", "4650"]);
}

#[test]
fn a_signal_is_sent_only_after_confirmation_and_to_own_processes() {
    let mut shown = shown();
    shown.press(KeyCode::Tab);
    shown.press(KeyCode::Tab);
    assert_eq!(shown.press(KeyCode::Char('T')), None);
    assert!(shown.screen(120, 40).contains("Send SIGTERM to pid 4711 on gpu-01?"));
    assert_eq!(shown.press(KeyCode::Char('n')), None);
    assert!(!shown.screen(120, 40).contains("SIGTERM"));
    shown.press(KeyCode::Char('K'));
    let process = ProcessRef { pid: 4_711, started_ms: (WALL_S as u64 - 600) * 1_000 };
    let request = Request::Signal { node: "gpu-01".parse().unwrap(), process, signal: Signal::Kill };
    assert_eq!(shown.press(KeyCode::Char('y')), Some(Command::Request(request)));
    shown.press(KeyCode::End);
    shown.press(KeyCode::Char('I'));
    assert!(shown.screen(120, 40).contains("◆ pid 99 is bob's, not yours"));
}

#[test]
fn a_read_only_relay_refuses_signals() {
    let mut shown = Shown::new(Welcome { may_act: false, ..welcome() }, overview());
    shown.press(KeyCode::Tab);
    shown.press(KeyCode::Tab);
    assert_eq!(shown.press(KeyCode::Char('T')), None);
    assert!(shown.screen(120, 40).contains("◆ this relay was started with --read-only"));
}

#[test]
fn a_users_only_job_is_selected_at_first() {
    let mut picture = overview();
    picture.jobs.truncate(1);
    assert!(Shown::new(welcome(), picture).screen(120, 40).contains("GPUs 4 of job 17"));
}

#[test]
fn without_slurm_there_is_no_list_of_jobs() {
    let mut picture = overview();
    picture.jobs.clear();
    picture.relay.jobs = JobsHealth::NoSlurm;
    let screen = Shown::new(welcome(), picture).screen(80, 24);
    assert!(!screen.contains("Jobs") && screen.contains("━━ GPUs"), "{screen}");
}

#[test]
fn a_recording_is_not_live() {
    let of = |speed_pct| {
        let mut picture = overview();
        picture.relay.replay = Some(ReplayStatus { speed_pct, ..ReplayStatus::default() });
        Shown::new(welcome(), picture).screen(80, 24)
    };
    let first = |speed_pct| of(speed_pct).lines().next().unwrap().trim_matches('"').to_owned();
    assert!(first(100).ends_with("● recording"), "{}", first(100));
    assert!(first(0).ends_with("recording, paused"), "{}", first(0));
}

#[test]
fn a_missed_delta_is_noticed_and_the_topic_requested_again() {
    let mut model = shown().model;
    let mut delta = |seq| {
        let delta = Delta { topic: 1, seq, elapsed_ms: 1_000, changes: Vec::new() };
        model.apply(Update::Message(Box::new(ServerMessage::Delta(delta))), 0)
    };
    assert_eq!(delta(1), Effect::Redraw);
    assert_eq!(delta(3), Effect::Resync(Topic::Overview));
    assert_eq!(delta(4), Effect::Nothing, "until the snapshot is there");
    // Nobody heard it: the next delta asks again.
    model.resync_was_refused(&Topic::Overview);
    let later = Delta { topic: 1, seq: 5, elapsed_ms: 1_000, changes: Vec::new() };
    let effect = model.apply(Update::Message(Box::new(ServerMessage::Delta(later))), 0);
    assert_eq!(effect, Effect::Resync(Topic::Overview));
}

#[test]
fn no_screen_depends_on_colour() {
    let shown = shown();
    let world = shown.model.world(Some(&shown.detail), 0).unwrap();
    let scene =
        |palette| Scene { model: &shown.model, world: Some(&world), at_ms: 0, palette, is_ascii: false };
    let text = |palette| {
        let lines = draw::everything(&mut View::default().printed(), &world, scene(palette), 160);
        lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(text(Palette::Plain), text(Palette::Indexed));
    assert_eq!(text(Palette::Plain), text(Palette::Light));
    assert!(text(Palette::Basic).contains("◆ GPU 1") && text(Palette::Basic).contains("!THERM"));
}
