//! Serves the page, which is embedded in the binary pre-compressed and identified by its build id.

use super::{Connection, WebState, api, headers};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    LOCATION, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use flate2::read::GzDecoder;
use nodeglass_access::base_path::BasePath;
use nodeglass_access::cache_buster::CacheBuster;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io::Read as _;
use std::sync::OnceLock;

/// A file of the page and its compressed variants.
#[derive(Clone, Copy, Debug)]
pub struct PageFile {
    /// Path below the root, without a leading slash.
    pub path: &'static str,
    /// Uncompressed content; `None` if it is only embedded as [`Self::gzip`], which few clients request otherwise.
    pub plain: Option<&'static [u8]>,
    /// Content compressed with brotli.
    pub brotli: Option<&'static [u8]>,
    /// Content compressed with gzip.
    pub gzip: Option<&'static [u8]>,
}

impl PageFile {
    /// The content as it is embedded: uncompressed, or else compressed with gzip.
    fn embedded(&self) -> &'static [u8] {
        self.plain.or(self.gzip).unwrap_or_default()
    }
}

/// Served instead of the page by a relay that was built without it.
const NO_PAGE: &str = include_str!("no_page.html");
/// The file that serves every route of the page.
const INDEX: &str = "index.html";
/// The first page of the documents, which are part of release builds.
const HELP: &str = "help/index.html";
const NO_HELP: &str = "this relay was built without its documents; they are in docs/ of its sources\n";
/// Maximum number of path segments in a route of the page.
const MAX_DEPTH: usize = 6;
/// For files whose name contains a hash of their content.
const FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");

/// The files of the page, ready to serve.
#[derive(Debug)]
pub struct Assets {
    files: HashMap<&'static str, Asset>,
    /// The index page for each path depth, as it references its files relative to the root.
    index: Vec<Asset>,
    /// The index page for each path depth that connects without a key.
    keyless: Vec<Asset>,
    build: String,
}

#[derive(Debug)]
struct Asset {
    compressed: Vec<(Encoding, Bytes)>,
    /// The uncompressed content, once it is known.
    plain: OnceLock<Bytes>,
    content_type: HeaderValue,
    cache: HeaderValue,
    hash: String,
}

/// Content encodings, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Brotli,
    Gzip,
    Identity,
}

impl Assets {
    /// A page consisting of these files, served at the root and below a base path; it loads them from the folder
    /// `buster`.
    pub fn of(page: &[PageFile], base: &BasePath, buster: &CacheBuster) -> Self {
        let build = build_id(page);
        let index = page.iter().find(|file| file.path == INDEX);
        let html = index.map_or(NO_PAGE.into(), |file| String::from_utf8_lossy(file.embedded()));
        let html =
            with_meta(&with_meta(&html, "nodeglass-build", &build), "nodeglass-base", &format!("{base}/"));
        let html = match page.iter().any(|file| file.path == HELP) {
            true => with_meta(&html, "nodeglass-help", "yes"),
            false => html,
        };
        let keyless = with_meta(&html, "nodeglass-keyless", "yes");
        let [index, keyless] = [html, keyless]
            .map(|html| (0..=MAX_DEPTH).map(|depth| Asset::index(at_depth(depth, buster, &html))).collect());
        let files = page.iter().filter(|file| file.path != INDEX);
        let files = files.map(|file| (file.path, Asset::of(file))).collect();
        Self { files, index, keyless, build }
    }

    /// Finds a file by name, with or without a [`CacheBuster`] folder in front.
    fn file(&self, name: &str) -> Option<&Asset> {
        let below = || name.split_once('/').filter(|(folder, _)| CacheBuster::is_one(folder));
        self.files.get(name).or_else(|| self.files.get(below()?.1))
    }

    /// The build id: equal for the same page and relay version.
    pub fn build(&self) -> &str {
        &self.build
    }

    /// Responds to a `GET` of `path`; `is_keyless` states whether the page connects without a key.
    fn respond(&self, path: &str, headers: &HeaderMap, is_keyless: bool) -> Response<Body> {
        let index = if is_keyless { &self.keyless } else { &self.index };
        let asset = match path.strip_prefix('/') {
            Some("" | INDEX) => index.first(),
            Some("help" | "help/") if !self.files.contains_key(HELP) => {
                return (StatusCode::NOT_FOUND, NO_HELP).into_response();
            }
            // Links of the documents are relative to their folder.
            Some("help") => return (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, "help/")]).into_response(),
            Some("help/") => self.file(HELP),
            Some(route) if is_page_route(path) => index.get(route.matches('/').count()),
            Some(name) => self.file(name),
            None => None,
        };
        match asset {
            Some(asset) => asset.respond(headers),
            None => not_found(index, path, headers),
        }
    }
}

