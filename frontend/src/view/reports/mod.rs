//! Reports: of one job, of several side by side, of what all jobs used, and of who viewed and acted.

pub mod audit_page;
pub mod compare;
mod curve_plot;
mod curves;
pub mod job_report;
pub mod load;
mod overlay;
mod parts;
mod usage_jobs;
pub mod usage_page;
