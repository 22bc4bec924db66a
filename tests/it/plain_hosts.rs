//! Machines of a list, without SLURM: this one, one behind a real sshd, and one that is down.

use anyhow::{Context, Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{Mode, Topic};
use nodeglass_protocol::picture::{JobsHealth, Link, NodePicture};
use nodeglass_protocol::{GpuField, NodeName, Picture, Vendor};
use nodeglass_tests::client::{Client, Known};
use nodeglass_tests::http;
use nodeglass_tests::metadata::MetadataService;
use nodeglass_tests::mixed::MixedNode;
use nodeglass_tests::process::Process;
use nodeglass_tests::relay::{Link as TestLink, TestRelay};
use nodeglass_tests::skip;
use nodeglass_tests::sshd::Sshd;
use std::ffi::OsStr;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A port of this machine at which nothing listens.
fn closed_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn here() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn node<'a>(picture: &'a Picture, name: &str) -> Option<&'a NodePicture> {
    picture.nodes.iter().find(|node| node.name.as_str() == name)
}

fn is_live(picture: &Picture, name: &str) -> bool {
    node(picture, name).is_some_and(|node| node.head.link == Link::Live && node.sampled_at_ms.is_some())
}

fn names(picture: &Picture) -> Vec<&str> {
    picture.nodes.iter().map(|node| node.name.as_str()).collect()
}

fn group(picture: &Picture, name: &str) -> Option<String> {
    node(picture, name)?.head.group.as_ref().map(ToString::to_string)
}

/// Starts a relay whose PATH has an `ssh` and no SLURM.
fn relay(args: &[&str], path: &Path) -> Result<TestRelay> {
    TestRelay::start_in(args, [("PATH", path.as_os_str())])
}

#[tokio::test]
async fn a_hosts_file_is_watched_by_group_and_followed_while_it_changes() -> Result<()> {
    let Some(sshd) = Sshd::start()? else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("hosts.txt");
    let (port, dead) = (sshd.port(), closed_port()?);
    let list = format!("# ours\nself\n\n[racks]\ngpu1:{port}   # behind another port\ngpu2:{dead}\ngpu 3\n");
    std::fs::write(&file, &list)?;
    let relay = relay(&["--hosts", &file.display().to_string()], &sshd.path())?;
    ensure!(relay.output().text().contains("3 machines in 1 group"), "{}", relay.output().text());

    let mut client = Client::connect(relay.link(), Form::Binary).await?;
    ensure!(client.welcome().mode == Mode::Hosts, "{:?}", client.welcome().mode);
    client.subscribe(&[Topic::Overview]).await?;
    let this = here();
    let is_down = |picture: &Picture| {
        node(picture, "gpu2").is_some_and(|node| {
            matches!(&node.head.link, Link::Down { reason, .. } if reason.as_str().contains("refused"))
        })
    };
    let settled = |known: &Known| {
        is_live(&known.picture, &this) && is_live(&known.picture, "gpu1") && is_down(&known.picture)
    };
    let picture = client.until(&Topic::Overview, "two live machines and one that is down", settled).await?;
    ensure!(picture.relay.jobs == JobsHealth::NoSlurm, "{:?}", picture.relay.jobs);
    ensure!(group(picture, "gpu1").as_deref() == Some("racks") && group(picture, &this).is_none());
    let notice = picture.relay.notices.first().context("a notice about line 7")?;
    ensure!(notice.as_str().contains("hosts.txt:7: \"gpu 3\" contains a space"), "{notice}");

    // Another machine is added, the dead one removed and the bad line corrected; the others continue.
    let added = format!("gpu4:{port}");
    let list = list.replace(&format!("gpu2:{dead}"), &added).replace("gpu 3\n", "");
    let new = dir.path().join("hosts.new");
    std::fs::write(&new, list)?;
    std::fs::rename(&new, &file)?;
    let snapshots = |client: &Client, name: &str| -> Result<usize> {
        let picture = client.picture(&Topic::Overview).context("a picture")?;
        let history = node(picture, name).and_then(|node| node.history.as_ref());
        Ok(history.map_or(0, |history| history.gpus.len()))
    };
    let gpus_before = snapshots(&client, "gpu1")?;
    let followed = |known: &Known| {
        names(&known.picture) == sorted(&[&this, "gpu1", "gpu4"]) && known.picture.relay.notices.is_empty()
    };
    let picture = client.until(&Topic::Overview, "the changed list", followed).await?;
    ensure!(is_live(picture, &this) && is_live(picture, "gpu1"), "unchanged machines go on: {picture:#?}");
    ensure!(snapshots(&client, "gpu1")? == gpus_before);

    // Without the file, the last list stays.
    std::fs::remove_file(&file)?;
    let told = |known: &Known| {
        known.picture.relay.notices.iter().any(|notice| notice.as_str().contains("still watched"))
    };
    let picture = client.until(&Topic::Overview, "a notice about the deleted file", told).await?;
    ensure!(names(picture) == sorted(&[&this, "gpu1", "gpu4"]), "{:?}", names(picture));
    Ok(())
}

