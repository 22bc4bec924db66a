//! The probe as its relay meets it: a process with pipes, in front of a library with NVML's ABI.

mod endings;
mod faults;
mod harness;
mod processes;
mod questions;
mod readings;
mod succession;
