//! Nodes that fail, as a viewer sees them: what is affected is marked, what is not is not delayed, and everything is live soon
//! after the fault.

use anyhow::{Context as _, Result, bail, ensure};
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::{Link, NodePicture};
use nodeglass_tests::oracle::Oracle;
use nodeglass_tests::other_user::{self, NOBODY};
use nodeglass_tests::process::Process;
use nodeglass_tests::rack::{Fault, Rack};
use nodeglass_tests::relay::{self, TestRelay};
use nodeglass_tests::skip;
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

fn reason(node: &NodePicture) -> &str {
    match &node.head.link {
        Link::Down { reason, .. } | Link::Refused { reason, .. } => reason.as_str(),
        _ => "",
    }
}

/// A rack, and an oracle that watches its nodes.
async fn watched(count: usize) -> Result<Option<(Rack, Oracle)>> {
    watched_with(count, &[]).await
}

async fn watched_with(count: usize, args: &[&str]) -> Result<Option<(Rack, Oracle)>> {
    let Some(rack) = Rack::start(count, args).await? else { return Ok(None) };
    let oracle = Oracle::watch(rack.relay().link(), Topic::Overview, count).await?;
    Ok(Some((rack, oracle)))
}

#[tokio::test]
async fn f33_half_of_the_nodes_are_cut_off_for_a_minute_and_return_within_ten_seconds() -> Result<()> {
    let Some((rack, mut oracle)) = watched(8).await? else { return Ok(()) };
    oracle.fault(&rack.names(0..4)?).await?;
    rack.set(0..4, Fault::Cut);
    let late = oracle.until("nodes that are late", |node| node.head.link != Link::Live).await?;
    let down =
        oracle.until("nodes that are down", |node| matches!(node.head.link, Link::Down { .. })).await?;
    oracle.pass(Duration::from_secs(40)).await?;
    rack.set(0..4, Fault::None);
    let healed = oracle.healed().await?;
    println!(
        "half of 8 nodes cut off: late after {late:?}, down after {down:?}, live {healed:?} after the end"
    );
    Ok(())
}

#[tokio::test]
async fn f02_f36_hosts_without_a_greeting_or_with_a_limit_of_logins_are_named_and_delay_no_other()
-> Result<()> {
    let Some((rack, mut oracle)) = watched(6).await? else { return Ok(()) };
    // Closes their connections, and then limits logins.
    oracle.fault(&rack.names(0..4)?).await?;
    rack.set(0..4, Fault::Says("Not allowed at this time\r\n"));
    let limited = |node: &NodePicture| reason(node).contains("is limiting logins at the moment");
    let noticed = oracle.until("a limit of logins", limited).await?;
    println!("a limit of logins is named after {noticed:?}");
    // Nodes 0 and 1 accept connections from now on, and say nothing.
    rack.set(0..2, Fault::Cut);
    oracle.pass(Duration::from_secs(5)).await?;
    for node in rack.names(0..2)? {
        ensure!(rack.relay().run(&["retry", node.as_str()])?.contains("again"), "it waits");
    }
    let named = |node: &NodePicture| {
        reason(node).contains("did not speak SSH within 10 s") || !node.name.as_str().ends_with(['0', '1'])
    };
    let named = oracle.until("a host without a greeting", named).await?;
    println!("a host without a greeting is named after {named:?}");
    rack.set(0..4, Fault::None);
    ensure!(rack.relay().run(&["retry"])?.contains("again"), "they wait");
    oracle.healed().await?;
    Ok(())
}

#[tokio::test]
async fn f04_a_killed_probe_is_replaced_within_seconds_and_only_its_node_notices() -> Result<()> {
    let Some((rack, mut oracle)) = watched(4).await? else { return Ok(()) };
    oracle.fault(&rack.names(1..2)?).await?;
    let [pid] = rack.probes(1)[..] else { bail!("{:?} are the probes of a node", rack.probes(1)) };
    kill_process(pid, Signal::KILL)?;
    let down = oracle.until("the end of the probe", |node| reason(node).contains("signal")).await?;
    let healed = oracle.healed().await?;
    println!("a killed probe is noticed after {down:?} and replaced {healed:?} later");
    ensure!(rack.probes(1).len() == 1 && !rack.probes(1).contains(&pid), "P7: {:?}", rack.probes(1));
    Ok(())
}

