//! Connections of other users and clients that do not read neither lock out the owner nor grow the
//! relay's memory.

use anyhow::{Context, Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_tests::client::{Client, Known};
use nodeglass_tests::other_user;
use nodeglass_tests::process::Process;
use nodeglass_tests::relay::{Link, TestRelay};
use nodeglass_tests::{TIMEOUT, skip};
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// Another user of this machine: nobody.
const STRANGER: u32 = 65_534;

/// Opens a thousand WebSockets that never prove a key, and counts the responses.
const CROWD: &str = r#"
import collections, resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
host, port = sys.argv[1].split(":")
head = ("GET /live HTTP/1.1\r\nHost: %s\r\nOrigin: http://%s\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        "Sec-WebSocket-Protocol: nodeglass.v1\r\n\r\n" % (sys.argv[1], sys.argv[1])).encode()
crowd, answers = [], collections.Counter()
for _ in range(1000):
    one = socket.create_connection((host, int(port)))
    one.settimeout(0.02)
    try:
        one.sendall(head)
        answer = one.recv(4096).decode("latin-1")
        answers[answer[9:12] or "closed"] += 1
        answers["retry"] += "retry-after" in answer.lower()
    except OSError:
        answers["closed"] += 1
    crowd.append(one)
print("crowd", *("%s=%d" % pair for pair in answers.items()), flush=True)
time.sleep(600)
"#;

#[tokio::test]
async fn f17_t19_a_thousand_connections_of_others_do_not_lock_out_the_owner() -> Result<()> {
    if !skip::root() {
        return Ok(());
    }
    let relay = TestRelay::demo()?;
    // The system's Python: other users cannot run one in a home directory.
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", CROWD, &relay.link().authority]).current_dir("/").uid(STRANGER).gid(STRANGER);
    let mut crowd = Process::start(&mut command)?;
    let report = crowd.wait_for("a crowd", |line| line.strip_prefix("crowd ").map(str::to_owned));
    // While the connections are open, and not only afterwards.
    let mut client = Client::connect(relay.link(), Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    client.until(&Topic::Overview, "changes", |known| known.deltas >= 2).await?;
    let report = report?;
    let count = |what: &str| -> u32 {
        let found = report.split(' ').find_map(|word| word.strip_prefix(what)?.strip_prefix('='));
        found.and_then(|count| count.parse().ok()).unwrap_or(0)
    };
    let (let_wait, sent_away) = (count("101"), count("503"));
    ensure!(sent_away > 0 && count("retry") >= sent_away, "a rejected client learns when to retry: {report}");
    ensure!(let_wait < 500, "far fewer than a thousand may wait: {report}");
    Ok(())
}

/// The response to a request with the owner's key on a new connection, while all earlier ones stay open.
fn statuses(relay: &Link, count: usize) -> Result<Vec<String>> {
    let request = format!(
        "GET /api/v1/shares HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
        relay.authority,
        relay.key.reveal()
    );
    let mut open = Vec::new();
    let mut responses = Vec::new();
    for _ in 0..count {
        let mut stream = std::net::TcpStream::connect(&relay.authority)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(request.as_bytes())?;
        let mut response = [0; 4096];
        let length = stream.read(&mut response)?;
        responses.push(String::from_utf8_lossy(&response[..length]).into_owned());
        open.push(stream);
    }
    Ok(responses)
}

#[test]
fn f18_t19_a_relay_without_file_descriptors_reports_that_and_blames_no_client() -> Result<()> {
    let home = tempfile::tempdir()?;
    let relay = TestRelay::command(home.path())?;
    let mut command = Command::new("sh");
    command.env_clear().envs(relay.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""]).arg(relay.get_program());
    command.args(["--demo", "--bind", "127.0.0.1:0"]).current_dir(home.path());
    let mut relay = Process::start(&mut command)?;
    let link = relay.wait_for("a link", Link::find)?;
    let responses = statuses(&link, 100)?;
    let with = |status: &str| responses.iter().filter(|response| response.starts_with(status)).count();
    let (served, sent_away) = (with("HTTP/1.1 200"), with("HTTP/1.1 503"));
    ensure!(served > 0 && sent_away > 0 && served + sent_away == responses.len(), "{responses:#?}");
    ensure!(responses.iter().any(|response| response.contains("no file descriptor left")), "{responses:#?}");
    relay.wait_for("what it was", |line| line.contains("no file descriptor is left").then_some(()))?;
    ensure!(
        !relay.output().text().contains("another user presented the owner's key"),
        "{}",
        relay.output().text()
    );
    Ok(())
}

/// Opens as many connections of four users as the limits allow; none of them ever sends anything.
const FOUR_STRANGERS: &str = r#"
import os, socket, sys, time
host, port = sys.argv[1].split(":")
def crowd(uid):
    os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
    held, is_full = [], False
    while True:
        try:
            one = socket.create_connection((host, int(port)))
            one.sendall(b"GET / HTTP/1.1\r\n")
            held.append(one)
        except OSError:
            time.sleep(0.05)
        if len(held) > 64:
            if not is_full:
                is_full = True
                os.write(full, b".")
            held.pop(0).close()
            time.sleep(0.02)
filled, full = os.pipe()
for uid in (64001, 64002, 64003, 64004):
    if os.fork() == 0:
        crowd(uid)
for _ in range(4):
    os.read(filled, 1)
print("crowd", flush=True)
time.sleep(600)
"#;

#[tokio::test]
async fn t19_four_users_at_their_connection_limit_do_not_keep_a_guest_out() -> Result<()> {
    if !skip::root() {
        return Ok(());
    }
    let relay = TestRelay::demo()?;
    let printed = relay.run(&["share", "create", "--everything"])?;
    let share = printed.lines().find_map(Link::find).context("a share's link")?;
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", FOUR_STRANGERS, &share.authority]).current_dir("/");
    let mut crowd = ConnectionFlood(Process::start(command.process_group(0))?);
    crowd.0.wait_for("a crowd", |line| (line == "crowd").then_some(()))?;
    for visit in 0..20 {
        let pipe = other_user::connect(other_user::NOBODY, &share.authority)?;
        let knocked = timeout(TIMEOUT, Client::authenticate(Box::new(pipe), &share)).await;
        let came =
            knocked.with_context(|| format!("visit {visit}"))?.with_context(|| format!("visit {visit}"))?;
        ensure!(came.is_ok(), "visit {visit}: {came:?}");
    }
    Ok(())
}

/// A group of processes that ends with its guard.
struct ConnectionFlood(Process);

impl Drop for ConnectionFlood {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.0.pid().cast_signed()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// Resident memory of a process, in KiB.
fn resident_kib(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
}

/// Returns the memory once it stops growing: the nodes' history is allocated while the relay starts.
async fn settled_kib(pid: u32, client: &mut Client) -> Result<u64> {
    let (start, mut before) = (Instant::now(), 0);
    loop {
        let while_reading = Instant::now();
        while while_reading.elapsed() < Duration::from_secs(3) {
            client.step().await?;
        }
        let now = resident_kib(pid)?;
        if now < before + 1024 || start.elapsed() > TIMEOUT {
            return Ok(now);
        }
        before = now;
    }
}

/// Maximum growth of the relay's memory while the clients do not read: one or two snapshots of 1 to 2 MB
/// for each of them, and the allocator's reserve.
const MAX_GROWTH_KIB: u64 = 96 * 1024;
/// Number of clients that do not read.
const SLEEPERS: usize = 12;
/// For how long they do not read: less than the relay's time limit.
const SLEEP: Duration = Duration::from_secs(15);

#[tokio::test]
async fn f16_t20_pages_that_never_read_cost_little_memory_and_delay_no_other() -> Result<()> {
    let relay = TestRelay::demo()?;
    let topic = Topic::Overview;
    let full = |known: &Known| known.picture.nodes.len() >= 16 && known.deltas >= 2;
    let mut awake = Client::connect(relay.link(), Form::Binary).await?;
    awake.subscribe(std::slice::from_ref(&topic)).await?;
    awake.until(&topic, "the whole cluster", full).await?;
    let before = settled_kib(relay.pid(), &mut awake).await?;

    let mut sleepers = Vec::new();
    for _ in 0..SLEEPERS {
        let pipe = Box::new(narrow(&relay.link().authority).await?);
        let mut sleeper = Client::connect_over(pipe, relay.link(), &relay.link().key, Form::Json).await?;
        sleeper.subscribe(std::slice::from_ref(&topic)).await?;
        sleepers.push(sleeper);
    }
    let (asleep, seen) = (Instant::now(), awake.known(&topic).context("the cluster")?.deltas);
    while asleep.elapsed() < SLEEP {
        // Meanwhile they request everything repeatedly; a client that does not read gets no response.
        for sleeper in &mut sleepers {
            let _ = timeout(Duration::from_millis(10), sleeper.resync(&topic)).await;
        }
        let _ = timeout(Duration::from_millis(100), awake.step()).await;
    }
    let growth = resident_kib(relay.pid())?.saturating_sub(before);
    ensure!(growth < MAX_GROWTH_KIB, "the relay grew by {growth} KiB");
    let known = awake.known(&topic).context("the cluster")?;
    ensure!(awake.missed() == 0 && known.deltas >= seen + 8, "who reads misses nothing: {}", known.deltas);
    // Once it reads again, a client learns how many updates it missed instead of receiving them.
    let mut woken = sleepers.pop().context("a sleeper")?;
    let start = Instant::now();
    while woken.missed() == 0 {
        woken.step().await?;
        ensure!(start.elapsed() < TIMEOUT, "nothing was dropped");
    }
    Ok(())
}

/// A connection with a small receive buffer, so that not reading has an effect soon.
async fn narrow(authority: &str) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    Ok(socket.connect(authority.parse()?).await?)
}

/// Pages that lose a relay at the same moment.
const HERD: u64 = 300;

/// CPU time of a process, in ms.
fn cpu_ms(pid: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // User and system time after the name in parentheses, in ticks of 10 ms.
    let fields = stat.rsplit_once(')').context("a name")?.1.split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).map_while(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks * 10)
}

/// Connects after a wait that differs from page to page, again and again as pages do, and receives the whole cluster.
async fn return_as_a_page(link: Link, number: u64) -> Result<(Client, u32)> {
    let topic = Topic::Overview;
    let mut attempts = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(number * 7_919 % 2_000)).await;
        attempts += 1;
        match Client::connect(&link, Form::Binary).await {
            Ok(mut client) => {
                client.subscribe(std::slice::from_ref(&topic)).await?;
                client.until(&topic, "the cluster", |known| known.picture.nodes.len() >= 16).await?;
                return Ok((client, attempts));
            }
            Err(error) if attempts > 20 => return Err(error),
            Err(_) => {}
        }
    }
}

