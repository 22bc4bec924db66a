//! Foundations of the relay's crates: clocks, bounded access to files, and values of the machine.
//!
//! [`clock`] is the relay's monotonic clock and [`local_time`] the user's; [`private_file`] reads secrets; [`program`] finds programs;
//! [`token_bucket`] paces what is repeated. [`state_dir`], [`regular_file`] and [`frame_file`] store what outlives a relay, [`disk_thread`] writes it, and
//! [`loss_count`] counts what it could not. [`memory`] reads and returns memory, [`cpu_time`] reads the time of this process,
//! [`cgroup`] its limits, which [`own_cgroup`] sets; [`priority`] lowers that of a thread, and [`wrap`] breaks text into lines.

pub mod cgroup;
pub mod clock;
pub mod cpu_time;
pub mod disk_thread;
pub mod frame_file;
pub mod local_time;
pub mod loss_count;
pub mod memory;
pub mod own_cgroup;
pub mod priority;
pub mod private_file;
pub mod program;
pub mod random;
pub mod regular_file;
pub mod state_dir;
pub mod token_bucket;
pub mod wrap;
