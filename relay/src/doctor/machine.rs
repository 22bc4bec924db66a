//! Checks this machine: directories, limits, addresses, the probe, and relays that run.

use super::{CheckResult, Context, blocking, limited};
use crate::installation::Installation;
use nodeglass_access::key_file::{self, Running};
use nodeglass_access::runtime_dir::{Places, RuntimeDir};
use nodeglass_access::user;
use nodeglass_app::terminal;
use nodeglass_config::BindAddr;
use nodeglass_launch::upload::ProbeBinary;
use nodeglass_platform::cgroup::Cgroups;
use nodeglass_platform::state_dir::StateDir;
use rustix::process::{Resource, getrlimit};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::{TcpListener, UnixStream};

const SECTION: &str = "This machine";
/// Free space in bytes below which a history or a database may fill the file system.
const LITTLE_SPACE: u64 = 64 << 20;
/// Number of files that can still be created below which a history may use all that are left.
const FEW_FILES: u64 = 256;
/// Open files that a relay of 64 nodes with some viewers needs.
const FILES: u64 = 512;
/// Processes and threads of the user; the system's `ssh` needs one or two for each node.
const PROCESSES: u64 = 256;

/// Runs all checks of this machine.
pub(super) async fn check(context: &Context) -> Vec<CheckResult> {
    let mut found = blocking((SECTION, "state directory"), state_dir).await;
    found.extend(blocking((SECTION, "installation"), installation).await);
    found.extend(limits());
    let path = context.config.probe.clone();
    found.extend(blocking((SECTION, "probe"), move || probe(path.as_deref())).await);
    let (relays, directory) = relays().await;
    found.extend(directory);
    for addr in &context.config.bind {
        found.extend(address(addr, &relays).await);
    }
    found.extend(running(context, &relays).await);
    found
}

fn state_dir() -> Vec<CheckResult> {
    const CHECK: &str = "state directory";
    let dir = match StateDir::open() {
        Ok(dir) => dir,
        Err(error) => {
            let advice = "it must be yours alone (`chmod 700`); or set XDG_STATE_HOME to another directory";
            return vec![CheckResult::fail(SECTION, CHECK, error, advice)];
        }
    };
    let path = dir.path().display();
    let found = rustix::fs::statvfs(dir.path());
    // Some file systems do not limit the number of files, and state none.
    let files = found.as_ref().ok().filter(|found| found.f_files > 0).map(|found| found.f_favail);
    let free = found.map(|found| found.f_bavail.saturating_mul(found.f_frsize));
    let shared =
        if nodeglass_store::is_on_shared_file_system(dir.path()) { ", on a shared file system" } else { "" };
    vec![match free {
        Ok(free) if free < LITTLE_SPACE => CheckResult::warn(
            SECTION,
            CHECK,
            format!("{path} has only {} MiB free{shared}", free >> 20),
            "free space there, or set XDG_STATE_HOME; without it the history is not stored",
        ),
        Ok(_) if files.is_some_and(|files| files < FEW_FILES) => CheckResult::warn(
            SECTION,
            CHECK,
            format!("{path} has room for only {} more files (inodes){shared}", files.unwrap_or_default()),
            "delete files there, or set XDG_STATE_HOME; without it the history is not stored",
        ),
        Ok(free) => CheckResult::ok(SECTION, CHECK, format!("{path}, {} MiB free{shared}", free >> 20)),
        Err(error) => CheckResult::warn(
            SECTION,
            CHECK,
            format!("{path}: {error}"),
            "check that the file system responds",
        ),
    }]
}

fn installation() -> Vec<CheckResult> {
    const CHECK: &str = "installation";
    vec![match Installation::of_this_program() {
        Ok(Installation { folder, update, .. }) => {
            let version = env!("CARGO_PKG_VERSION");
            CheckResult::ok(
                SECTION,
                CHECK,
                format!("version {version} in {}; to update: {update}", folder.display()),
            )
        }
        Err(error) => CheckResult::warn(SECTION, CHECK, error, "start the relay by its full path"),
    }]
}

fn limits() -> Vec<CheckResult> {
    let of = |resource| getrlimit(resource).current.unwrap_or(u64::MAX);
    let words = |limit: u64| if limit == u64::MAX { "unlimited".to_owned() } else { limit.to_string() };
    let (files, processes) = (of(Resource::Nofile), of(Resource::Nproc));
    let text = format!("{} open files, {} processes{}", words(files), words(processes), own_limits());
    vec![match raised_limits(files, processes) {
        None => CheckResult::ok(SECTION, "limits", text),
        Some(command) => CheckResult::warn(
            SECTION,
            "limits",
            text,
            format!("`{command}` in the shell that starts the relay"),
        ),
    }]
}

/// The limits of CPU time and memory by control groups, which a relay would have as well; after a list.
fn own_limits() -> String {
    let cgroups = Cgroups::of_this_process();
    let cpu = cgroups.cpu_limit_pct().map(|pct| format!(", {pct} % of a core"));
    let memory = cgroups.memory().map(|memory| {
        let [used, limit] = [memory.used_bytes, memory.limit_bytes].map(|bytes| bytes >> 20);
        format!(", {used} of {limit} MiB in use")
    });
    cpu.into_iter().chain(memory).collect()
}

