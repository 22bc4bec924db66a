//! Callers of the HTTP API: authentication by bearer token, and the budget of a guest's requests.

use super::problem::{Problem, rate_limited};
use crate::origin_check::{has_bearer, is_of_program, is_own_origin};
use crate::pacing::CpuBudget;
use crate::{Connection, WebState};
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use nodeglass_auth::authenticator::{AuthError, RateLimited};
use nodeglass_protocol::Text;
use nodeglass_protocol::live::CloseReason;
use nodeglass_share::{AccessGrant, Viewer};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// Minimum cost of a guest's request, also of a refused one: authentication, and the question to the event loop and
/// the database.
pub const MIN_COST: Duration = Duration::from_micros(300);

/// Authenticated by `Authorization: Bearer KEY`, `Bearer ID.KEY` of a share, or a token; on the relay of a site, a person
/// identified by the connection.
#[derive(Debug)]
pub struct Caller {
    grant: AccessGrant,
    budget: CpuBudget,
}

/// Reason for refusing a person what only the relay's own account receives.
const OPERATORS_ONLY: &str = "only the operators of this relay may request this, with its key";

/// Authenticated by the owner's key.
#[derive(Debug)]
pub struct Owner;

/// Authenticated by the owner's key or a token.
#[derive(Debug)]
pub struct Reader;

/// The cost of a guest's request, charged when it is dropped, so that a refused request is charged, too.
#[derive(Debug)]
pub struct Charge {
    budget: Option<CpuBudget>,
    began: Instant,
    elsewhere: Duration,
    bytes: usize,
    /// Released once the request is charged.
    _turn: Option<OwnedSemaphorePermit>,
}

impl Caller {
    /// Returns the caller's grant.
    pub fn grant(&self) -> AccessGrant {
        self.grant.clone()
    }

    /// Returns whether it has neither the owner's key nor a token.
    pub fn is_restricted(&self) -> bool {
        self.grant.is_of_guest()
    }

    /// Refuses a guest, who is charged for it.
    async fn refuse_guest(&self, why: &str) -> Response {
        if let Some(limit) = exhausted(&self.budget) {
            return rate_limited(limit).await;
        }
        self.budget.charge(2 * MIN_COST, 0);
        Problem::new(StatusCode::FORBIDDEN, why).into()
    }

    /// Returns the caller as a viewer, and the charge for the request.
    ///
    /// # Errors
    /// The response for a guest whose budget is used up.
    pub async fn begin(self, web: &WebState) -> Result<(Viewer, Charge), Response> {
        let viewer = web.shares.viewer(&self.grant);
        let budget = viewer.is_restricted().then_some(self.budget);
        let mut turn = None;
        if let Some(budget) = &budget {
            // One at a time: simultaneous requests would all pass before the first one is charged.
            turn = budget.turn().await;
            let is_late = turn.is_none().then_some(RateLimited::TooOften { after_ms: 1_000 });
            if let Some(limit) = exhausted(budget).or(is_late) {
                drop(turn);
                return Err(rate_limited(limit).await);
            }
        }
        let charge = Charge { budget, began: Instant::now(), elsewhere: MIN_COST, bytes: 0, _turn: turn };
        Ok((viewer, charge))
    }
}

impl Charge {
    /// Adds time that another task spent on the request.
    pub fn add(&mut self, spent: Duration) {
        self.elsewhere += spent;
    }

    /// Sets the length of the response.
    pub fn sends(&mut self, bytes: usize) {
        self.bytes = bytes;
    }

    /// Excludes time in which the response waited for the caller to read.
    pub fn waited(&mut self, waited: Duration) {
        self.began += waited;
    }

    /// Starts to measure the caller's own work; waiting before does not count.
    pub fn restart(&mut self) {
        self.began = Instant::now();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.charge(2 * (self.began.elapsed() + self.elsewhere), self.bytes);
        }
    }
}

/// Returns why a guest's request has to wait.
fn exhausted(budget: &CpuBudget) -> Option<RateLimited> {
    let now = Instant::now();
    let due = budget.next_at(now);
    (due > now).then(|| {
        let after_ms = u64::try_from((due - now).as_millis()).unwrap_or(u64::MAX);
        RateLimited::TooOften { after_ms }
    })
}