fn sorted<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names
}

/// nvgpu's example, in which only this machine exists.
#[tokio::test]
async fn an_nvgpu_users_agents_are_watched_unchanged() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("nvgpu_master.cfg");
    std::fs::write(
        &file,
        "AGENTS = [\n         'self', # node01 - master\n         'http://node02.invalid:1080',\n]\n",
    )?;
    let relay = relay(&["--hosts", &file.display().to_string()], dir.path())?;
    let mut client = Client::connect(relay.link(), Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let this = here();
    let settled = |known: &Known| {
        is_live(&known.picture, &this)
            && node(&known.picture, "node02.invalid")
                .is_some_and(|node| matches!(node.head.link, Link::Down { .. }))
    };
    let picture = client.until(&Topic::Overview, "this machine, and one that is down", settled).await?;
    ensure!(picture.relay.notices.is_empty(), "{:?}", picture.relay.notices);
    Ok(())
}

#[test]
fn a_list_that_cannot_be_read_ends_the_start_with_one_sentence() -> Result<()> {
    let home = tempfile::tempdir()?;
    let fifo = home.path().join("pipe");
    let status = std::process::Command::new("mkfifo").arg(&fifo).status()?;
    ensure!(status.success(), "mkfifo");
    let cases: [(&[&OsStr], &str); 4] = [
        (
            &["--hosts".as_ref(), "/nowhere".as_ref()],
            "the list of machines /nowhere cannot be read: No such file",
        ),
        (&["--hosts".as_ref(), fifo.as_os_str()], "it is a pipe, not a file"),
        (&["--host".as_ref(), "gpu1:99999".as_ref()], "\"99999\" is not a port"),
        (&["--demo".as_ref(), "--host".as_ref(), "gpu1".as_ref()], "--demo and --hosts exclude each other"),
    ];
    for (args, message) in cases {
        let mut command = TestRelay::command(home.path())?;
        let mut process = Process::start(command.args(["--bind", "127.0.0.1:0"]).args(args))?;
        let status = process.wait()?;
        let output = process.output().text();
        ensure!(!status.success() && output.contains(message), "{args:?}: {output}");
    }
    // A name is checked before it is an argument of ssh.
    ensure!(NodeName::new("-oProxyCommand=x").is_err());
    Ok(())
}

