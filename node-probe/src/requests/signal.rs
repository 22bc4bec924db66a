//! Sends signals through a pidfd that is opened before the start time is checked, so that a reused
//! pid is never signalled.

use super::{GONE, ProcReader};
use nodeglass_protocol::process::ProcessState;
use nodeglass_protocol::request::{ProcessRef, Response, Signal};
use rustix::{
    io::Errno,
    process::{self, Pid, PidfdFlags},
};

impl ProcReader {
    /// Sends a signal to an own process.
    pub(super) fn send(&self, process: ProcessRef, signal: Signal) -> Response {
        match self.try_send(process, signal) {
            Ok(name) => Response::Done(format!("sent {} to {} ({name})", signal.name(), process.pid).into()),
            Err(why) => Response::Refused(why.into()),
        }
    }

    /// Returns the name of the signalled process.
    fn try_send(&self, process: ProcessRef, signal: Signal) -> Result<String, String> {
        // Pid 1 is never part of a job, and 0 would address a process group.
        let pid = i32::try_from(process.pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
        let pid = pid.ok_or("a signal cannot be sent to this process")?;
        if process.pid == std::process::id() {
            return Err("that is the probe itself".into());
        }
        // From here on the descriptor refers to the same process, even if its pid is reused.
        let held = match process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(held) => Some(held),
            // Kernels before 5.3: a few microseconds pass between check and signal.
            Err(Errno::NOSYS) => None,
            Err(Errno::SRCH) => return Err(GONE.into()),
            Err(error) => return Err(format!("failed to hold the process: {error}")),
        };
        let stat = self.find(process).ok_or(GONE)?;
        if !self.is_own(process.pid) {
            return Err("it belongs to another user".into());
        }
        if stat.state == ProcessState::Zombie {
            return Err("it has ended already, and its parent has not noticed".into());
        }
        let number = match signal {
            Signal::Interrupt => process::Signal::INT,
            Signal::Terminate => process::Signal::TERM,
            Signal::Kill => process::Signal::KILL,
        };
        let sent = match held {
            Some(held) => process::pidfd_send_signal(held, number),
            None => process::kill_process(pid, number),
        };
        match sent {
            Ok(()) => Ok(String::from_utf8_lossy(&stat.comm).into_owned()),
            Err(Errno::SRCH) => Err(GONE.into()),
            Err(Errno::PERM) => Err("the system does not allow it".into()),
            Err(error) => Err(format!("failed to send it: {error}")),
        }
    }
}
