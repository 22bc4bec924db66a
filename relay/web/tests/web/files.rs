//! The page's files are served in an encoding that the browser accepts, and paths reach nothing else.

use crate::harness::{BASE, TestRelay};
use nodeglass_access::cache_buster::CacheBuster;

const WASM: &str = "GET /app-0123456789abcdef_bg.wasm";

#[tokio::test]
async fn the_best_accepted_compression_is_sent() {
    let relay = TestRelay::start().await;
    for (accepted, encoding, body) in [
        ("gzip, deflate, br, zstd", Some("br"), "wasm by brotli"),
        ("gzip", Some("gzip"), "wasm by gzip"),
        ("br;q=0, gzip", Some("gzip"), "wasm by gzip"),
        ("identity", None, "\0asm plain"),
        ("", None, "\0asm plain"),
    ] {
        let reply = relay.request(WASM, &[("Accept-Encoding", accepted)]).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, body), "{accepted}");
        assert_eq!(reply.header("content-encoding"), encoding, "{accepted}");
        assert_eq!(reply.header("content-type"), Some("application/wasm"));
        assert_eq!(reply.header("vary"), Some("accept-encoding"));
    }
    let script = relay.request("GET /start-0123456789abcdef.js", &[("Accept-Encoding", "br, gzip")]).await;
    assert_eq!(script.header("content-encoding"), Some("gzip"));
    assert_eq!(script.header("content-type"), Some("text/javascript; charset=utf-8"));
}

#[tokio::test]
async fn hashed_files_are_cached_and_others_revalidated() {
    let relay = TestRelay::start().await;
    assert_eq!(
        relay.request(WASM, &[]).await.header("cache-control"),
        Some("public, max-age=31536000, immutable")
    );
    for path in ["GET /", "GET /icon.svg", "GET /job/17"] {
        assert_eq!(relay.request(path, &[]).await.header("cache-control"), Some("no-cache"), "{path}");
    }
}

#[tokio::test]
async fn cached_files_are_not_sent_again() {
    let relay = TestRelay::start().await;
    let br = ("Accept-Encoding", "br");
    let tag = relay.request(WASM, &[br]).await.header("etag").unwrap().to_owned();
    let again = relay.request(WASM, &[br, ("If-None-Match", &tag)]).await;
    assert_eq!((again.status, again.body.as_str(), again.header("etag")), (304, "", Some(tag.as_str())));
    // Another encoding of the same file is another response.
    assert_eq!(relay.request(WASM, &[("If-None-Match", &tag)]).await.status, 200);
}

#[tokio::test]
async fn every_path_of_the_page_is_the_same_document_with_its_build() {
    let relay = TestRelay::start().await;
    for path in ["/", "/index.html", "/job/17", "/job/17/node/gpu-01", "/node/gpu-01.cluster", "/?x=1"] {
        let reply = relay.request(&format!("GET {path}"), &[("Accept-Encoding", "br, gzip")]).await;
        assert_eq!((reply.status, reply.header("content-encoding")), (200, None), "{path}");
        assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
        let build = format!("<meta name=\"nodeglass-build\" content=\"{}\">", relay.build);
        assert!(reply.body.contains(&build), "{}", reply.body);
        assert!(
            reply.body.contains("<meta name=\"nodeglass-base\" content=\"/rnode/login1/8080/\">"),
            "{}",
            reply.body
        );
    }
}