#[tokio::test]
async fn f34_three_hundred_pages_that_return_at_once_are_served_and_delay_no_other() -> Result<()> {
    let relay = TestRelay::demo()?;
    let topic = Topic::Overview;
    let full = |known: &Known| known.picture.nodes.len() >= 16 && known.deltas >= 2;
    let mut other = Client::connect(relay.link(), Form::Binary).await?;
    other.subscribe(std::slice::from_ref(&topic)).await?;
    other.until(&topic, "the whole cluster", full).await?;
    let before_kib = settled_kib(relay.pid(), &mut other).await?;
    let (before_ms, began) = (cpu_ms(relay.pid())?, Instant::now());
    let watching = tokio::spawn(async move {
        let begin = other.known(&topic).map_or(0, |known| known.deltas);
        let is_on = |known: &Known| known.deltas >= begin + 10;
        other.until(&topic, "ten changes meanwhile", is_on).await?;
        Ok::<_, anyhow::Error>(other.missed())
    });
    let herd: Vec<_> =
        (0..HERD).map(|number| tokio::spawn(return_as_a_page(relay.link().clone(), number))).collect();
    let (mut pages, mut attempts, mut received) = (Vec::new(), 0, 0);
    for page in herd {
        let (page, tries) = page.await??;
        attempts += tries;
        received += page.received_bytes();
        pages.push(page);
    }
    let (served, spent_ms) = (began.elapsed(), cpu_ms(relay.pid())? - before_ms);
    let growth = resident_kib(relay.pid())?.saturating_sub(before_kib);
    println!(
        "{HERD} pages returned within {served:?} by {attempts} attempts: {} ms of CPU and {} KiB of memory a page, \
         {} KiB sent to each",
        spent_ms / HERD,
        growth / HERD,
        received as u64 / 1024 / HERD
    );
    ensure!(growth < MAX_GROWTH_KIB, "the relay grew by {growth} KiB");
    ensure!(watching.await?? == 0, "a page that was there missed updates");
    Ok(())
}
