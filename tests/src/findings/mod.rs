//! Findings of simulated clusters: labelled scenarios, and how they are judged.

mod cases;
mod judge;
mod run;

pub use cases::{Case, Expected, all};
pub use judge::{Summary, Tally};
pub use run::{Observed, play};
