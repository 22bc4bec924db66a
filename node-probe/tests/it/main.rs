//! The probe as seen by its relay: a process with pipes, in front of a library with NVML's ABI.

mod amd;
mod captures;
mod divided;
mod endings;
mod everything;
mod faults;
mod harness;
mod health;
mod host;
mod intel;
mod inventory;
mod misbehaving;
mod notes;
mod once;
mod panics;
mod partitions;
mod pcie;
mod processes;
mod readings;
mod requests;
mod sources;
mod succession;
mod sysfs;
mod tpu;
mod unread;
mod usage;
