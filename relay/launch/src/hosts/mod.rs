//! Machines that the user lists, as a source of nodes beside the jobs of SLURM.
//!
//! [`entry`] parses one entry, [`list`] a whole file, [`file`] reads it within bounds, and [`watch`] follows its
//! changes. What becomes of the list is decided by the fleet.

pub mod entry;
pub mod file;
pub mod list;
pub mod watch;

pub use list::{HostList, ListedHost, ThisMachine};
pub use watch::{HostSource, Listed, UnreadableHosts};
