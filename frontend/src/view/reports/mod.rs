//! Reports: of one job, of several side by side, and of what all jobs used.

pub mod compare;
mod course;
pub mod job_report;
mod load;
mod overlay;
pub mod usage_page;
