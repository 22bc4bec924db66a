//! Named tokens over HTTP, for the owner.

use super::{Owner, Problem};
use crate::WebState;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use nodeglass_api::{CreatedToken, NewToken, Timestamp, Token};
use nodeglass_auth::tokens::{TokenError, TokenInfo, TokenUser};
use nodeglass_platform::clock::Clock;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Time limit of a change; another relay may hold the lock for half of it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The tokens that have not expired, for the owner.
#[utoipa::path(get, path = "/api/v1/tokens", tag = "owner", operation_id = "tokens",
    responses((status = 200, body = Vec<Token>)))]
pub async fn tokens(State(web): State<WebState>, _: Owner) -> Result<Json<Vec<Token>>, Problem> {
    let tokens = web.authenticator.tokens().clone();
    let listed = on_disk(move || tokens.list(Clock::wall_ms())).await?;
    Ok(Json(listed.iter().map(token).collect()))
}

/// Creates a token; its secret is in this response only.
#[utoipa::path(post, path = "/api/v1/tokens", tag = "owner", operation_id = "create_token", request_body = NewToken,
    responses((status = 200, body = CreatedToken)))]
pub async fn create(
    State(web): State<WebState>,
    _: Owner,
    request: Result<Json<NewToken>, JsonRejection>,
) -> Result<Json<CreatedToken>, Problem> {
    let Json(NewToken { name, days, user, any_user }) =
        request.map_err(|error| Problem::body(&error, "{\"name\":\"grafana\",\"days\":90}"))?;
    let user = match (user, any_user) {
        (Some(_), true) => return Err(Problem::bad_request("name a user, or any_user, not both")),
        (Some(name), false) => TokenUser::Named(name),
        (None, true) => TokenUser::Anyone,
        (None, false) => TokenUser::Owner,
    };
    let tokens = web.authenticator.tokens().clone();
    let is_stored = tokens.are_stored();
    let (info, ticket) = on_disk(move || tokens.create(&name, days, &user, Clock::wall_ms())).await?;
    tracing::info!(name = info.name, "token created");
    Ok(Json(CreatedToken { token: token(&info), secret: ticket.reveal(), is_stored }))
}

/// Revokes a token at once.
#[utoipa::path(delete, path = "/api/v1/tokens/{name}", tag = "owner", operation_id = "revoke_token",
    params(("name" = String, Path, description = "Name of the token")),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn revoke(
    State(web): State<WebState>,
    _: Owner,
    Path(name): Path<String>,
) -> Result<String, Problem> {
    let (tokens, revoked) = (web.authenticator.tokens().clone(), name.clone());
    on_disk(move || tokens.revoke(&revoked)).await?;
    tracing::info!(name, "token revoked");
    Ok(format!("token {name} is revoked\n"))
}

/// Runs what waits for the disk.
async fn on_disk<T: Send + 'static>(
    access: impl FnOnce() -> Result<T, TokenError> + Send + 'static,
) -> Result<T, Problem> {
    let done = timeout(TIMEOUT, spawn_blocking(access)).await;
    let done = done.map_err(|_| Problem::late("the disk of the state directory"))?;
    done.map_err(|_| Problem::shutting_down())?.map_err(|error| problem(&error))
}

fn token(info: &TokenInfo) -> Token {
    Token {
        name: info.name.clone(),
        created_at: Timestamp::from_millis(info.created_ms),
        expires_at: info.expires_ms.map(Timestamp::from_millis),
        last_used_at: info.used_ms.map(Timestamp::from_millis),
        user: info.user.clone(),
    }
}

fn problem(error: &TokenError) -> Problem {
    let status = match error {
        TokenError::Unknown(_) => StatusCode::NOT_FOUND,
        TokenError::Exists(_) => StatusCode::CONFLICT,
        TokenError::Name | TokenError::Lifetime | TokenError::NoSuchUser(_) => StatusCode::BAD_REQUEST,
        TokenError::TooMany => StatusCode::UNPROCESSABLE_ENTITY,
        TokenError::Busy => StatusCode::SERVICE_UNAVAILABLE,
        TokenError::Random(_) | TokenError::StateDir(_) | TokenError::File(_) | TokenError::Damaged(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    Problem::new(status, error.to_string())
}
