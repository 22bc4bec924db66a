//! The commands besides running a relay: each queries a running one, reads its database, or converts its recording.

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
pub mod service;
mod share_output;
pub mod token_command;
pub mod version;

use hyper::StatusCode;
use nodeglass_api::NotOneJob;
use nodeglass_app::remote::Refused;
use queries::exit_code::{FAILURE, NOT_MET};

/// Something that a command names does not exist. The message is a complete sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotFound(String);

/// The exit code of a command that failed.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    let is_refused = |refused: &Refused| refused.status == StatusCode::NOT_FOUND;
    let is_missing = error.is::<NotFound>()
        || matches!(error.downcast_ref(), Some(NotOneJob::None(_)))
        || error.downcast_ref().is_some_and(is_refused);
    if is_missing { NOT_MET } else { FAILURE }
}