/// Responds to a path that does not exist: a browser that navigates there gets the page, which offers a
/// link to all jobs, and any other client one line of text.
fn not_found(index: &[Asset], path: &str, headers: &HeaderMap) -> Response<Body> {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let depth = path.matches('/').count().saturating_sub(1);
    let index = index.get(depth).filter(|_| accepted.contains("text/html"));
    // Without the request's headers, so that the response is never "not modified".
    let mut response = match index {
        Some(index) => index.respond(&HeaderMap::new()),
        None => "not found; the page is at /\n".into_response(),
    };
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// Makes the browser clear its HTTP cache for this origin: an earlier program on this port may have
/// left pages there for URLs without a [`CacheBuster`]. The page requests this after its first render,
/// because browsers delay the response until the cache is cleared, which can take seconds.
pub async fn clear_cache() -> impl IntoResponse {
    (StatusCode::NO_CONTENT, [(headers::CLEAR_SITE_DATA, HeaderValue::from_static("\"cache\""))])
}

/// Serves the page and its files; everything else is 404.
pub async fn serve(State(web): State<WebState>, connection: Connection, request: Request) -> Response<Body> {
    if let Some(target) = web.base.redirect_target(request.uri().path()) {
        return (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, target)]).into_response();
    }
    if request.uri().path().starts_with("/api/") {
        return api::Problem::not_found("there is no such route; see /api/v1/openapi.json").into_response();
    }
    match *request.method() {
        Method::GET | Method::HEAD => {
            web.assets.respond(request.uri().path(), request.headers(), web.is_keyless(&connection))
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD")]).into_response(),
    }
}

/// Returns whether `path` is a route of the page (`/job/17/node/gpu-01`), which the page resolves itself.
fn is_page_route(path: &str) -> bool {
    (["/job/", "/node/", "/compare/"].iter().any(|prefix| path.starts_with(prefix))
        || matches!(path, "/usage" | "/audit"))
        && path[1..].split('/').all(|part| {
            !part.is_empty()
                && !part.starts_with('.')
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'+' | b'@'))
        })
}

impl Asset {
    fn of(file: &PageFile) -> Self {
        let compressed = [(Encoding::Brotli, file.brotli), (Encoding::Gzip, file.gzip)];
        let compressed = compressed.into_iter().filter_map(|(encoding, bytes)| Some((encoding, bytes?)));
        Self {
            compressed: compressed.map(|(encoding, bytes)| (encoding, Bytes::from_static(bytes))).collect(),
            plain: file.plain.map_or_else(OnceLock::new, |plain| Bytes::from_static(plain).into()),
            content_type: HeaderValue::from_static(content_type_of(file.path)),
            cache: if is_hashed(file.path) { FOREVER } else { REVALIDATE },
            hash: hex::encode(&Sha256::digest(file.embedded())[..8]),
        }
    }

    /// The index is rewritten at start-up, so its pre-compressed variants cannot be used.
    fn index(html: String) -> Self {
        Self {
            hash: hex::encode(&Sha256::digest(&html)[..8]),
            compressed: Vec::new(),
            plain: Bytes::from(html).into(),
            content_type: HeaderValue::from_static(content_type_of(INDEX)),
            cache: REVALIDATE,
        }
    }

    fn respond(&self, headers: &HeaderMap) -> Response<Body> {
        let (encoding, bytes) = self.form(headers);
        let tag = format!("\"{}{}\"", self.hash, encoding.suffix());
        let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_known = known.split(',').any(|one| one.trim().trim_start_matches("W/") == tag);
        let mut response = if is_known {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            Response::new(Body::from(bytes))
        };
        let out = response.headers_mut();
        if !is_known {
            out.insert(CONTENT_TYPE, self.content_type.clone());
            if let Some(name) = encoding.name() {
                out.insert(CONTENT_ENCODING, HeaderValue::from_static(name));
            }
        }
        out.insert(CACHE_CONTROL, self.cache.clone());
        out.insert(VARY, HeaderValue::from_static("accept-encoding"));
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            out.insert(ETAG, tag);
        }
        response
    }

    /// The best encoding that the client accepts; identity if it does not state any.
    fn form(&self, headers: &HeaderMap) -> (Encoding, Bytes) {
        let accepted: Vec<_> =
            headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()).collect();
        let accepted = accepted.join(",");
        let taken = self.compressed.iter().find(|(encoding, _)| encoding.is_accepted(&accepted));
        taken
            .cloned()
            .unwrap_or_else(|| (Encoding::Identity, self.plain.get_or_init(|| self.inflated()).clone()))
    }

    /// The uncompressed content of a file that is only embedded compressed.
    fn inflated(&self) -> Bytes {
        let gzip = self.compressed.iter().find(|(encoding, _)| *encoding == Encoding::Gzip);
        let mut plain = Vec::new();
        if let Some((_, gzip)) = gzip
            && let Err(error) = GzDecoder::new(gzip.as_ref()).read_to_end(&mut plain)
        {
            tracing::warn!(%error, "a file of the page cannot be decompressed");
        }
        plain.into()
    }
}

