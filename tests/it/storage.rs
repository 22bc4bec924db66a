//! A state directory that is full or hangs, and relays that are killed while they write to it: pages and nodes go on, and
//! nothing that was confirmed is lost.

use anyhow::{Context, Result, ensure};
use nodeglass_fleet::{Event, SessionEvent};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::note::{NewNote, NoteRequest, NoteSource};
use nodeglass_protocol::picture::{Link as NodeLink, Picture};
use nodeglass_protocol::probe::ProbeLine;
use nodeglass_protocol::request::{Request, Response};
use nodeglass_recording::Reader;
use nodeglass_tests::client::{Client, Known};
use nodeglass_tests::process::Process;
use nodeglass_tests::relay::{Link, TestRelay};
use nodeglass_tests::{http, skip};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A relay that watches this machine in a mount namespace of its own, so that the test can cover its home.
struct Contained {
    relay: Process,
    link: Link,
    home: TempDir,
    runtime: TempDir,
}

impl Contained {
    /// Stops the relay where it is, and copies its state directory: SQLite opens no file through `/proc`.
    fn stopped_copy(&self) -> Result<(TempDir, PathBuf)> {
        self.relay.signal(Signal::STOP)?;
        let copy = tempfile::tempdir()?;
        let copied = Command::new("cp").arg("-a").arg(self.path(".state")).arg(copy.path()).status()?;
        ensure!(copied.success());
        let state = copy.path().join(".state");
        Ok((copy, state))
    }

    /// Starts it after a shell command within the namespace.
    fn start(prepare: &str, args: &[&str]) -> Result<Self> {
        let (home, runtime) = (tempfile::tempdir()?, tempfile::tempdir()?);
        fs::create_dir(home.path().join(".state"))?;
        // Otherwise the relay would not use it.
        fs::set_permissions(runtime.path(), fs::Permissions::from_mode(0o700))?;
        let relay = TestRelay::command(home.path())?;
        let mut command = Command::new("unshare");
        command
            .env_clear()
            .envs(relay.get_envs().filter_map(|(name, value)| Some((name, value?))))
            // On a login node, it is not in the home directory.
            .envs([("XDG_RUNTIME_DIR", runtime.path()), ("TMPDIR", runtime.path())])
            .current_dir(home.path())
            .args(["--mount", "sh", "-c", &format!("{prepare} && exec \"$0\" \"$@\"")])
            .arg(relay.get_program())
            .args(["--local", "--bind", "127.0.0.1:0"])
            .args(args);
        let mut relay = Process::start(&mut command)?;
        let link = relay.wait_for("a link", Link::find)?;
        Ok(Self { relay, link, home, runtime })
    }

    /// The path of a file in its home, as it sees it.
    fn path(&self, name: &str) -> PathBuf {
        let home = self.home.path().strip_prefix("/").unwrap_or(self.home.path());
        Path::new(&format!("/proc/{}/root", self.relay.pid())).join(home).join(name)
    }

    /// The output of `relay ARGS…`, run by its owner.
    fn run(&self, args: &[&str]) -> Result<String> {
        let mut command = TestRelay::command(self.home.path())?;
        let output = command.env("XDG_RUNTIME_DIR", self.runtime.path()).args(args).output()?;
        ensure!(output.status.success(), "relay {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// A command within its namespace.
    fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.relay.pid().to_string(), program]);
        command
    }
}

fn has_notice(known: &Known, text: &str) -> bool {
    known.picture.relay.notices.iter().any(|notice| notice.as_str().contains(text))
}

/// When the only node was last sampled, if it is live.
fn sampled_ms(picture: &Picture) -> Option<u64> {
    let node = picture.nodes.first().filter(|node| node.head.link == NodeLink::Live)?;
    node.sampled_at_ms
}

/// Waits for samples of the next seconds, which must be those of a live node.
async fn expect_live(client: &mut Client, seconds: u64) -> Result<()> {
    let from_ms = client.picture(&Topic::Overview).and_then(sampled_ms).context("a live node")?;
    let until_ms = from_ms + seconds * 1_000;
    let is_there = |known: &Known| sampled_ms(&known.picture).is_none_or(|at_ms| at_ms >= until_ms);
    let picture = client.until(&Topic::Overview, "samples", is_there).await?;
    ensure!(sampled_ms(picture).is_some(), "the node is {:?}", picture.nodes.first().map(|node| &node.head));
    Ok(())
}

