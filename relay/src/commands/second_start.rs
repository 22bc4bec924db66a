//! A start while relays of this user run already: it shows the relay that does as requested, or refuses and says how
//! each differs.
//!
//! A start must never lead to a relay that does something else: somebody who tried `--demo` and then starts the real
//! thing would look at simulated jobs.

use nodeglass_access::key_file::Running;
use nodeglass_app::terminal::Style;
use nodeglass_config::{Difference, Requested, stop_hint};
use nodeglass_rules::text::aligned;
use std::fmt::Write as _;
use std::net::SocketAddr;

/// Decision for a start while other relays of this user run.
#[derive(Debug, PartialEq, Eq)]
pub enum SecondStart<'a> {
    /// Nothing runs that could be meant.
    Start,
    /// This one does what is requested.
    Found(&'a Running),
    /// All do something else; the differences are in the order of the relays.
    Refused(Vec<Vec<Difference>>),
}

/// Compares a request with the running relays.
pub fn decide<'a>(running: &'a [Running], requested: &Requested) -> SecondStart<'a> {
    if running.is_empty() {
        return SecondStart::Start;
    }
    let differences: Vec<_> =
        running.iter().map(|relay| requested.differences(&relay.requested_watch, &relay.settings)).collect();
    match differences.iter().position(Vec::is_empty) {
        Some(same) => SecondStart::Found(&running[same]),
        None => SecondStart::Refused(differences),
    }
}

/// The message of a refused start. `args` is the command line without the program's name.
pub fn refusal(
    running: &[Running],
    differences: &[Vec<Difference>],
    requested: &Requested,
    args: &[String],
    style: Style,
) -> String {
    let mut out = String::from("relay: a relay of yours is already running, but not as requested here\n\n");
    for (relay, differences) in running.iter().zip(differences) {
        let mut rows = vec![[String::new(), format!("running (pid {})", relay.pid), "requested".to_owned()]];
        rows.extend(differences.iter().map(|difference| {
            let running = difference.running.as_deref().unwrap_or(&relay.watches);
            let or_unset =
                |value: &str| if value.is_empty() { "not set".to_owned() } else { value.to_owned() };
            [difference.name.clone(), or_unset(running), or_unset(&difference.requested)]
        }));
        for (row, line) in aligned(&rows, |_| false).into_iter().enumerate() {
            let _ = writeln!(out, "  {}", if row == 0 { style.dim(&line) } else { line });
        }
        out.push('\n');
    }
    let pids: Vec<_> = running.iter().map(|relay| relay.pid).collect();
    let mut rows = vec![("to open it", "relay link".to_owned()), ("to stop it", stop_hint(&pids))];
    // An account runs one relay of a site.
    if args.first().is_none_or(|command| command != "site") {
        rows.push(("to run both", another(args, requested, running)));
    }
    for (name, value) in rows {
        let _ = writeln!(out, "  {} {value}", style.dim(&format!("{name:<12}")));
    }
    out
}

/// A command line that starts another relay beside the running ones: the given one, with `--new` and,
/// where the address is taken, a free one.
pub fn another(args: &[String], requested: &Requested, running: &[Running]) -> String {
    let wanted = requested.settings.get("bind").map(String::as_str).unwrap_or_default();
    let taken: Vec<_> = running.iter().flat_map(|relay| &relay.addresses).map(String::as_str).collect();
    let mut words = vec!["relay".to_owned()];
    let collides = wanted.split(", ").find(|addr| taken.contains(addr));
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--new" => {}
            "--bind" if collides.is_some() => drop(args.next()),
            bind if collides.is_some() && bind.starts_with("--bind=") => {}
            other => words.push(quoted(other)),
        }
    }
    words.push("--new".to_owned());
    if let Some(addr) = collides {
        words.extend(["--bind".to_owned(), quoted(&next_free(addr, &taken))]);
    }
    words.join(" ")
}

