//! The description of the API: OpenAPI 3.1, generated from the handlers and types.

use super::problem::Problem;
use super::{
    audit, events, history, metrics, notes, owner, picture, reports, resources, shares, silences, status,
    tokens,
};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use std::sync::LazyLock;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, OpenApi as Document, Ref, RefOr, ResponseBuilder};
use utoipa::{Modify, OpenApi};

/// All operations of the API.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "nodeglass",
        description = "Every GPU of a SLURM user's jobs, as the relay on the login node sees it. A share's key sees what \
                       its page shows.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    servers((url = "http://127.0.0.1:8080", description = "The relay through an SSH tunnel")),
    tags(
        (name = "state", description = "Current state, and its history"),
        (name = "reports", description = "Usage of jobs"),
        (name = "notes", description = "Notes at moments of jobs"),
        (name = "owner", description = "For the owner's key only"),
        (name = "relay", description = "The relay itself"),
    ),
    paths(
        resources::snapshot, resources::jobs, resources::job, resources::nodes, resources::node, resources::gpus,
        resources::gpu, resources::processes, resources::findings, history::history, events::events, picture::picture,
        reports::report, reports::usage, reports::faults,
        silences::list, silences::silence, notes::list, notes::add, notes::edit, notes::delete,
        shares::shares, shares::share, shares::share_link, shares::revoke, audit::audit, tokens::tokens, tokens::create, tokens::revoke, owner::retry, owner::tab_link,
        status::status, status::ready, metrics::metrics,
    ),
    components(schemas(Problem)),
    security(("key" = [])),
    modifiers(&Common),
)]
struct Api;

/// Properties of all operations: the key, and error responses.
struct Common;

impl Modify for Common {
    fn modify(&self, document: &mut Document) {
        let key = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
            "The owner's key (`#k=` of the link that `relay` prints), `ID.KEY` of a share (`#s=` of its link), or a token of `relay token create`",
        ));
        if let Some(components) = &mut document.components {
            components.add_security_scheme("key", SecurityScheme::Http(key.build()));
        }
        let problem = ResponseBuilder::new()
            .description("A problem: RFC 9457")
            .content(
                "application/problem+json",
                Content::new(Some(RefOr::Ref(Ref::from_schema_name("Problem")))),
            )
            .build();
        for item in document.paths.paths.values_mut() {
            let operations = [&mut item.get, &mut item.post, &mut item.patch, &mut item.delete];
            for operation in operations.into_iter().flatten() {
                describe_responses(operation);
                operation.responses.responses.insert("default".to_owned(), problem.clone().into());
            }
        }
    }
}

/// Describes responses without a description of their own, which OpenAPI requires, as what their operation returns.
fn describe_responses(operation: &mut Operation) {
    for response in operation.responses.responses.values_mut() {
        if let RefOr::T(response) = response
            && response.description.is_empty()
        {
            response.description = operation.summary.clone().unwrap_or_default();
        }
    }
}

/// The description as a value.
pub fn description() -> Document {
    let mut document = Api::openapi();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    document
}

/// The description in JSON, for the file that is committed and for the route.
pub fn text() -> String {
    let mut text = description().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// The description of this API, without authentication: it is the same for everyone.
pub async fn document() -> Response {
    // Anyone may ask, so that the answer must cost little.
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| text().into());
    ([(CONTENT_TYPE, "application/json")], TEXT.clone()).into_response()
}