impl Encoding {
    fn name(self) -> Option<&'static str> {
        match self {
            Self::Brotli => Some("br"),
            Self::Gzip => Some("gzip"),
            Self::Identity => None,
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Brotli => "-br",
            Self::Gzip => "-gz",
            Self::Identity => "",
        }
    }

    /// Returns whether `Accept-Encoding` lists it with a non-zero weight.
    fn is_accepted(self, accepted: &str) -> bool {
        let Some(name) = self.name() else { return true };
        accepted.split(',').any(|one| {
            let (token, weight) = one.split_once(';').unwrap_or((one, ""));
            let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
            token.trim().eq_ignore_ascii_case(name) && weight.is_ok_and(|weight| weight > 0.0)
        })
    }
}

/// The build id of a page: the first half of a SHA-256 over the relay's version and every file.
pub fn build_id(page: &[PageFile]) -> String {
    let mut sha = Sha256::new();
    sha.update(env!("CARGO_PKG_VERSION"));
    for file in page {
        for part in [file.path.as_bytes(), file.embedded()] {
            sha.update((part.len() as u64).to_be_bytes());
            sha.update(part);
        }
    }
    hex::encode(&sha.finalize()[..8])
}

/// Sets a `<meta>` element, adding it if missing. Values come from the relay, never from a client.
fn with_meta(html: &str, name: &str, value: &str) -> String {
    let start = format!("<meta name=\"{name}\" content=\"");
    if let Some((before, after)) = html.split_once(&start)
        && let Some((_, after)) = after.split_once('"')
    {
        return format!("{before}{start}{value}\"{after}");
    }
    html.replacen("<head>", &format!("<head>\n    {start}{value}\">"), 1)
}

/// Rewrites the index for a path depth: files are referenced relative to the root, wherever a proxy puts
/// it.
fn at_depth(depth: usize, buster: &CacheBuster, html: &str) -> String {
    let root = if depth == 0 { "./".to_owned() } else { "../".repeat(depth) };
    html.replace("=\"./", &format!("=\"{root}{buster}/"))
}

/// Returns whether a file name ends in a hash, as names of bundled files do (`name-0123456789abcdef.js`,
/// `name-0123…_bg.wasm`).
fn is_hashed(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.split('.').next().unwrap_or(name).trim_end_matches("_bg");
    let hash = stem.rsplit_once('-').map_or("", |(_, hash)| hash);
    hash.len() >= 8 && hash.bytes().all(|b| b.is_ascii_hexdigit())
}