#[tokio::test]
async fn the_page_names_its_files_so_that_they_are_found_from_each_place_and_below_each_path() {
    let relay = TestRelay::start().await;
    for (path, up) in [("/", "./"), ("/job/17", "../"), ("/job/17/node/gpu-01", "../../../")] {
        for base in ["", BASE] {
            let reply = relay.request(&format!("GET {base}{path}"), &[]).await;
            let source = reply.body.split("src=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
            let folder = source
                .strip_prefix(up)
                .and_then(|file| file.strip_suffix("/start-0123456789abcdef.js"))
                .filter(|folder| CacheBuster::is_one(folder));
            assert!(reply.status == 200 && folder.is_some(), "{base}{path}: {reply:?}");
            let file = format!("{base}/{}/start-0123456789abcdef.js", folder.unwrap());
            assert_eq!(relay.request(&format!("GET {file}"), &[]).await.status, 200, "{file}");
        }
    }
    for file in ["start-0123456789abcdef.js", "healthz"] {
        assert_eq!(relay.request(&format!("GET {BASE}/{file}"), &[]).await.status, 200, "{file}");
    }
    // Without the trailing slash, relative paths would resolve one level too high.
    let reply = relay.request(&format!("GET {BASE}"), &[]).await;
    assert_eq!((reply.status, reply.header("location")), (307, Some("8080/")));
    assert_eq!(relay.request(&format!("GET {BASE}0/"), &[]).await.status, 404);
}

#[tokio::test]
async fn the_documents_are_served_without_a_key_and_with_the_security_headers() {
    let relay = TestRelay::start().await;
    for root in ["", BASE] {
        let help = relay.request(&format!("GET {root}/help"), &[]).await;
        assert_eq!((help.status, help.header("location")), (307, Some("help/")), "{root}");
        let help = relay.request(&format!("GET {root}/help/"), &[]).await;
        assert_eq!((help.status, help.body.as_str()), (200, "documents"), "{root}");
        assert_eq!(help.header("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(help.header("cache-control"), Some("no-cache"));
        let page = relay.request(&format!("GET {root}/"), &[]).await;
        assert!(page.body.contains("<meta name=\"nodeglass-help\" content=\"yes\">"), "{}", page.body);
        for header in ["content-security-policy", "x-content-type-options", "x-frame-options"] {
            assert!(help.header(header).is_some_and(|value| page.header(header) == Some(value)), "{header}");
        }
    }
}

#[tokio::test]
async fn t03_after_a_link_was_opened_the_page_can_have_the_cache_cleared() {
    let relay = TestRelay::start().await;
    let reply = relay.request("GET /clear-cache", &[("Sec-Fetch-Site", "same-origin")]).await;
    assert_eq!((reply.status, reply.header("clear-site-data")), (204, Some("\"cache\"")));
    let reply = relay.request("GET /clear-cache", &[("Sec-Fetch-Site", "cross-site")]).await;
    assert_eq!((reply.status, reply.header("clear-site-data")), (403, None));
}

#[tokio::test]
async fn t28_no_path_escapes_the_page() {
    let relay = TestRelay::start().await;
    let paths = [
        "/../Cargo.toml",
        "/../../../../../../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/etc/passwd",
        "/%2e%2e%2fetc%2fpasswd",
        "/.%2e/.%2e/etc/passwd",
        "/..;/etc/passwd",
        "/..%5c..%5cetc%5cpasswd",
        "/..%c0%af..%c0%afetc/passwd",
        "/%252e%252e%252fetc/passwd",
        "/job/../../etc/passwd",
        "/job/..%2f..%2fetc%2fpasswd",
        "/job/%2e%2e/%2e%2e/etc/passwd",
        "/job/%00",
        "/job/",
        "/job//17",
        "//evil.example/",
        "//etc/passwd",
        "/etc/passwd",
        "/index.html%00.js",
        "/app-0123456789abcdef_bg.wasm%00",
        "/./app-0123456789abcdef_bg.wasm",
        "/app-0123456789abcdef_bg.wasm.br",
        "/app-0123456789abcdef_bg.wasm/",
        "/APP-0123456789abcdef_bg.wasm",
        "/jobs",
        "/job/1/2/3/4/5/6/7/8/9",
        "/api/v1",
        "/api/v1/picture/",
        "/live/",
        "/index.html/",
        "/job/17\\..\\x",
        "/..\\..\\etc\\passwd",
        "/\u{0}",
        "etc/passwd",
        "*",
        "file:///etc/passwd",
    ];
    let host = relay.host();
    for path in paths {
        let absolute = format!("http://{host}{path}");
        for target in [path.to_owned(), format!("{BASE}{path}"), format!("{BASE}/..{path}"), absolute] {
            let reply = relay.request(&format!("GET {target}"), &[]).await;
            assert!(matches!(reply.status, 400 | 404 | 421), "{target:?}: {reply:?}");
            assert!(!reply.body.contains("root:") && !reply.body.contains("<head>"), "{target:?}");
            assert!(reply.header("location").is_none(), "{target:?}");
        }
    }
}

#[tokio::test]
async fn a_head_request_gets_the_head_alone() {
    let relay = TestRelay::start().await;
    let reply = relay.request("HEAD /icon.svg", &[]).await;
    assert_eq!((reply.status, reply.header("content-length"), reply.body.as_str()), (200, Some("6"), ""));
}
