//! Every route requires an allowed host, sends the security headers, and reveals nothing without the key.

use crate::harness::{PORTAL, TestRelay};

/// The source of the router, which lists every route.
const ROUTER: &str = include_str!("../../src/router.rs");

const POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; \
     font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// The paths of all routes.
fn routes() -> Vec<&'static str> {
    let after = ROUTER.split(".route(\"").skip(1);
    after.map(|rest| rest.split('"').next().unwrap_or_default()).collect()
}

/// Every kind of path: the routes, the page's own paths, its files, and unknown ones.
fn all_routes() -> Vec<String> {
    let others = [
        "/",
        "/index.html",
        "/job/17",
        "/node/n1",
        "/app-0123456789abcdef_bg.wasm",
        "/nothing",
        "/api/v1/nothing",
    ];
    let paths = routes().into_iter().chain(others);
    paths.flat_map(|path| ["GET", "HEAD", "POST", "OPTIONS"].map(|m| format!("{m} {path}"))).collect()
}

#[test]
fn the_list_of_routes_is_complete() {
    assert!(routes().len() > 20 && routes().contains(&"/live"), "{:?}", routes());
    assert_eq!(ROUTER.matches(".route(").count(), routes().len());
    assert!(!ROUTER.contains("nest"), "nested routes would not be in the list");
}

