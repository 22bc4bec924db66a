//! Findings of simulated clusters and of recorded telemetry: labelled scenarios, and how they are judged.

mod cases;
mod judge;
mod logs;
mod recorded;
mod run;

pub use cases::{Case, Expected, all, ten_days};
pub use judge::{Summary, Tally};
pub use recorded::play_traces;
pub use run::{Observed, Play, play};
