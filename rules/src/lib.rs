//! Rules and texts that page, terminal and probe share, so that all say the same of a picture. Pure, for wasm32 too.
//!
//! * [`severity`], [`flags`], [`throttle`], [`health`] — how good or bad a state is, and its words.
//! * [`job_events`], [`job_names`], [`run`] — starts and ends of jobs, what a job is called, and when it ran.
//! * [`outcome`], [`xid`] — what the end of a job and the numbers of the driver mean.
//! * [`attention`], [`cost`] — which findings are one entry of a list, and what a finding costs.
//! * [`gpu_hours`] — how many hours of GPUs were observed, and what became of them.
//! * [`peers`], [`limits`] — how far a GPU is from others of its job, whether it is slow, and by which limits.
//! * [`ownership`], [`totals`] — which GPUs belong to a job, and sums over them.
//! * [`number`], [`text`], [`csv`] — quantities, durations and names; cells of a table for spreadsheets.
//! * [`backoff`] — how long to wait after failures.

pub mod attention;
pub mod backoff;
pub mod cost;
pub mod csv;
pub mod flags;
pub mod gpu_hours;
pub mod health;
pub mod job_events;
pub mod job_names;
pub mod limits;
pub mod node_check;
pub mod number;
pub mod outcome;
pub mod ownership;
pub mod peers;
pub mod run;
pub mod severity;
pub mod text;
pub mod throttle;
pub mod totals;
pub mod xid;
