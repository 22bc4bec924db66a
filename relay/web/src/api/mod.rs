//! The HTTP API: what the page shows, as JSON for programs, and what the owner may change.
//!
//! [`openapi`] describes all of it; errors are [`problem`] details. The caller is authenticated by a bearer token
//! ([`caller`]), and sees what the page shows them.

mod audit;
mod caller;
mod events;
mod everything;
mod history;
pub(super) mod long_term;
mod metrics;
mod named_job;
pub mod notes;
pub mod openapi;
mod owner;
mod parameters;
mod picture;
pub mod problem;
mod reply;
mod reports;
mod resources;
mod shares;
pub mod silences;
mod status;
pub mod tokens;

pub use audit::audit;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
pub(super) use caller::{Caller, Owner, Reader};
pub use events::events;
pub(super) use events::token_ended;
pub use history::history;
pub use metrics::{metrics, series};
use nodeglass_protocol::request;
pub use openapi::document;
pub use owner::{retry, tab_link};
pub(super) use parameters::without_parameters;
pub use picture::picture;
pub(super) use problem::{Problem, method_not_allowed, rate_limited};
pub use reports::{faults, report, usage};
pub use resources::{findings, gpu, gpus, job, jobs, node, nodes, processes, snapshot};
pub use shares::{revoke, share, share_link, shares};
pub use status::{ready, status};

/// The response to a request that the action service performed.
pub(super) fn respond(response: request::Response) -> Response {
    match response {
        request::Response::Share(link) => Json(link).into_response(),
        request::Response::Audit(log) => Json(log).into_response(),
        request::Response::Done(done) => format!("{done}\n").into_response(),
        request::Response::Refused(why) => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why.to_string()).into_response()
        }
        request::Response::Note(saved) => Json(saved).into_response(),
        request::Response::Process(_)
        | request::Response::Tail(_)
        | request::Response::Capture(_)
        | request::Response::Processes(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
