//! Layouts, options and the mouse, and hostile texts.

use super::*;
use crate::view::View;
use nodeglass_config::{Layout, TopArgs};
use nodeglass_protocol::finding::{Finding, FindingGpu, FindingKind};

/// Twelve jobs, of which three have ended.
fn many_jobs() -> Picture {
    let mut picture = overview();
    picture.jobs = (1..=12).map(|number| job(number, &format!("job-{number}"), &["gpu-01"])).collect();
    for job in &mut picture.jobs[9..] {
        job.state = JobState::Ended("COMPLETED".into());
    }
    picture
}

#[test]
fn a_compact_screen_shows_the_most_of_the_list_that_has_the_keys() {
    let mut shown = Shown::new(welcome(), many_jobs());
    let count = |screen: &str| screen.lines().filter(|line| line.contains("job-")).count();
    assert_eq!(count(&shown.screen(80, 24)), 12, "{}", shown.screen(80, 24));
    let screen = shown.screen(80, 24);
    assert!(screen.contains("── GPUs 5 on 2 nodes") && screen.contains("── Processes 3"), "{screen}");
    shown.press(KeyCode::Tab);
    let screen = shown.screen(80, 24);
    assert!(count(&screen) < 8 && screen.contains("GPU 5") && screen.contains("MEMORY GiB"), "{screen}");
    shown.view.layout = Layout::Full;
    let screen = shown.screen(80, 24);
    assert!(screen.matches("  STATE ").count() == 1 && screen.contains("COMMAND"), "{screen}");
    // `m` goes on to compact, also on a large screen.
    shown.press(KeyCode::Char('m'));
    assert!(shown.screen(120, 40).contains("layout: compact") && shown.view.layout == Layout::Compact);
}

#[test]
fn ended_jobs_are_hidden_by_option_and_by_key() {
    let mut shown = Shown::new(welcome(), many_jobs());
    shown.view.hides_ended = View::new(&TopArgs { hide_ended: true, ..TopArgs::default() }).hides_ended;
    let screen = shown.screen(120, 40);
    assert!(screen.contains("━━ Jobs 9, ended ones hidden, SLURM 4 s ago"), "{screen}");
    assert!(screen.contains("job-9 ") && !screen.contains("job-10"), "{screen}");
    shown.press(KeyCode::Char('E'));
    assert!(shown.screen(120, 40).contains("job-10"));
}

#[test]
fn titles_state_the_age_of_jobs_and_readings() {
    let mut shown = shown();
    shown.at_ms = 2_000;
    let screen = shown.screen(80, 24);
    assert!(screen.contains("Jobs 3, SLURM 6 s ago"), "{screen}");
    // The silent node has its age in its rows.
    assert!(screen.contains("GPUs 5 on 2 nodes, read 2 s ago"), "{screen}");
}

#[test]
fn gpus_and_processes_of_the_command_line_alone_are_listed_and_named() {
    let mut shown = shown();
    shown.view =
        View::new(&TopArgs { only: vec![1, 3], pids: vec![4_650], compute: true, ..TopArgs::default() });
    let screen = shown.screen(120, 40);
    assert!(screen.contains("GPUs 2 on 2 nodes, only 1 3"), "{screen}");
    assert!(
        screen.contains(" GPU 1 ") && screen.contains("└3g.40gb") && !screen.contains(" GPU 0 "),
        "{screen}"
    );
    assert!(screen.contains("Processes 1 on gpu-01 by node and GPU, compute, pid 4650"), "{screen}");
    shown.view.only.graphics = true;
    shown.view.only.compute = false;
    assert!(shown.screen(120, 40).contains("no such process on these GPUs: graphics, pid 4650"));
}