/// The next port, or Unix socket, that no relay of ours occupies.
fn next_free(addr: &str, taken: &[&str]) -> String {
    let candidates = (1_u16..1_000).map(|step| match addr.parse::<SocketAddr>() {
        Ok(at) => SocketAddr::new(at.ip(), at.port().checked_add(step).unwrap_or(8_080 + step)).to_string(),
        Err(_) => format!("{addr}.{}", step + 1),
    });
    let mut free = candidates.filter(|addr| !taken.contains(&addr.as_str()));
    free.next().unwrap_or_else(|| addr.to_owned())
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&b);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_config::{Request, read};

    fn request(args: &[&str]) -> Requested {
        let line = ["relay", "--config", "/dev/null"].iter().chain(args);
        let Ok(Request::Run { requested, .. }) = read(line.map(Into::into)) else { panic!("{args:?}") };
        requested
    }

    fn relay(pid: u32, args: &[&str], address: &str) -> Running {
        let requested = request(args);
        Running {
            pid,
            version: "0.1.0".into(),
            since_s: 0,
            watches: requested.watch.clone(),
            requested_watch: requested.watch,
            settings: requested.settings,
            addresses: vec![address.into()],
            links: Vec::new(),
            tunnel: String::new(),
            own_tunnel: None,
            is_socket_in_shared_place: false,
            read_only: false,
        }
    }

    fn refused(running: &[Running], args: &[&str]) -> String {
        let requested = request(args);
        let SecondStart::Refused(differences) = decide(running, &requested) else { panic!("{args:?}") };
        let args: Vec<_> = args.iter().map(ToString::to_string).collect();
        refusal(running, &differences, &requested, &args, Style::default())
    }

    #[test]
    fn a_real_start_is_not_led_to_a_demo() {
        let demo = [relay(4711, &["--demo"], "127.0.0.1:8080")];
        assert_eq!(
            refused(&demo, &[]),
            "\
relay: a relay of yours is already running, but not as requested here

            running (pid 4711)          requested
  watching  a simulated cluster (demo)  your SLURM jobs

  to open it   relay link
  to stop it   press Ctrl-C in the relay's terminal, or run `kill 4711`
  to run both  relay --new --bind 127.0.0.1:8081
"
        );
        assert!(
            matches!(decide(&demo, &request(&["--demo"])), SecondStart::Found(relay) if relay.pid == 4711)
        );
        assert_eq!(decide(&[], &request(&[])), SecondStart::Start);
    }

    #[test]
    fn the_relay_that_does_what_is_requested_is_found_among_several() {
        let both = [relay(1, &["--demo"], "127.0.0.1:8080"), relay(2, &[], "127.0.0.1:8081")];
        assert!(matches!(decide(&both, &request(&[])), SecondStart::Found(relay) if relay.pid == 2));
        let text = refused(&both, &["--local"]);
        assert!(text.contains("running (pid 1)") && text.contains("running (pid 2)"), "{text}");
        let site = refusal(&both, &[], &request(&[]), &["site".to_owned()], Style::default());
        assert!(!site.contains("--new"), "an account runs one relay of a site: {site}");
        assert!(text.ends_with("relay --local --new --bind 127.0.0.1:8082\n"), "{text}");
        assert!(text.contains("`kill 1 2`"), "{text}");
    }

    #[test]
    fn the_command_for_a_second_relay_can_be_copied() {
        let running = [relay(1, &["--demo"], "127.0.0.1:8080"), relay(2, &[], "unix:/run/x y.sock")];
        let another = |args: &[&str]| {
            let words: Vec<_> = args.iter().map(ToString::to_string).collect();
            another(&words, &request(args), &running)
        };
        assert_eq!(another(&["--demo", "--new"]), "relay --demo --new --bind 127.0.0.1:8081");
        assert_eq!(another(&["--bind", "127.0.0.1:9", "--demo"]), "relay --bind 127.0.0.1:9 --demo --new");
        assert_eq!(another(&["--bind=localhost:8080"]), "relay --new --bind 127.0.0.1:8081");
        assert_eq!(
            another(&["--bind", "unix:/run/x y.sock", "--demo"]),
            "relay --demo --new --bind 'unix:/run/x y.sock.2'"
        );
    }
}
