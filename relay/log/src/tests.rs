//! A flood of events yields a small file, few lines on the screen, and a count of the rest.

use super::*;
use nodeglass_access::runtime_dir::{Places, RuntimeDir};
use std::io;

/// A screen that a test can read.
#[derive(Clone, Default)]
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Screen {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// The output and the stored log of the events that `emit` logs.
fn logged(shown: Level, log_events: impl FnOnce()) -> (String, String) {
    let base = tempfile::tempdir().unwrap();
    let dir = || RuntimeDir::open(&Places { temporary: base.path().into(), ..Places::default() }).unwrap();
    let screen = Screen::default();
    let log = Log::new(shown, Some(Ring::of(dir(), 7)), Box::new(screen.clone()), false);
    let ending = Ending(log.clone());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(log), log_events);
    drop(ending);
    let in_file = ["7.old.log", "7.log"].map(|name| std::fs::read_to_string(dir().path().join(name)));
    (screen.text(), in_file.into_iter().filter_map(Result::ok).collect())
}

#[test]
fn t25_a_million_warnings_of_a_hostile_node_leave_a_small_file_and_hide_no_other_node() {
    let evil = "x".repeat(100_000);
    let (shown, in_file) = logged(Level::WARN, || {
        for number in 0..1_000_000_u64 {
            tracing::warn!(node.name = "evil-01", number, evil, "it said {number}");
        }
        tracing::warn!(node.name = "good-01", "it is silent");
    });
    for text in [&shown, &in_file] {
        assert!(text.len() < 20_000, "{} bytes", text.len());
        assert!(text.contains("it is silent node.name=good-01"), "{text}");
        let counted = text.lines().filter(|line| line.contains(" more in ")).collect::<Vec<_>>();
        assert!(counted.iter().any(|line| line.contains("like: it said")), "{text}");
    }
}

#[test]
fn a_value_is_formatted_without_a_lock_as_it_may_panic_and_be_logged() {
    struct Checks(Log);
    impl std::fmt::Display for Checks {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "locked: {}", self.0.state.try_lock().is_err())
        }
    }
    let screen = Screen::default();
    let log = Log::new(Level::WARN, None, Box::new(screen.clone()), false);
    let value = Checks(log.clone());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(log), || tracing::warn!("{value}"));
    assert!(screen.text().ends_with("locked: false\n"), "{}", screen.text());
}

#[test]
fn t25_messages_of_a_thousand_kinds_are_bounded_together() {
    let (_, in_file) = logged(Level::WARN, || {
        for number in 0..20_000_u64 {
            let name = format!("evil-{number}");
            tracing::warn!(node.name = %name, "{}", "long ".repeat(2_000));
        }
    });
    assert!((in_file.len() as u64) <= ring::MAX_BYTES, "{} bytes", in_file.len());
    assert!(in_file.lines().count() < 1_000 && in_file.contains("more of other kinds"));
}

#[test]
fn t08_no_key_is_logged_by_any_module() {
    let key = nodeglass_access::new_key().unwrap();
    let link = format!("http://127.0.0.1:8080/#k={}", key.reveal());
    let (shown, in_file) = logged(Level::TRACE, || {
        tracing::error!(%link, ?key, links = ?vec![link.clone()], "at {link} with {key:?}");
    });
    for text in [shown, in_file] {
        assert!(!text.contains(&key.reveal()), "{text}");
        assert!(text.contains("Key(…)"), "{text}");
    }
}

#[test]
fn t14_a_hostile_field_cannot_forge_a_line() {
    let (shown, in_file) = logged(Level::INFO, || {
        let error = io::Error::other("gone\n2026-01-01T00:00:00Z ERROR forged\x1b[2J");
        tracing::info!(why = %error, error = &error as &dyn std::error::Error, "no\rlist");
    });
    for text in [shown, in_file] {
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.trim_end().chars().any(char::is_control), "{text:?}");
    }
}

#[test]
fn the_file_holds_lines_below_the_terminals_level() {
    let (shown, in_file) = logged(Level::ERROR, || {
        tracing::info!("it started");
        tracing::debug!("a detail");
    });
    assert_eq!(shown, "");
    assert!(in_file.contains(" INFO it started\n") && !in_file.contains("detail"), "{in_file}");
}

/// An output that waits while the lock is held, as a paused terminal does.
struct Paused(Arc<Mutex<()>>, Screen);

impl Write for Paused {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _resumed = self.0.lock().unwrap();
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn t20_a_paused_terminal_stops_no_thread_that_logs() {
    let (screen, pause) = (Screen::default(), Arc::new(Mutex::new(())));
    let paused = pause.lock().unwrap();
    let output = on_thread(Paused(pause.clone(), screen.clone()));
    let log = Log::new(Level::WARN, None, output, false);
    let ending = Ending(log.clone());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(log), || {
        for number in 0..2 * MAX_WAITING {
            tracing::warn!(node.name = %format!("node-{number}"), "it is silent");
        }
    });
    assert_eq!(screen.text(), "");
    drop(paused);
    drop(ending);
    assert!(screen.text().contains("it is silent node.name=node-0"), "{}", screen.text());
}