#[tokio::test]
async fn t05_a_rebound_name_is_turned_away_on_every_route() {
    let relay = TestRelay::start().await;
    for way in all_routes() {
        for host in ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "10.0.0.1:8080"] {
            let reply =
                relay.send_raw(&format!("{way} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await;
            assert_eq!(reply.status, 421, "{way} at {host}");
        }
    }
}

#[tokio::test]
async fn t05_a_missing_doubled_or_contradicted_host_is_turned_away() {
    let relay = TestRelay::start().await;
    let close = "Connection: close\r\n\r\n";
    for request in [
        format!("GET /healthz HTTP/1.1\r\n{close}"),
        format!("GET /healthz HTTP/1.0\r\n{close}"),
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n{close}"),
        format!("GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n{close}"),
        format!("GET http://localhost/healthz HTTP/1.1\r\nHost: evil.example\r\n{close}"),
    ] {
        assert_eq!(relay.send_raw(&request).await.status, 421, "{request}");
    }
}

#[tokio::test]
async fn loopback_and_allowed_names_are_welcome_with_any_port() {
    let relay = TestRelay::start().await;
    for host in ["localhost", "localhost:9999", "127.0.0.1:1", "[::1]:8080", PORTAL, "Portal.example.org:443"]
    {
        let reply = relay
            .send_raw(&format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
            .await;
        assert_eq!((reply.status, reply.body.as_str()), (200, "ok\n"), "{host}");
    }
}

#[tokio::test]
async fn t07_every_response_has_the_security_headers_and_no_cookie() {
    let relay = TestRelay::start().await;
    let foreign = [("Origin", "http://evil.example"), ("Access-Control-Request-Method", "GET")];
    for way in all_routes() {
        for headers in [&[][..], &foreign] {
            let reply = relay.request(&way, headers).await;
            assert_eq!(reply.header("content-security-policy"), Some(POLICY), "{way}");
            for (name, value) in [
                ("x-content-type-options", "nosniff"),
                ("referrer-policy", "no-referrer"),
                ("cross-origin-opener-policy", "same-origin"),
                ("cross-origin-resource-policy", "same-origin"),
                ("x-frame-options", "DENY"),
            ] {
                assert_eq!(reply.header(name), Some(value), "{way}");
            }
            assert!(reply.header("cache-control").is_some(), "{way}");
            let unwanted = |name: &str| name == "set-cookie" || name.starts_with("access-control-");
            assert!(!reply.headers.iter().any(|(name, _)| unwanted(name)), "{way}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn t03_no_service_worker_script_exists_and_its_storage_is_cleared() {
    let relay = TestRelay::start().await;
    for way in all_routes() {
        let reply = relay.request(&way, &[("Service-Worker", "script")]).await;
        assert_eq!(reply.status, 404, "{way}");
        assert_eq!(reply.header("clear-site-data"), Some("\"storage\", \"cache\""), "{way}");
        let cleared = (way == "GET /clear-cache" || way == "HEAD /clear-cache").then_some("\"cache\"");
        assert_eq!(relay.request(&way, &[]).await.header("clear-site-data"), cleared, "{way}");
    }
}

#[tokio::test]
async fn t33_repeated_fetch_metadata_is_rejected() {
    let relay = TestRelay::start().await;
    for name in ["Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest"] {
        let reply = relay.request("GET /healthz", &[(name, "cross-site"), (name, "same-origin")]).await;
        assert_eq!(reply.status, 400, "{name}");
    }
}

#[tokio::test]
async fn t33_another_sites_page_gets_nothing_but_a_link_may_be_followed() {
    let relay = TestRelay::start().await;
    for site in ["cross-site", "same-site"] {
        for way in all_routes() {
            let reply = relay.request(&way, &[("Sec-Fetch-Site", site), ("Sec-Fetch-Mode", "no-cors")]).await;
            assert_eq!(reply.status, 403, "{way} from {site}");
        }
        let framed = [("Sec-Fetch-Site", site), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "iframe")];
        assert_eq!(relay.request("GET /job/17", &framed).await.status, 403);
        let link = [("Sec-Fetch-Site", site), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")];
        assert_eq!(relay.request("GET /job/17", &link).await.status, 200);
        assert_eq!(relay.request("POST /job/17", &link).await.status, 403);
    }
}

#[tokio::test]
async fn the_picture_is_for_the_bearer_of_the_key() {
    let relay = TestRelay::start().await;
    let path = "GET /api/v1/picture";
    let bearer = |key: &str| format!("Bearer {key}");
    let right = bearer(&relay.key.reveal());
    let reply = relay.request(path, &[("Authorization", &right)]).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert!(reply.body.contains("\"jobs\":[]") && reply.body.contains("\"nodes\":[]"), "{}", reply.body);

    let missing = relay.request(path, &[]).await;
    assert_eq!(
        (missing.status, missing.header("www-authenticate")),
        (401, Some("Bearer realm=\"nodeglass\""))
    );
    assert!(!missing.body.contains("jobs"));
    // Neither in the query, nor invalid, nor truncated.
    let query = relay.request(&format!("{path}?key={}", relay.key.reveal()), &[]).await;
    assert_eq!(query.status, 401);
    let short = relay.key.reveal()[..42].to_owned();
    for wrong in
        [String::new(), "é".into(), "A".repeat(43), short, "x".repeat(4000), "B".repeat(43), "C".repeat(43)]
    {
        assert_eq!(relay.request(path, &[("Authorization", &bearer(&wrong))]).await.status, 401, "{wrong}");
    }
    // After five wrong keys the sixth attempt is delayed, and the right key is not.
    assert_eq!(relay.request(path, &[("Authorization", &right)]).await.status, 200);
    let reply = relay.request(path, &[("Authorization", &bearer("D"))]).await;
    assert_eq!(reply.status, 429, "{reply:?}");
    assert!(
        reply.header("retry-after").is_some_and(|after| (55..=60).contains(&after.parse::<u32>().unwrap()))
    );
}

#[tokio::test]
async fn the_wrong_method_is_refused() {
    let relay = TestRelay::start().await;
    for way in ["POST /", "PUT /api/v1/picture", "OPTIONS /healthz", "TRACE /", "POST /job/17"] {
        assert_eq!(relay.request(way, &[("Content-Length", "0")]).await.status, 405, "{way}");
    }
    let own = format!("http://{}", relay.host());
    assert_eq!(relay.request("DELETE /live", &[("Origin", &own)]).await.status, 405);
}