impl FromRequestParts<WebState> for Caller {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, web: &WebState) -> Result<Self, Response> {
        let Ok(connection) = Connection::from_request_parts(parts, web).await;
        // On the connection of an owner's proxy, that header is the proxy's own.
        let has_key = has_bearer(&parts.headers) && !connection.is_owners();
        if web.is_keyless(&connection) && !has_key {
            let grant = if is_own_origin(parts) { web.keyless_grant(&connection).await } else { None };
            let grant = grant.ok_or_else(|| forbidden(&CloseReason::NotIdentified))?;
            connection.mark_authenticated();
            return Ok(Self { grant, budget: connection.budget() });
        }
        let authorization = only_authorization(&parts.headers);
        let result = web.authenticator.bearer(authorization, connection.origin(), web.about.clock.now_ms());
        match result {
            Ok(grant) => {
                // A single response does not need an authenticated permit, so the result is ignored.
                connection.mark_authenticated();
                if let AccessGrant::Guest(share) = &grant {
                    web.audit.api_request(share, connection.identity());
                }
                Ok(Self { grant, budget: connection.budget() })
            }
            Err(AuthError::RateLimited(why)) => Err(rate_limited(why).await),
            Err(AuthError::WrongKey) => Err(wrong_key()),
            Err(AuthError::TokenOfAnother(user)) => Err(token_of_another(&user).into()),
            Err(AuthError::Forbidden(close_reason)) => Err(forbidden(&close_reason).into()),
        }
    }
}

impl OptionalFromRequestParts<WebState> for Caller {
    type Rejection = Response;

    /// `None` if the request has no key; a wrong one is refused.
    async fn from_request_parts(parts: &mut Parts, web: &WebState) -> Result<Option<Self>, Response> {
        let Ok(connection) = Connection::from_request_parts(parts, web).await;
        if !is_of_program(&parts.headers, &connection) {
            return Ok(None);
        }
        <Self as FromRequestParts<WebState>>::from_request_parts(parts, web).await.map(Some)
    }
}

impl FromRequestParts<WebState> for Owner {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, web: &WebState) -> Result<Self, Response> {
        let caller = <Caller as FromRequestParts<WebState>>::from_request_parts(parts, web).await?;
        match caller.grant {
            AccessGrant::Owner => Ok(Self),
            AccessGrant::Token(_) => {
                let why = "a token is read-only; use the owner's key, which `relay link` prints";
                Err(Problem::new(StatusCode::FORBIDDEN, why).into())
            }
            AccessGrant::Guest(_) => Err(caller.refuse_guest("a share is read-only").await),
            AccessGrant::Person(_) => Err(caller.refuse_guest(OPERATORS_ONLY).await),
        }
    }
}

impl FromRequestParts<WebState> for Reader {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, web: &WebState) -> Result<Self, Response> {
        let caller = <Caller as FromRequestParts<WebState>>::from_request_parts(parts, web).await?;
        match caller.grant {
            AccessGrant::Owner | AccessGrant::Token(_) => Ok(Self),
            AccessGrant::Guest(_) => Err(caller.refuse_guest("a share does not show this").await),
            AccessGrant::Person(_) => Err(caller.refuse_guest(OPERATORS_ONLY).await),
        }
    }
}

fn only_authorization(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn wrong_key() -> Response {
    let challenge = [(WWW_AUTHENTICATE, "Bearer realm=\"nodeglass\"")];
    let why = "send the key of the relay's link: `Authorization: Bearer KEY`";
    (challenge, Problem::new(StatusCode::UNAUTHORIZED, why)).into_response()
}

fn token_of_another(user: &Text) -> Problem {
    let why = format!(
        "this token is for programs of {user}, and the kernel or the proxy does not identify you as {user}; \
         the owner creates one for you by `relay token create NAME --to USER`"
    );
    Problem::new(StatusCode::FORBIDDEN, why)
}

fn forbidden(reason: &CloseReason) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, reason.to_string())
}
