//! The commands besides running a relay: each asks one that runs, reads what it stored, or converts what it recorded.

pub mod audit_log;
mod job_columns;
pub mod job_reports;
mod job_tables;
pub mod mcp;
mod named_job;
pub mod note_command;
pub mod notify_command;
pub mod owner_commands;
pub mod queries;
pub mod second_start;
mod share_output;
pub mod token_command;