fn content_type_of(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, end)| end) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "wasm" => "application/wasm",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "json" => "application/json",
        "webmanifest" => "application/manifest+json",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    #[test]
    fn only_names_that_end_in_a_hash_are_cached_forever() {
        for path in ["app-0123456789abcdef.js", "app-0123456789abcdef_bg.wasm", "start-00ff00ff00ff00ff.js"] {
            assert!(is_hashed(path), "{path}");
        }
        for path in
            ["index.html", "app.js", "my-app.js", "snippets/x-0123456789abcdef/inline0.js", "a-0123.js"]
        {
            assert!(!is_hashed(path), "{path}");
        }
    }

    #[test]
    fn page_routes_are_jobs_and_nodes_with_plain_names() {
        for path in [
            "/job/17",
            "/job/17_3",
            "/job/17+1/logs",
            "/job/17/node/gpu-01.cluster",
            "/node/n_1",
            "/job/17/processes",
            "/compare/17-18",
            "/compare/17@1795600000..1795603600-18",
            "/audit",
            "/usage",
        ] {
            assert!(is_page_route(path), "{path}");
        }
        for path in [
            "/job",
            "/job/",
            "/job//1",
            "/jobs/1",
            "/usage/1",
            "/job/../x",
            "/job/..%2fx",
            "/node/a%00",
            "/x",
            "/node/.x",
        ] {
            assert!(!is_page_route(path), "{path}");
        }
    }

    #[test]
    fn a_relay_without_documents_says_where_they_are() {
        let index = PageFile { path: INDEX, plain: Some(b"<head></head>"), brotli: None, gzip: None };
        let assets = Assets::of(&[index], &BasePath::default(), &CacheBuster::random().unwrap());
        for path in ["/help", "/help/"] {
            let response = assets.respond(path, &HeaderMap::new(), false);
            assert_eq!(response.status(), StatusCode::NOT_FOUND);
            assert_eq!(response.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
        }
        assert!(
            !String::from_utf8_lossy(&assets.index[0].form(&HeaderMap::new()).1).contains("nodeglass-help")
        );
    }

    #[test]
    fn a_browser_at_an_unknown_path_gets_the_page_and_other_clients_a_line() {
        let html = br#"<head></head><script src="./start-1.js"></script>"#;
        let index = PageFile { path: INDEX, plain: Some(html), brotli: None, gzip: None };
        let buster = CacheBuster::random().unwrap();
        let assets = Assets::of(&[index], &BasePath::default(), &buster);
        let answer = |path: &str, accept: &'static str| {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            let response = assets.respond(path, &headers, false);
            let kind = response.headers().get(CONTENT_TYPE).cloned().unwrap();
            (response.status(), kind.to_str().unwrap().to_owned())
        };
        let (missing, page) = (StatusCode::NOT_FOUND, "text/html; charset=utf-8".to_owned());
        assert_eq!(answer("/jobs/17", "text/html,*/*;q=0.8"), (missing, page.clone()));
        assert_eq!(answer("/jobs/17", "*/*").1, "text/plain; charset=utf-8");
        let deep = "/a".repeat(MAX_DEPTH + 2);
        assert_eq!(answer(&deep, "text/html"), (missing, "text/plain; charset=utf-8".to_owned()));
        assert_eq!(answer("/job/17", "text/html"), (StatusCode::OK, page));
    }

    #[test]
    fn an_encoding_is_used_only_where_it_is_accepted() {
        assert!(Encoding::Brotli.is_accepted("gzip, deflate, BR"));
        assert!(Encoding::Brotli.is_accepted("br;q=0.5"));
        for accepted in ["", "gzip", "br;q=0", "brx", "br;q=x"] {
            assert!(!Encoding::Brotli.is_accepted(accepted), "{accepted}");
        }
    }

    #[test]
    fn a_file_that_is_only_embedded_compressed_is_decompressed_for_clients_that_accept_nothing_else() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(b"start()").unwrap();
        let gzip: &[u8] = gzip.finish().unwrap().leak();
        let file = |gzip| Asset::of(&PageFile { path: "a.js", plain: None, brotli: None, gzip: Some(gzip) });
        let accepting = |encoding: &'static str| {
            HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(encoding))])
        };
        let plain = (Encoding::Identity, Bytes::from_static(b"start()"));
        for headers in [HeaderMap::new(), accepting("br"), HeaderMap::new()] {
            assert_eq!(file(gzip).form(&headers), plain);
        }
        assert_eq!(file(gzip).form(&accepting("gzip")), (Encoding::Gzip, Bytes::from_static(gzip)));
        assert_eq!(file(&gzip[..4]).form(&HeaderMap::new()).1, Bytes::new());
    }

    #[test]
    fn a_meta_element_is_set_or_added() {
        let there = r#"<head><meta name="a" content="old"></head>"#;
        assert_eq!(with_meta(there, "a", "new"), r#"<head><meta name="a" content="new"></head>"#);
        assert!(with_meta("<head></head>", "a", "new").contains(r#"<meta name="a" content="new">"#));
    }

    #[test]
    fn file_references_are_relative_to_the_path_depth() {
        let buster = CacheBuster::random().unwrap();
        let html = r#"<script type="module" src="./start-1.js"></script><link href="./a.css">"#;
        for (depth, root) in [(0, "./"), (1, "../"), (3, "../../../")] {
            let expected = format!(
                r#"<script type="module" src="{root}{buster}/start-1.js"></script><link href="{root}{buster}/a.css">"#
            );
            assert_eq!(at_depth(depth, &buster, html), expected);
        }
    }

    #[test]
    fn the_build_id_changes_with_the_page() {
        let file = |plain| PageFile { path: "a.js", plain: Some(plain), brotli: None, gzip: None };
        let build = |plain: &'static [u8]| {
            let buster = CacheBuster::random().unwrap();
            Assets::of(&[file(plain)], &BasePath::default(), &buster).build().to_owned()
        };
        assert_eq!(build(b"1").len(), 16);
        assert_ne!(build(b"1"), build(b"2"));
        assert_eq!(build(b"1"), build(b"1"));
    }
}
