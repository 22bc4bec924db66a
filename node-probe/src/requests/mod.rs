//! Requests run on separate threads: a hanging file system blocks neither samples nor other
//! requests.

mod capture;
mod detail;
mod signal;
mod tail;

use crate::{
    loop_event::LoopEvent,
    process::{
        self,
        stat::{self, Stat},
    },
};
use capture::CaptureLimit;
use nodeglass_protocol::probe::ProbeResponse;
use nodeglass_protocol::request::{ProbeRequest, ProcessRef, Response};
use nodeglass_redact::mask;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::Sender,
    },
    thread,
};
use tail::Files;

/// Maximum number of concurrent requests.
const MAX_CONCURRENT: usize = 4;
/// Stack size of a request's thread.
const STACK: usize = 256 << 10;
/// Response for a process that has ended or whose pid was reused.
const GONE: &str = "there is no such process any more";

/// Handles requests of the relay.
#[derive(Debug)]
pub struct RequestHandler {
    events: Sender<LoopEvent>,
    busy: Arc<AtomicUsize>,
    reader: ProcReader,
    files: Arc<Files>,
    captures: Arc<CaptureLimit>,
}

/// Reads processes in `/proc`.
#[derive(Clone, Debug)]
struct ProcReader {
    proc: PathBuf,
    boot_ms: Option<u64>,
    own_uid: u32,
}

impl RequestHandler {
    /// Creates a handler that responds through [`LoopEvent::Response`].
    pub fn new(events: Sender<LoopEvent>) -> Self {
        let reader = ProcReader {
            proc: "/proc".into(),
            boot_ms: process::boot_ms(),
            own_uid: rustix::process::geteuid().as_raw(),
        };
        Self { events, busy: Arc::default(), reader, files: Arc::default(), captures: Arc::default() }
    }

    /// Starts a request; returns a response immediately if it cannot be started.
    pub fn handle(&self, number: u32, request: ProbeRequest) -> Option<ProbeResponse> {
        let refused = |why: &str| Some(ProbeResponse { number, response: Response::Refused(why.into()) });
        let Some(permit) = Permit::acquire(&self.busy) else {
            return refused("earlier requests are still waiting for a file system that does not respond");
        };
        let (events, reader) = (self.events.clone(), self.reader.clone());
        let (files, captures) = (Arc::clone(&self.files), Arc::clone(&self.captures));
        let work = move || {
            let response = reader.respond(&files, &captures, request);
            // The event loop is gone if the probe is ending.
            let _ = events.send(LoopEvent::Response(Box::new(ProbeResponse { number, response })));
            drop(permit);
        };
        match thread::Builder::new().name("answer".into()).stack_size(STACK).spawn(work) {
            Ok(_) => None,
            Err(error) => refused(&format!("failed to start a thread for the request: {error}")),
        }
    }
}

/// Permit of a running request, released on drop.
struct Permit(Arc<AtomicUsize>);

impl Permit {
    fn acquire(busy: &Arc<AtomicUsize>) -> Option<Self> {
        let free = |count: usize| (count < MAX_CONCURRENT).then_some(count + 1);
        busy.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).ok()?;
        Some(Self(Arc::clone(busy)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ProcReader {
    fn respond(&self, files: &Files, captures: &Arc<CaptureLimit>, request: ProbeRequest) -> Response {
        match request {
            ProbeRequest::Process { process, environment } => match self.find(process) {
                Some(stat) => Response::Process(Box::new(self.detail(process.pid, &stat, environment))),
                None => Response::Refused(GONE.into()),
            },
            ProbeRequest::Signal { process, signal } => self.send(process, signal),
            ProbeRequest::Tail { path, after, audience } => {
                Response::Tail(files.tail(Path::new(&path), after, audience))
            }
            ProbeRequest::Capture(request) => self.capture(captures, request),
        }
    }

    /// Returns the process if it still has this pid.
    fn find(&self, process: ProcessRef) -> Option<Stat> {
        let stat = Stat::of(&self.proc, process.pid)?;
        let started_ms = stat::started_ms(self.boot_ms?, stat.started_ticks);
        (started_ms == process.started_ms).then_some(stat)
    }

    fn folder(&self, pid: u32) -> PathBuf {
        self.proc.join(pid.to_string())
    }

    /// Returns whether a process runs as this user, by its real uid; the folder's owner may be root for
    /// other reasons.
    fn is_own(&self, pid: u32) -> bool {
        let status = std::fs::read(self.folder(pid).join("status")).unwrap_or_default();
        let status = String::from_utf8_lossy(&status);
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_ascii_whitespace().next());
        uid.and_then(|uid| uid.parse().ok()) == Some(self.own_uid)
    }

    /// Returns the masked command line of an own process, otherwise the name.
    fn command_of(&self, pid: u32, stat: &Stat) -> String {
        let line = std::fs::read(self.folder(pid).join("cmdline")).ok().filter(|line| !line.is_empty());
        match line.filter(|_| self.is_own(pid)) {
            Some(line) => mask::command_line(&line),
            None => String::from_utf8_lossy(&stat.comm).into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::request::Audience;
    use std::sync::mpsc::channel;

    #[test]
    fn a_hung_request_leaves_permits_for_three_more() {
        let (events, _inbox) = channel();
        let request_handler = RequestHandler::new(events);
        let permits: Vec<_> =
            (0..MAX_CONCURRENT).map(|_| Permit::acquire(&request_handler.busy).unwrap()).collect();
        let request = || ProbeRequest::Tail { path: "/no".into(), after: 0, audience: Audience::Owner };
        assert!(matches!(
            request_handler.handle(7, request()).unwrap(),
            ProbeResponse { number: 7, response: Response::Refused(_) }
        ));
        drop(permits);
        assert_eq!(request_handler.handle(8, request()), None);
    }

    #[test]
    fn a_reused_pid_is_rejected() {
        let (events, inbox) = channel();
        let request_handler = RequestHandler::new(events);
        let own = Stat::of(Path::new("/proc"), std::process::id()).unwrap();
        let started_ms = stat::started_ms(process::boot_ms().unwrap(), own.started_ticks);
        for (started_ms, known) in [(started_ms, true), (started_ms + 10, false)] {
            let process = ProcessRef { pid: std::process::id(), started_ms };
            assert_eq!(
                request_handler.handle(1, ProbeRequest::Process { process, environment: false }),
                None
            );
            let LoopEvent::Response(response) = inbox.recv().unwrap() else {
                unreachable!("only answers come")
            };
            assert_eq!(matches!(response.response, Response::Process(_)), known);
        }
    }
}