#[test]
fn full_memory_is_marked_by_shape_and_word() {
    let mut picture = overview();
    let used = |picture: &mut Picture, index: usize, gib: u32| {
        picture.nodes[0].gpus[index].row.set(GpuField::MemUsed, Cell::steps(gib * GIB));
    };
    used(&mut picture, 0, 79);
    used(&mut picture, 1, 60);
    let mut shown = Shown::new(welcome(), picture.clone());
    shown.snapshot(Topic::Node("gpu-01".parse().unwrap()), 2, Picture { jobs: Vec::new(), ..picture });
    let screen = shown.screen(200, 50);
    let row = |gpu: &str| screen.lines().find(|line| line.contains(gpu)).unwrap().to_owned();
    assert!(row(" GPU 0 ").contains("!    79.0/80") && row(" GPU 0 ").contains("mem high"), "{screen}");
    assert!(row(" GPU 1 ").contains("·     60.0/80") && !row(" GPU 1 ").contains("mem high"), "{screen}");
    assert!(!row(" GPU 2 ").contains("mem high"), "{screen}");
}

#[test]
fn an_ascii_screen_has_no_other_character_and_the_same_columns() {
    let mut shown = shown();
    let unicode = shown.screen(120, 40);
    shown.is_ascii = true;
    let ascii = shown.screen(120, 40);
    assert!(ascii.is_ascii(), "{ascii}");
    let widths = |screen: &str| screen.lines().map(|line| line.chars().count()).collect::<Vec<_>>();
    assert_eq!(widths(&unicode), widths(&ascii));
    assert!(ascii.contains("! GPU 1") && ascii.contains("== Jobs 3"), "{ascii}");
}

#[test]
fn the_mouse_selects_scrolls_and_sorts() {
    let mut shown = shown();
    let click = MouseEventKind::Down(MouseButton::Left);
    shown.mouse(click, "eval");
    assert!(shown.screen(120, 40).contains("GPUs 1 of job 18 on 1 node"));
    shown.mouse(MouseEventKind::ScrollUp, "eval");
    assert!(shown.screen(120, 40).contains("GPUs 5 on 2 nodes"), "three rows up");
    shown.mouse(click, " GPU 1 ");
    assert!(shown.screen(120, 40).contains("━━ GPUs 5") && shown.screen(120, 40).contains("▸◆ GPU 1"));
    shown.mouse(click, "PID");
    assert!(shown.screen(120, 40).contains("━━ Processes 3 on gpu-01 by pid"));
    shown.mouse(click, "PID");
    assert!(shown.screen(120, 40).contains("by pid, reversed"));
    // A title, and what is below the last row, select nothing; the help is scrolled.
    shown.mouse(click, "Processes");
    shown.press(KeyCode::Char('?'));
    shown.mouse(MouseEventKind::ScrollDown, "row above");
    assert!(!shown.screen(120, 40).contains("row above"));
}

#[test]
fn ctrl_c_interrupts_an_own_selected_process_and_otherwise_quits() {
    let ctrl_c = |shown: &mut Shown| shown.press_with(KeyCode::Char('c'), KeyModifiers::CONTROL);
    let mut shown = shown();
    assert_eq!(ctrl_c(&mut shown), Some(Command::Quit), "no process is selected");
    shown.press(KeyCode::Tab);
    shown.press(KeyCode::Tab);
    assert_eq!(ctrl_c(&mut shown), None);
    assert!(shown.screen(120, 40).contains("Send SIGINT to pid 4711 on gpu-01?"));
    assert_eq!(ctrl_c(&mut shown), Some(Command::Quit), "pressed again");
    shown.press(KeyCode::Esc);
    shown.press(KeyCode::End);
    assert_eq!(ctrl_c(&mut shown), Some(Command::Quit), "a process of bob");
    let mut read_only = Shown::new(Welcome { may_act: false, ..welcome() }, overview());
    read_only.press(KeyCode::Tab);
    read_only.press(KeyCode::Tab);
    assert_eq!(ctrl_c(&mut read_only), Some(Command::Quit));
}

