//! Files of `/proc/PID` that both the host's and the processes' readings are derived from.

pub(crate) mod devices;
pub(crate) mod environ;
pub(crate) mod job;
