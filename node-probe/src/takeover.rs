//! Handover from an old probe to a new one of the same relay: after a broken link no sample is lost
//! and no probe is left over.
//!
//! The old probe listens on an abstract Unix socket named after user and relay. The new probe
//! connects to it on startup; the old one sends its state and its ring and exits. Both verify the
//! peer's uid.

use crate::{
    loop_event::LoopEvent,
    ring::{Ring, RingEntry},
    sampler::HandoverState,
};
use nodeglass_protocol::GpuUuid;
use nodeglass_protocol::probe::ProbeLine;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt::socket_peercred,
};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    os::linux::net::SocketAddrExt,
    os::unix::net::{SocketAddr, UnixListener, UnixStream},
    str::FromStr,
    sync::mpsc::Sender,
    thread,
    time::Duration,
};

/// Timeout of either side.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Number of attempts to bind the socket, ten per second, while another probe holds the name.
const BIND_TRIES: u32 = 50;
/// Maximum size of a handover, in bytes.
const MAX_BYTES: u64 = 8 << 20;
/// Stack size of the listening thread.
const STACK: usize = 64 << 10;

/// Identifies a relay, whose probes on a node succeed one another. Not a secret: it is visible in
/// the arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayId(String);

impl FromStr for RelayId {
    type Err = String;

    fn from_str(raw: &str) -> Result<Self, String> {
        let ok = (1..=64).contains(&raw.len()) && raw.bytes().all(|byte| byte.is_ascii_hexdigit());
        if ok { Ok(Self(raw.to_ascii_lowercase())) } else { Err("a relay id is 1 to 64 hex digits".into()) }
    }
}

impl RelayId {
    fn socket_name(&self) -> String {
        format!("nodeglass-probe/{}/{}", rustix::process::geteuid().as_raw(), self.0)
    }
}

#[derive(Serialize, Deserialize)]
struct HandoverHeader {
    stream: u64,
    next_seq: u64,
    // Older probes do not send it.
    #[serde(default)]
    gpus: Vec<GpuUuid>,
}

/// Requests the state of an older probe of this relay; `None` if there is none or it does not
/// respond.
pub fn request_handover(relay: &RelayId) -> Option<HandoverState> {
    let socket = connect_to(relay).ok().filter(is_own)?;
    socket.set_read_timeout(Some(TIMEOUT)).ok()?;
    parse(BufReader::new(socket.take(MAX_BYTES)))
}

/// Connects without waiting: another user may have bound the name, and accept nothing.
fn connect_to(relay: &RelayId) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(relay.socket_name().as_bytes())?)?;
    let socket = UnixStream::from(socket);
    socket.set_nonblocking(false)?;
    Ok(socket)
}

fn parse(input: impl BufRead) -> Option<HandoverState> {
    let mut lines = input.split(b'\n').map_while(Result::ok);
    let header: HandoverHeader = serde_json::from_slice(&lines.next()?).ok()?;
    let mut ring = Ring::default();
    // Lines of another version are skipped; the rest is still useful.
    for line in lines {
        if let Ok(ProbeLine::Sample(sample)) = serde_json::from_slice::<ProbeLine>(&line) {
            let line = [&line[..], b"\n"].concat().into();
            let is_full = sample.since.is_none();
            ring.push(RingEntry { seq: sample.seq, mono_ns: sample.mono_ns, is_full, line });
        }
    }
    let HandoverHeader { stream, next_seq, gpus } = header;
    Some(HandoverState { stream, next_seq, ring, gpus })
}

/// Starts listening for a newer probe, which arrives as [`LoopEvent::Successor`].
///
/// # Errors
/// If no thread can be started. If the name is in use, only the handover is unavailable.
pub fn listen(relay: &RelayId, events: Sender<LoopEvent>) -> io::Result<()> {
    let address = SocketAddr::from_abstract_name(relay.socket_name())?;
    let wait = move || {
        let successor = bound(&address).and_then(|listener| listener.incoming().flatten().find(is_own));
        // The name is free again at this point, as required by the successor's own successor.
        if let Some(successor) = successor {
            let _ = events.send(LoopEvent::Successor(successor));
        }
    };
    thread::Builder::new().name("takeover".into()).stack_size(STACK).spawn(wait).map(drop)
}

fn bound(address: &SocketAddr) -> Option<UnixListener> {
    (0..BIND_TRIES).find_map(|_| {
        let listener = UnixListener::bind_addr(address).ok();
        if listener.is_none() {
            thread::sleep(Duration::from_millis(100));
        }
        listener
    })
}

/// Any user can bind or connect to an abstract name, so the peer must have our uid.
fn is_own(socket: &UnixStream) -> bool {
    socket_peercred(socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Sends the state to a newer probe; what it does not read in time is lost.
///
/// # Errors
/// If the peer is gone or does not read.
pub fn hand_over(socket: UnixStream, state: &HandoverState) -> io::Result<()> {
    socket.set_write_timeout(Some(TIMEOUT))?;
    write_state(BufWriter::new(socket), state)
}

fn write_state(mut output: impl Write, state: &HandoverState) -> io::Result<()> {
    let HandoverState { stream, next_seq, ring, gpus } = state;
    let header = HandoverHeader { stream: *stream, next_seq: *next_seq, gpus: gpus.clone() };
    serde_json::to_writer(&mut output, &header)?;
    output.write_all(b"\n")?;
    ring.iter().try_for_each(|entry| output.write_all(&entry.line))?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::encode;
    use nodeglass_protocol::probe::Sample;
    use proptest::prelude::*;

    fn ring(numbers: std::ops::Range<u64>) -> Ring {
        let mut ring = Ring::default();
        for seq in numbers {
            let sample = Sample { seq, mono_ns: seq * 1_000_000_000, ..Sample::default() };
            let mut line = Vec::new();
            encode(&ProbeLine::Sample(Box::new(sample)), &mut line);
            ring.push(RingEntry { seq, mono_ns: seq * 1_000_000_000, is_full: true, line: line.into() });
        }
        ring
    }

    #[test]
    fn the_whole_state_is_handed_over() {
        let mut bytes = Vec::new();
        let gpus = vec![GpuUuid::new("GPU-1")];
        let old = HandoverState { stream: u64::MAX, next_seq: 90, ring: ring(5..90), gpus };
        write_state(&mut bytes, &old).unwrap();
        let state = parse(&bytes[..]).unwrap();
        assert_eq!((state.stream, state.next_seq, &state.gpus), (u64::MAX, 90, &old.gpus));
        assert!(state.ring.iter().eq(old.ring.iter()));
        assert!(parse(&b"{\"stream\":1,\"next_seq\":2}\n"[..]).is_some(), "of an older probe");
    }

    #[test]
    fn t16_a_name_that_another_program_holds_and_does_not_serve_delays_no_start() {
        let relay: RelayId = format!("{:x}", std::process::id()).parse().unwrap();
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let name = SocketAddrUnix::new_abstract_name(relay.socket_name().as_bytes()).unwrap();
        rustix::net::bind(&socket, &name).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        // The queue has room for one.
        let waiting = connect_to(&relay).unwrap();
        assert_eq!(connect_to(&relay).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(request_handover(&relay).is_none());
        drop(waiting);
    }

    #[test]
    fn a_relay_id_is_hex() {
        assert!("0123abcDEF".parse::<RelayId>().is_ok());
        for bad in ["", "xyz", "../x", &"a".repeat(65)] {
            assert!(bad.parse::<RelayId>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_handover_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            parse(&bytes[..]);
        }
    }
}