#[test]
fn t14_nothing_that_a_job_or_node_states_reaches_the_terminal_as_an_escape() {
    let mut picture = overview();
    let job = &mut picture.jobs[0];
    (job.name, job.partition, job.user) = ("HOSTILE".into(), "HOSTILE".into(), "HOSTILE".into());
    picture.relay.notices = vec!["HOSTILE".into()];
    let node = &mut picture.nodes[0];
    node.gpus[0].facts.name = Reading::Value("HOSTILE".into());
    node.gpus[1].fault = Some("HOSTILE".into());
    node.head.no_gpu = Some("HOSTILE".into());
    let mut process = process(0, 4_711, "HOSTILE", Some(0));
    process.facts.args = Reading::Value("HOSTILE".into());
    node.processes = vec![process];
    // Decoded, as from the wire: whatever its sender put into it.
    let hostile = serde_json::to_string("\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}\r\n\u{200b}").unwrap();
    let json = serde_json::to_string(&picture).unwrap().replace("\"HOSTILE\"", &hostile);
    let decoded = || serde_json::from_str::<Picture>(&json).unwrap();
    let mut shown = Shown::new(welcome(), decoded());
    shown.snapshot(Topic::Node("gpu-01".parse().unwrap()), 2, decoded());
    let screen = shown.screen(200, 50);
    let is_harmful = |letter: char| letter.is_control() || "\u{202e}\u{200b}".contains(letter);
    assert!(screen.lines().all(|line| !line.contains(is_harmful)), "{screen:?}");
    assert!(screen.matches("owned").count() > 4, "{screen}");
    let world = shown.model.world(Some(&shown.detail), 0).unwrap();
    let scene = Scene {
        model: &shown.model,
        world: Some(&world),
        at_ms: 0,
        palette: Palette::Plain,
        is_ascii: false,
    };
    let lines = draw::everything(&mut View::default().printed(), &world, scene, 200);
    let mut printed = lines.iter().flat_map(|line| &line.spans);
    assert!(printed.all(|span| !span.content.contains(is_harmful)));
}

#[test]
fn a_job_that_failed_is_named_in_the_head_and_says_how() {
    let mut picture = overview();
    let mut failed = job(19, "pretrain", &["gpu-01"]);
    (failed.state, failed.ended) = (JobState::Ended("OUT_OF_MEMORY".into()), Some(WALL_S - 120));
    let finding = nodeglass_rules::outcome::finding(&failed).unwrap();
    picture.jobs.push(failed);
    let screen = |findings| Shown::new(welcome(), Picture { findings, ..picture.clone() }).screen(120, 40);
    let shown = screen(vec![finding.clone()]);
    assert!(shown.lines().nth(1).unwrap().contains("▲ pretrain ended: out of host memory"), "{shown}");
    let row = shown.lines().find(|line| line.contains(" pretrain ") && line.contains("19")).unwrap();
    assert!(row.contains("▲") && row.contains("out of host memory"), "{row}");
    let other = Finding { key: "failed/20/1".into(), jobs: vec![id(20)], since_ms: 1, ..finding.clone() };
    assert!(screen(vec![other, finding.clone()]).contains("pretrain ended: out of host memory +1"));
    let over = screen(vec![Finding { ended_ms: Some(NOW_MS), ..finding }]);
    assert!(
        !over.lines().nth(1).unwrap().contains("pretrain") && over.contains("out of host memory"),
        "{over}"
    );
}

#[test]
fn a_gpu_of_a_silenced_finding_is_not_the_state_of_its_job() {
    let mut picture = overview();
    let state = |picture: &Picture| {
        let screen = Shown::new(welcome(), picture.clone()).screen(120, 40);
        screen.lines().find(|line| line.contains("train-llm-7b")).unwrap().to_owned()
    };
    assert!(state(&picture).contains("GPU 3 cannot be read"));
    let node = picture.nodes.iter().find(|node| node.name.as_str() == "gpu-01").unwrap();
    let lost = node.gpus.iter().find(|gpu| gpu.fault.is_some()).unwrap();
    let mut failed = job(17, "train-llm-7b", &["gpu-01"]);
    (failed.state, failed.ended) = (JobState::Ended("OUT_OF_MEMORY".into()), Some(WALL_S));
    let silenced = Finding {
        kind: FindingKind::GpuLost,
        gpus: vec![FindingGpu::new(&node.name, &lost.facts.uuid, None)],
        silenced_until_ms: Some(u64::MAX),
        ..nodeglass_rules::outcome::finding(&failed).unwrap()
    };
    picture.findings.push(silenced);
    assert!(!state(&picture).contains("GPU 3 cannot be read"));
}