/// The commands that raise the limits that are too low, if any is. One for each, as not every shell takes several options.
fn raised_limits(files: u64, processes: u64) -> Option<String> {
    let files = (files < FILES).then(|| format!("ulimit -n {FILES}"));
    let processes = (processes < PROCESSES).then(|| format!("ulimit -u {PROCESSES}"));
    let commands: Vec<String> = files.into_iter().chain(processes).collect();
    (!commands.is_empty()).then(|| commands.join("; "))
}

fn probe(path: Option<&Path>) -> Vec<CheckResult> {
    vec![match ProbeBinary::find(path) {
        Ok(probe) => CheckResult::ok(
            SECTION,
            "probe",
            format!("{} (build {})", probe.path().display(), probe.hash16()),
        ),
        Err(error) => CheckResult::fail(
            SECTION,
            "probe",
            error,
            "keep node-probe in the folder of relay, as in the archive",
        ),
    }]
}

/// The user's relays, and whether there is a safe runtime directory.
async fn relays() -> (Vec<(PathBuf, Running)>, Vec<CheckResult>) {
    const CHECK: &str = "runtime directory";
    let check = || {
        let places = Places::from_env();
        let result = match RuntimeDir::open(&places) {
            Ok(dir) if let Some((taken, uid)) = places.taken() => {
                let text = format!(
                    "{}; {} belongs to another user (uid {uid})",
                    dir.path().display(),
                    taken.display()
                );
                let advice = "use no `ssh -L` line with that folder, which leads to their program; tell your administrator";
                CheckResult::warn(SECTION, CHECK, text, advice)
            }
            Ok(dir) => CheckResult::ok(SECTION, CHECK, dir.path().display()),
            Err(error) => {
                CheckResult::fail(SECTION, CHECK, error, "without it no relay can be found by `relay link`")
            }
        };
        let mut relays = Vec::new();
        for dir in RuntimeDir::existing(&places) {
            for relay in key_file::running(&dir).unwrap_or_default() {
                relays.push((dir.socket(&key_file::socket_name(relay.pid)), relay));
            }
        }
        (relays, vec![result])
    };
    let task = tokio::task::spawn_blocking(check);
    match tokio::time::timeout(Duration::from_secs(5), task).await {
        Ok(Ok(found)) => found,
        _ => {
            let advice = "its file system hangs; set XDG_RUNTIME_DIR to another directory";
            (Vec::new(), vec![CheckResult::fail(SECTION, CHECK, "no response within 5 s", advice)])
        }
    }
}

/// Returns whether a relay could listen there.
async fn address(addr: &BindAddr, relays: &[(PathBuf, Running)]) -> Vec<CheckResult> {
    let (BindAddr::Tcp(socket) | BindAddr::Tls(socket)) = addr else { return Vec::new() };
    let is_it = |used: &String| used.parse::<BindAddr>().is_ok_and(|used| used == *addr);
    let own = relays.iter().find(|(_, relay)| relay.addresses.iter().any(is_it));
    if let Some((_, relay)) = own {
        return vec![CheckResult::ok(
            SECTION,
            "address",
            format!("{socket} is used by your relay {}", relay.pid),
        )];
    }
    vec![match TcpListener::bind(socket).await {
        Ok(_) => CheckResult::ok(SECTION, "address", format!("{socket} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => CheckResult::fail(
            SECTION,
            "address",
            format!("{socket} is in use by {}", holder(*socket)),
            format!("choose another port: relay --bind {}", next_port(*socket)),
        ),
        Err(error) => CheckResult::fail(
            SECTION,
            "address",
            format!("{socket}: {error}"),
            "choose another address with --bind",
        ),
    }]
}

/// Returns the program that listens on a port.
fn holder(socket: SocketAddr) -> String {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let uid = tables.iter().find_map(|path| listener(&std::fs::read_to_string(path).ok()?, socket));
    match uid {
        Some(uid) if uid == rustix::process::getuid().as_raw() => "another program of yours".to_owned(),
        Some(uid) => user::name_of(uid).map_or_else(|| format!("uid {uid}"), |name| format!("user {name}")),
        None => "another program".to_owned(),
    }
}

/// Returns the address with another port.
fn next_port(socket: SocketAddr) -> SocketAddr {
    SocketAddr::new(socket.ip(), socket.port().wrapping_add(1).max(1024))
}

/// The uid that listens on an address, or on every address with its port, by a table of `/proc/net`.
fn listener(table: &str, socket: SocketAddr) -> Option<u32> {
    const LISTEN: &str = "0A";
    table.lines().skip(1).find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, local, _, LISTEN, _, _, _, uid, ..] = *words else { return None };
        let local = local_address(local)?;
        let is_it =
            local.port() == socket.port() && (local.ip() == socket.ip() || local.ip().is_unspecified());
        is_it.then(|| uid.parse().ok())?
    })
}

