//! The cluster's state at any time: SLURM's schedule, and the workload of each GPU.

pub(crate) mod activity;
pub(crate) mod job_control;
pub(crate) mod schedule;
pub(crate) mod workload;
