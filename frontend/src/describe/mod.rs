//! Details as groups of facts. Each fact has a value, or a reason why it is missing.

pub mod audit;
pub mod capture;
pub mod commands;
pub mod comparison;
mod fact;
pub mod finding;
pub mod finding_message;
pub mod gpu;
pub mod gpu_health;
pub mod host;
pub mod job;
pub mod node_fault;
pub mod note;
pub mod process;
pub mod progress;
pub mod report;
pub mod share;
pub mod throttle;

pub use fact::{Emphasis, Fact, FactGroup, bytes};
