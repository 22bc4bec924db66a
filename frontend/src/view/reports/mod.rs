//! Reports: of one job, of several side by side, of what all jobs used, and of who viewed and acted.

pub mod audit_page;
pub mod compare;
mod course;
pub mod job_report;
mod load;
mod overlay;
pub mod usage_page;
