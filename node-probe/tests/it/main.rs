//! The probe as its relay meets it: a process with pipes, in front of a library with NVML's ABI.

mod divided;
mod endings;
mod everything;
mod faults;
mod harness;
<<<<<<< HEAD
mod health;
=======
mod host;
>>>>>>> 131268d (protocol, probe: resident memory comes from the line that all else comes from; the host's own test)
mod processes;
mod questions;
mod readings;
mod succession;
mod usage;
