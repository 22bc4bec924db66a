//! Refuses the parameters of requests that take none, which would otherwise seem to have an effect.

use super::Problem;
use crate::WebState;
use axum::extract::Request;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use nodeglass_protocol::Text;

/// A route whose requests take no parameters.
pub(crate) fn without_parameters(route: MethodRouter<WebState>) -> MethodRouter<WebState> {
    route.route_layer(from_fn(refuse))
}

async fn refuse(request: Request, next: Next) -> Response {
    // Without a key, the answer is that one is needed.
    let has_key = request.headers().contains_key(AUTHORIZATION);
    match request.uri().query().and_then(first_name).filter(|_| has_key) {
        Some(name) => {
            let name = Text::new(name);
            Problem::bad_request(format!("there is no parameter {:?}; this takes none", name.as_str()))
                .into_response()
        }
        None => next.run(request).await,
    }
}

/// The name of the first parameter, as it is written; `None` if there is none.
fn first_name(query: &str) -> Option<&str> {
    query.split('&').find(|part| !part.is_empty()).map(|part| part.split('=').next().unwrap_or(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_parameter_is_named() {
        assert_eq!(first_name("job=17&node=n1"), Some("job"));
        assert_eq!((first_name("&&x"), first_name("=1")), (Some("x"), Some("")));
        assert_eq!((first_name(""), first_name("&")), (None, None));
    }
}