/// An address as `/proc/net/tcp` and `tcp6` have it: words of 32 bits in the order of this machine, and the port.
fn local_address(raw: &str) -> Option<SocketAddr> {
    let (ip, port) = raw.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(8 * at..8 * at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let words: Vec<_> = (0..4).map(word).collect::<Option<_>>()?;
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// Relays that run, and how to reach them.
async fn running(context: &Context, relays: &[(PathBuf, Running)]) -> Vec<CheckResult> {
    let mut found = Vec::new();
    for (socket, relay) in relays {
        let connects = async {
            match UnixStream::connect(socket).await {
                Ok(_) => Vec::new(),
                Err(error) => vec![CheckResult::warn(
                    SECTION,
                    "private socket",
                    format!("{}: {error}", socket.display()),
                    "commands such as `relay share` need it; restart the relay",
                )],
            }
        };
        let text = format!("pid {}, version {}, watches {}", relay.pid, relay.version, relay.watches);
        found.push(match relay.version.as_str() == env!("CARGO_PKG_VERSION") {
            true => CheckResult::ok(SECTION, "running relay", text),
            false => {
                let advice =
                    format!("this program is version {}; restart the relay", env!("CARGO_PKG_VERSION"));
                CheckResult::warn(SECTION, "running relay", text, advice)
            }
        });
        found.extend(limited((SECTION, "private socket"), Duration::from_secs(5), connects).await);
        // The private socket first, as the relay recommends it: no other user can listen there meanwhile.
        let tunnel = relay.own_tunnel.as_deref().unwrap_or(&relay.tunnel);
        let tunnel = Some(tunnel).filter(|line| !line.is_empty());
        found
            .extend(tunnel.map(|line| CheckResult::ok(SECTION, "tunnel", format!("on your laptop: {line}"))));
    }
    if relays.is_empty() {
        found.push(CheckResult::ok(SECTION, "running relay", "none; `relay` starts one"));
        let first = context.config.bind.first();
        let tunnel = first.and_then(|addr| terminal::tunnel(addr, &context.user, &context.machine));
        let text = "`relay` prints the line for your laptop, to its private socket";
        found.extend(tunnel.map(|_| CheckResult::ok(SECTION, "tunnel", text)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_that_is_too_low_is_named() {
        let command = |files, processes| raised_limits(files, processes).unwrap_or_default();
        let both = format!("ulimit -n {FILES}; ulimit -u {PROCESSES}");
        assert_eq!(command(FILES - 1, PROCESSES - 1), both);
        assert_eq!(command(FILES - 1, PROCESSES), format!("ulimit -n {FILES}"));
        assert_eq!(command(FILES, PROCESSES - 1), format!("ulimit -u {PROCESSES}"));
        assert_eq!(raised_limits(FILES, u64::MAX), None);
    }

    #[tokio::test]
    async fn a_port_in_use_is_named_with_its_user() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = BindAddr::Tcp(taken.local_addr().unwrap());
        let found = address(&addr, &[]).await;
        assert!(found[0].text.ends_with("is in use by another program of yours"), "{found:?}");
        drop(taken);
        assert_eq!(address(&addr, &[]).await[0].level, super::super::Level::Ok);
    }

    #[test]
    fn the_listener_is_found_in_the_table_of_the_kernel() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n\
                        0: 0100007F:1F90 0100007F:A1B2 01 00000000:00000000 00:00000000 00000000  1000 0 1\n\
                        1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001 0 2\nshort\n";
        let at = |text: &str| listener(table, text.parse().unwrap());
        assert_eq!(
            (at("127.0.0.1:8080"), at("127.0.0.1:8081"), at("127.0.0.2:8080")),
            (Some(1001), None, None)
        );
        let every = "head\n 0: 00000000000000000000000000000000:1F90 0:0 0A 0:0 00:0 0 1002 0 3\n\
                          1: 00000000000000000000000001000000:1F91 0:0 0A 0:0 00:0 0 1003 0 4\n";
        let at = |text: &str| listener(every, text.parse().unwrap());
        assert_eq!(
            (at("127.0.0.1:8080"), at("[::1]:8081"), at("127.0.0.1:8081")),
            (Some(1002), Some(1003), None)
        );
    }

    #[tokio::test]
    async fn a_relay_on_another_port_does_not_hold_the_one_that_begins_alike() {
        let relay = |address: &str| {
            let text = format!(
                r#"{{"pid":7,"version":"","since_s":0,"watches":"","addresses":["{address}"],"links":[],"tunnel":""}}"#
            );
            (PathBuf::new(), serde_json::from_str::<Running>(&text).unwrap())
        };
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = taken.local_addr().unwrap();
        let addr = BindAddr::Tcp(socket);
        let ours = address(&addr, &[relay(&socket.to_string())]).await;
        assert!(ours[0].text.contains("your relay 7"), "{ours:?}");
        // Port 8080 contains the text of port 808.
        let other = address(&addr, &[relay(&format!("{socket}0"))]).await;
        assert!(other[0].text.contains("another program"), "{other:?}");
        assert_eq!(next_port("[::1]:8080".parse().unwrap()).to_string(), "[::1]:8081");
    }
}