#[tokio::test]
async fn f03_a_stopped_probe_is_replaced_and_exits_once_it_continues() -> Result<()> {
    let Some((rack, mut oracle)) = watched(4).await? else { return Ok(()) };
    oracle.fault(&rack.names(2..3)?).await?;
    let [pid] = rack.probes(2)[..] else { bail!("{:?} are the probes of a node", rack.probes(2)) };
    kill_process(pid, Signal::STOP)?;
    let late = oracle.until("a node that is late", |node| node.head.link != Link::Live).await?;
    let down =
        oracle.until("a node that is down", |node| reason(node).contains("no line from the probe")).await?;
    // The next probe cannot take over from it, and does not wait for it.
    let replaced = oracle.until("another probe", |node| node.head.link == Link::Live).await?;
    println!("a stopped probe: late after {late:?}, down after {down:?}, replaced after {replaced:?}");
    kill_process(pid, Signal::CONT)?;
    oracle.healed().await?;
    let since = Instant::now();
    while rack.probes(2).len() != 1 {
        ensure!(since.elapsed() < Duration::from_secs(30), "P7: {:?} are left", rack.probes(2));
        oracle.pass(Duration::from_millis(100)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn f14_a_crash_of_ssh_costs_its_node_seconds_and_others_nothing() -> Result<()> {
    let Some((rack, mut oracle)) = watched_with(3, &["--launcher", "openssh"]).await? else { return Ok(()) };
    let relay = Pid::from_raw(i32::try_from(rack.relay().pid())?).context("a pid is positive")?;
    let [name] = &rack.names(1..2)?[..] else { bail!("one name") };
    let is_its_ssh = |pid: &Pid| {
        let command = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(name.as_str())
    };
    let ssh = children(relay)?.into_iter().find(is_its_ssh).context("the ssh of the node")?;
    oracle.fault(std::slice::from_ref(name)).await?;
    kill_process(ssh, Signal::SEGV)?;
    let noticed = oracle.until("the crash", |node| node.head.link != Link::Live).await?;
    let healed = oracle.healed().await?;
    println!("a crash of ssh is noticed after {noticed:?}, and the node live {healed:?} later");
    Ok(())
}

/// Pids of the probes that a relay runs as its children.
fn children(relay: Pid) -> Result<Vec<Pid>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{}/task", relay.as_raw_nonzero()))? {
        let children = std::fs::read_to_string(task?.path().join("children"))?;
        found.extend(children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    Ok(found)
}

#[tokio::test]
async fn f19_at_the_limit_of_processes_viewers_are_served_and_the_probe_returns_with_the_limit() -> Result<()>
{
    // The limit does not apply to root.
    if let Some(why) = other_user::why_not() {
        skip::skip(&why);
        return Ok(());
    }
    let (home, programs) = (tempfile::tempdir()?, tempfile::tempdir()?);
    // The checkout may be where no other user gets to.
    fs::set_permissions(programs.path(), Permissions::from_mode(0o755))?;
    for name in ["relay", "node-probe"] {
        fs::copy(relay::binary(name)?, programs.path().join(name))?;
    }
    let own = TestRelay::command(home.path())?;
    let variables = own.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let mut command = Command::new(programs.path().join("relay"));
    command.env_clear().envs(variables).current_dir(home.path());
    std::os::unix::fs::chown(home.path(), Some(NOBODY), Some(NOBODY))?;
    command.args(["--local", "--bind", "127.0.0.1:0"]).uid(NOBODY).gid(NOBODY);
    let mut relay = Process::start(&mut command)?;
    let link = relay.wait_for("a link", relay::Link::find)?;
    let tunnel = other_user::Tunnel::open(NOBODY, &link.authority).await?;
    let link = link.at(&tunnel.authority());
    let mut oracle = Oracle::watch(&link, Topic::Overview, 1).await?;
    let names: Vec<_> = oracle.nodes()?.iter().map(|node| node.name.clone()).collect();
    let pid = Pid::from_raw(i32::try_from(relay.pid())?).context("a pid is positive")?;
    // Only the user may, unless root has every capability.
    let limit = |processes: &str| -> Result<()> {
        let mut prlimit = Command::new("prlimit");
        prlimit.arg(format!("--pid={}", relay.pid())).arg(format!("--nproc={processes}:"));
        ensure!(prlimit.uid(NOBODY).gid(NOBODY).status().context("prlimit")?.success(), "prlimit failed");
        Ok(())
    };
    let before =
        getrlimit(Resource::Nproc).current.map_or("unlimited".to_owned(), |processes| processes.to_string());

    oracle.fault(&names).await?;
    limit("1")?;
    let [probe] = children(pid)?[..] else { bail!("{:?} are the probes", children(pid)?) };
    kill_process(probe, Signal::KILL)?;
    let down =
        oracle.until("a probe that cannot be started", |node| reason(node).contains("could not be started"));
    let down = down.await?;
    oracle.pass(Duration::from_secs(10)).await?;
    // Between two attempts; during one, it is being connected.
    let attempted = Instant::now();
    while oracle.status().await?["unreachable"].as_array().is_none_or(|nodes| nodes.len() != 1) {
        ensure!(attempted.elapsed() < nodeglass_tests::TIMEOUT, "/status does not list it as unreachable");
        oracle.pass(Duration::from_millis(100)).await?;
    }
    limit(&before)?;
    let healed = oracle.healed().await?;
    println!("without processes: noticed after {down:?}, live {healed:?} after the limit ended");
    Ok(())
}