/// Adds a note on this machine; returns whether it is stored.
async fn is_note_stored(client: &mut Client, text: &str) -> Result<bool> {
    let node =
        client.picture(&Topic::Overview).and_then(|picture| picture.nodes.first()).context("a node")?;
    let (node, at_ms) = (Some(node.name.clone()), None);
    let note = NewNote { job: None, node, at_ms, text: text.into(), source: NoteSource::Page };
    match client.request(Request::Note(NoteRequest::Add(note))).await? {
        Response::Note(saved) => Ok(saved.is_stored),
        other => anyhow::bail!("{other:?}"),
    }
}

async fn watch(link: &Link) -> Result<Client> {
    let mut client = Client::connect(link, Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let is_live = |known: &Known| sampled_ms(&known.picture).is_some();
    client.until(&Topic::Overview, "a live node", is_live).await?;
    Ok(client)
}

#[tokio::test]
async fn f24_a_full_disk_is_stated_and_what_waits_is_stored_once_there_is_room() -> Result<()> {
    if !skip::root() {
        return Ok(());
    }
    let mount = "mount -t tmpfs -o size=2m,mode=700 tmpfs \"$XDG_STATE_HOME\"";
    let contained = Contained::start(mount, &["--record", ".state/live.rec"])?;
    let mut client = watch(&contained.link).await?;
    ensure!(is_note_stored(&mut client, "before").await?);
    let mut fill = File::create(contained.path(".state/fill"))?;
    while fill.write_all(&[0; 4_096]).is_ok() {}
    ensure!(!is_note_stored(&mut client, "while it was full").await?, "there is no room for it");
    let said = silence(&contained.link, 2_000_000)?;
    ensure!(said.contains("it is not stored yet"), "{said}");
    let notices =
        ["nothing is recorded at present", "jobs cannot be stored", "silences of findings cannot be stored"];
    let all_stated = |known: &Known| notices.iter().all(|notice| has_notice(known, notice));
    let is_stated = |known: &Known| notices.iter().any(|notice| has_notice(known, notice));
    client.until(&Topic::Overview, "what is not stored", all_stated).await?;
    expect_live(&mut client, 3).await?;
    drop(fill);
    fs::remove_file(contained.path(".state/fill"))?;
    client.until(&Topic::Overview, "that all are stored again", |known| !is_stated(known)).await?;

    // Whatever happens from now on: note and silence are stored, and the recording lacks no sample.
    let (_copy, state) = contained.stopped_copy()?;
    let next = TestRelay::start_in(&["--local"], [("XDG_STATE_HOME", state.as_os_str())])?;
    let notes = next.run(&["note", "--list"])?;
    ensure!(notes.contains("before") && notes.contains("while it was full"), "{notes}");
    let silences = next.run(&["findings", "silences"])?;
    ensure!(silences.contains("2000000"), "{silences}");
    expect_every_sample(&state.join("live.rec"))?;
    contained.relay.signal(Signal::CONT)
}

#[tokio::test]
async fn f24_a_relay_that_keeps_shares_starts_on_a_full_disk_and_stores_them_once_there_is_room() -> Result<()>
{
    if !skip::root() {
        return Ok(());
    }
    let fill = "mount -t tmpfs -o size=1m,mode=700 tmpfs \"$XDG_STATE_HOME\" && \
                { head -c 2m /dev/zero > \"$XDG_STATE_HOME/fill\" 2> /dev/null || true; }";
    let contained = Contained::start(fill, &["--persist-shares"])?;
    let mut client = watch(&contained.link).await?;
    let is_stated = |known: &Known| has_notice(known, "shares cannot be stored");
    client.until(&Topic::Overview, "that shares are not stored", is_stated).await?;
    let made = contained.run(&["share", "create", "--everything", "--label", "early"])?;
    ensure!(made.contains("stored   not yet"), "{made}");
    fs::remove_file(contained.path(".state/fill"))?;
    client.until(&Topic::Overview, "that they are stored", |known| !is_stated(known)).await?;
    let (_copy, state) = contained.stopped_copy()?;
    let next =
        TestRelay::start_in(&["--local", "--persist-shares"], [("XDG_STATE_HOME", state.as_os_str())])?;
    let listed = next.run(&["share", "list"])?;
    ensure!(listed.contains("early"), "{listed}");
    contained.relay.signal(Signal::CONT)
}

/// Checks that a recording lacks no sample.
fn expect_every_sample(recording: &Path) -> Result<()> {
    let mut reader = Reader::open(recording)?;
    let mut samples = Vec::new();
    while let Some((_, event)) = reader.next_event()? {
        if let Event::Node(_, SessionEvent::Line(line)) = event
            && let ProbeLine::Sample(sample) = &*line
        {
            samples.push(sample.seq);
        }
    }
    ensure!(samples.len() > 5, "{} samples", samples.len());
    // The ten minutes that the probe kept may follow its first samples.
    samples.sort_unstable();
    samples.dedup();
    ensure!(samples.windows(2).all(|pair| pair[1] == pair[0] + 1), "samples are missing: {samples:?}");
    Ok(())
}

/// Mounts a file system whose server never answers, until the program is killed.
const HANG: &str = r#"
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
server = os.open("/dev/fuse", os.O_RDWR)
options = b"fd=%d,rootmode=40700,user_id=0,group_id=0" % server
if libc.mount(b"hangs", os.fsencode(sys.argv[1]), b"fuse", 0, options):
    sys.exit(os.strerror(ctypes.get_errno()))
print("mounted", flush=True)
time.sleep(600)
"#;

/// Returns whether the kernel has FUSE; otherwise skips the test.
fn has_fuse() -> bool {
    let has_fuse = Path::new("/dev/fuse").exists();
    if !has_fuse {
        skip::skip("the kernel has no FUSE");
    }
    has_fuse
}

/// Covers the home of a relay by a file system that hangs, until the result is dropped.
fn hang(contained: &Contained) -> Result<Process> {
    let mut command = contained.inside("/usr/bin/python3");
    command.args(["-c", HANG]).arg(contained.home.path()).current_dir("/");
    let mut server = Process::start(&mut command)?;
    server.wait_for("a mount", |line| (line == "mounted").then_some(()))?;
    Ok(server)
}

#[tokio::test]
async fn f24_the_history_is_stored_once_its_directory_becomes_usable() -> Result<()> {
    let state = tempfile::tempdir()?;
    let dir = state.path().join("nodeglass");
    let allow = |mode| fs::set_permissions(&dir, fs::Permissions::from_mode(mode));
    fs::create_dir(&dir)?;
    allow(0o777)?;
    let relay = TestRelay::start_in(&["--local"], [("XDG_STATE_HOME", state.path().as_os_str())])?;
    let mut client = watch(relay.link()).await?;
    let is_stated = |known: &Known| has_notice(known, "the history is kept in memory only");
    client.until(&Topic::Overview, "why it is not stored", is_stated).await?;
    allow(0o700)?;
    client.until(&Topic::Overview, "that it is stored", |known| !is_stated(known)).await?;
    let host = fs::read_dir(dir.join("history"))?.next().context("a directory of this host")??;
    ensure!(host.path().join("lock").is_file());
    Ok(())
}

#[tokio::test]
async fn f25_a_home_that_hangs_delays_no_page_and_no_node() -> Result<()> {
    if !skip::root() || !has_fuse() {
        return Ok(());
    }
    let mut contained = Contained::start("true", &[])?;
    let mut client = watch(&contained.link).await?;
    ensure!(is_note_stored(&mut client, "before").await?);
    let server = hang(&contained)?;
    let began = Instant::now();
    ensure!(!is_note_stored(&mut client, "while it hung").await?, "the disk does not answer");
    println!("a note is acknowledged as not stored after {:?}", began.elapsed());
    let stated = |known: &Known| has_notice(known, "the state directory does not respond");
    client.until(&Topic::Overview, "that the disk hangs", stated).await?;
    println!("the page states it after {:?}", began.elapsed());
    expect_live(&mut client, 3).await?;
    let began = Instant::now();
    let mut other = watch(&contained.link).await?;
    let key = format!("Bearer {}", contained.link.key.reveal());
    let nodes = http::get(&contained.link.authority, "/api/v1/nodes", &[("Authorization", &key)])?;
    ensure!(nodes.status == 200, "{nodes:?}");
    println!("another page and a program are served within {:?}", began.elapsed());

    // The home directory is back.
    ensure!(contained.inside("umount").arg("-l").arg(contained.home.path()).status()?.success());
    drop(server);
    let is_well = |known: &Known| known.picture.relay.notices.is_empty();
    client.until(&Topic::Overview, "that all is stored again", is_well).await?;
    other.until(&Topic::Overview, "the same on the other page", is_well).await?;
    ensure!(is_note_stored(&mut client, "after").await?);

    let _server = hang(&contained)?;
    let began = Instant::now();
    contained.relay.signal(Signal::TERM)?;
    ensure!(contained.relay.wait()?.success(), "{}", contained.relay.output().text());
    println!("a relay whose home hangs ends after {:?}", began.elapsed());
    Ok(())
}

/// A file system that passes requests on, and delays and fails those that write.
const FAULTY_DISK: &str = include_str!("storage/faulty_disk.py");

#[tokio::test]
async fn f24_f25_what_is_confirmed_survives_a_slow_disk_whose_writes_fail_at_random() -> Result<()> {
    if !skip::root() || !has_fuse() {
        return Ok(());
    }
    let disk = tempfile::tempdir()?;
    let at = |name: &str| disk.path().join(name);
    let (script, content, control) = (at("faulty_disk.py"), at("content"), at("control"));
    fs::write(&script, FAULTY_DISK)?;
    fs::write(&control, "0 0")?;
    fs::DirBuilder::new().mode(0o700).create(&content)?;
    let mount = format!(
        "{{ /usr/bin/python3 {} {} \"$XDG_STATE_HOME\" {} & }}; \
         until mountpoint -q \"$XDG_STATE_HOME\"; do sleep 0.05; done",
        script.display(),
        content.display(),
        control.display()
    );
    let contained = Contained::start(&mount, &["--persist-shares", "--record", ".state/live.rec"])?;
    let mut client = watch(&contained.link).await?;
    // Writes take 30 ms, and a quarter of them fails.
    fs::write(&control, "30 25")?;
    let (mut confirmed, mut refused) = (Vec::new(), 0);
    for number in 2_000_000..2_000_032_u32 {
        let write = WRITES[number as usize % WRITES.len()];
        let command = write[0].replace('N', &number.to_string());
        match contained.run(&command.split(' ').collect::<Vec<_>>()) {
            // Otherwise the command says that what it did is not stored.
            Ok(output) if !output.contains("stored") => confirmed.push((number, write)),
            Ok(_) | Err(_) => refused += 1,
        }
        if number % 4 == 0 {
            expect_live(&mut client, 1).await?;
        }
    }
    fs::write(&control, "0 0")?;
    let is_well = |known: &Known| known.picture.relay.notices.is_empty();
    client.until(&Topic::Overview, "that all is stored again", is_well).await?;
    println!("{} writes were confirmed, {refused} were not", confirmed.len());
    ensure!(confirmed.len() > 4 && refused > 0, "{} were confirmed, {refused} not", confirmed.len());

    contained.relay.signal(Signal::KILL)?;
    let relay =
        TestRelay::start_in(&["--local", "--persist-shares"], [("XDG_STATE_HOME", content.as_os_str())])?;
    for (number, [_, list, _]) in confirmed {
        let listed = run(&relay, list, 0)?;
        ensure!(listed.contains(&number.to_string()), "{number} is not in\n{listed}");
    }
    let printed = relay.output().text();
    ensure!(!printed.contains("damaged") && !printed.contains("cannot be read"), "{printed}");
    expect_every_sample(&content.join("live.rec"))
}

/// Number of times that the relay is killed; more by hand.
fn kills() -> u32 {
    std::env::var("NODEGLASS_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(4)
}

/// Commands that store a number, that list such, and that delete it.
const WRITES: [[&str; 3]; 4] = [
    ["token create N", "token list", "token revoke N"],
    ["note N --cluster", "note --list", ""],
    ["share create --everything --label N", "share list", "share revoke --all"],
    [SILENCE, "findings silences", "findings silence --job N --end"],
];

/// The command silences jobs that are listed only.
const SILENCE: &str = "POST /api/v1/silences";

/// Runs one of them.
fn run(relay: &TestRelay, command: &str, number: u32) -> Result<String> {
    if command == SILENCE {
        let said = silence(relay.link(), number)?;
        ensure!(!said.contains("not stored"), "{said}");
        return Ok(said);
    }
    let command = command.replace('N', &number.to_string());
    relay.run(&command.split(' ').collect::<Vec<_>>())
}

fn silence(link: &Link, job: u32) -> Result<String> {
    let (authority, key) = (&link.authority, link.url.split_once("#k=").context("a key")?.1);
    let body = format!("{{\"job\":{job},\"for_s\":3600}}");
    let request = format!(
        "{SILENCE} HTTP/1.1\r\nHost: {authority}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let reply = http::send_raw(authority, request.as_bytes())?;
    ensure!(reply.status == 200, "{}", reply.body);
    Ok(reply.body)
}

#[test]
fn f13_a_relay_that_is_killed_while_it_writes_keeps_what_it_confirmed() -> Result<()> {
    let state = tempfile::tempdir()?;
    let (mut confirmed, mut total) = (Vec::<(u32, [&str; 3])>::new(), 0);
    for kill in 0..kills() {
        let recording = state.path().join(format!("{kill}.rec"));
        let args = ["--local", "--persist-shares", "--record", recording.to_str().context("a path")?];
        let relay = TestRelay::start_in(&args, [("XDG_STATE_HOME", state.path().as_os_str())])?;
        for (number, [_, list, _]) in &confirmed {
            let listed = run(&relay, list, 0)?;
            ensure!(listed.contains(&format!("{number}")), "kill {kill}: {number} is not in\n{listed}");
        }
        // Their number is limited.
        for (number, [_, _, delete]) in confirmed.drain(..) {
            // The shares are revoked with the first of them.
            let _ = if delete.is_empty() { Ok(String::new()) } else { run(&relay, delete, number) };
        }
        let printed = relay.output().text();
        ensure!(!printed.contains("damaged") && !printed.contains("cannot be read"), "{printed}");
        // It is killed at a moment that differs with each run, while commands write.
        let moment = u64::from(std::process::id().wrapping_mul(kill + 1)) * 7_919 % 1_000;
        let pid = rustix::process::Pid::from_raw(relay.pid().cast_signed()).context("a pid")?;
        let is_killed = Arc::<AtomicBool>::default();
        let killed = is_killed.clone();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200 + moment));
            killed.store(true, Ordering::SeqCst);
            rustix::process::kill_process(pid, Signal::KILL)
        });
        for number in 1_000_000 + kill * 1_000.. {
            let write = WRITES[number as usize % WRITES.len()];
            if let Err(error) = run(&relay, write[0], number) {
                ensure!(is_killed.load(Ordering::SeqCst), "{}: {error:#}", write[0]);
                break;
            }
            confirmed.push((number, write));
        }
        killer.join().ok().context("the relay was killed")??;
        total += confirmed.len();
        drop(relay);
        let mut reader = Reader::open(&recording)?;
        while reader.next_event()?.is_some() {}
    }
    println!("{total} writes were confirmed by {} relays that were killed", kills());
    ensure!(total > 3, "nothing was written");
    Ok(())
}

#[tokio::test]
async fn f24_a_runtime_directory_that_is_deleted_is_created_again_with_link_and_socket() -> Result<()> {
    let relay = TestRelay::demo()?;
    let dir = relay.home().join("nodeglass");
    let socket = dir.join(format!("{}.sock", relay.pid()));
    let link = relay.run(&["link"])?;
    fs::remove_dir_all(&dir)?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        ensure!(Instant::now() < deadline, "no socket: {:?}", relay.output());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    ensure!(relay.run(&["link"])? == link, "the same link");
    Ok(())
}