/// A user of GPU Cluster Status Monitor: the list that its README creates, whose first machine is the main node, a
/// dead machine, and the numbers of all for a dashboard of one's own.
#[tokio::test]
async fn a_gcsm_user_sees_all_machines_and_reads_them_as_json() -> Result<()> {
    let mixed = MixedNode::new()?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("hosts.txt");
    std::fs::write(&file, "127.0.0.1\nnode02.invalid\n")?;
    let mut environment = mixed.environment();
    environment.push(("PATH", dir.path().into()));
    let environment = environment.iter().map(|(name, value)| (*name, value.as_os_str()));
    let relay = TestRelay::start_in(&["--hosts", &file.display().to_string()], environment)?;
    let mut client = Client::connect(relay.link(), Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let this = here();
    let settled = |known: &Known| {
        is_live(&known.picture, &this)
            && node(&known.picture, "node02.invalid")
                .is_some_and(|node| matches!(node.head.link, Link::Down { .. }))
    };
    let picture = client.until(&Topic::Overview, "this machine, and one that is down", settled).await?;
    ensure!(picture.relay.notices.is_empty() && picture.nodes.len() == 2, "{picture:#?}");

    let link = relay.link();
    let bearer = format!("Bearer {}", link.key.reveal());
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let reply = http::get(&link.authority, "/api/v1/picture", &[("Authorization", &bearer)])?;
        let picture: serde_json::Value = serde_json::from_str(&reply.body)?;
        let nodes = picture["nodes"].as_array().context("nodes")?;
        let of = |name: &str| nodes.iter().find(|node| node["name"] == name).context("a machine");
        let gpus = of(&this)?["gpus"].as_array().context("GPUs")?;
        let utils: Vec<_> = gpus.iter().map(|gpu| gpu["row"]["util_pct"].clone()).collect();
        let down = of("node02.invalid")?["head"]["link"].to_string();
        ensure!(down.contains("down"), "{down}");
        // Rates need a second sample.
        if utils == [55, 97, 40, 60] {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{utils:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A user of tputop: the workers of a pod from the metadata service, TPUs through libtpuinfo, beside the GPUs of two
/// other vendors.
#[tokio::test]
async fn a_tputop_user_sees_the_workers_of_a_pod_with_their_chips() -> Result<()> {
    let mixed = MixedNode::new()?;
    // Both addresses are of this machine.
    let metadata = MetadataService::start("unknown:unknown:127.0.0.1,unknown:unknown:127.0.0.2")?;
    let mut environment = mixed.environment();
    environment.push(("GCE_METADATA_HOST", metadata.address().into()));
    let environment = environment.iter().map(|(name, value)| (*name, value.as_os_str()));
    let relay = TestRelay::start_in(&["--tpu-pod"], environment)?;
    let mut client = Client::connect(relay.link(), Form::Binary).await?;
    let this = here();
    client.subscribe(&[Topic::Node(NodeName::new(&this)?), Topic::Overview]).await?;
    let has_duty = |known: &Known| {
        node(&known.picture, &this).is_some_and(|node| {
            node.gpus.iter().filter(|gpu| gpu.row.value(GpuField::Util).is_some()).count() == MixedNode::GPUS
        })
    };
    let picture = client.until(&Topic::Node(NodeName::new(&this)?), "all accelerators", has_duty).await?;
    let gpus = &node(picture, &this).context("this machine")?.gpus;
    let vendors: Vec<_> = gpus.iter().map(|gpu| gpu.facts.vendor).collect();
    ensure!(vendors == [Vendor::Nvidia, Vendor::Amd, Vendor::Tpu, Vendor::Tpu], "{vendors:?}");
    let utils: Vec<_> = gpus.iter().map(|gpu| gpu.row.value(GpuField::Util)).collect();
    ensure!(utils == [55, 97, 40, 60].map(Some), "{utils:?}");
    let notices = &client.picture(&Topic::Overview).context("the overview")?.relay.notices;
    ensure!(notices.iter().any(|notice| notice.as_str().contains("already")), "{notices:?}");
    Ok(())
}

/// A resolver that reads every request and answers none, at an address of loopback that no other test uses.
fn silent_resolver() -> Result<(UdpSocket, String)> {
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = format!("127.{high}.{low}.53");
    Ok((UdpSocket::bind((address.as_str(), 53)).context("bind the port of DNS")?, address))
}

#[tokio::test]
async fn f26_a_resolver_that_never_answers_is_named_and_delays_no_other_machine() -> Result<()> {
    if !skip::root() {
        return Ok(());
    }
    let (_resolver, address) = silent_resolver()?;
    let home = tempfile::tempdir()?;
    std::fs::write(home.path().join("resolv.conf"), format!("nameserver {address}\noptions timeout:30\n"))?;
    let relay = TestRelay::command(home.path())?;
    let mut command = Command::new("unshare");
    command.env_clear().envs(relay.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.args(["--mount", "sh", "-c", "mount --bind resolv.conf /etc/resolv.conf && exec \"$0\" \"$@\""]);
    let slow: Vec<_> = (0..40).map(|number| format!("gpu{number}.example.test")).collect();
    let hosts = format!("self,{}", slow.join(","));
    command.current_dir(home.path()).arg(relay.get_program());
    let mut relay = Process::start(command.args(["--host", &hosts, "--bind", "127.0.0.1:0"]))?;
    let link = relay.wait_for("a link", TestLink::find)?;
    let started = Instant::now();
    let mut client = Client::connect(&link, Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let this = here();
    client.until(&Topic::Overview, "this machine", |known| is_live(&known.picture, &this)).await?;
    let why = |picture: &Picture| {
        let slow = picture.nodes.iter().filter_map(|node| match &node.head.link {
            Link::Down { reason, .. } => Some(reason.to_string()),
            _ => None,
        });
        slow.filter(|reason| reason.contains("could not be looked up within 5 s")).count()
    };
    client.until(&Topic::Overview, "the reason of most others", |known| why(&known.picture) > 20).await?;
    println!(
        "20 of 40 machines whose names are not resolved are named as such after {:?}",
        started.elapsed()
    );
    ensure!(is_live(client.picture(&Topic::Overview).context("a picture")?, &this), "this machine goes on");
    Ok(())
}
