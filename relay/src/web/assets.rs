//! The page lies in the binary, compressed beforehand, and its build id says which page it is.

use super::{WebState, headers};
use crate::access::cache_buster::CacheBuster;
use crate::config::BasePath;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION,
    VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write as _;

/// One file of the page, and its compressed forms.
#[derive(Clone, Copy, Debug)]
pub struct PageFile {
    /// Its path below the root, without a leading slash.
    pub path: &'static str,
    /// Its bytes.
    pub plain: &'static [u8],
    /// The same, compressed by brotli.
    pub brotli: Option<&'static [u8]>,
    /// The same, compressed by gzip.
    pub gzip: Option<&'static [u8]>,
}

/// The page that was built into this relay; empty if none was.
static EMBEDDED: &[PageFile] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// What a relay without a page shows instead.
const NO_PAGE: &str = include_str!("no_page.html");
/// The file that every place of the page is served by.
const INDEX: &str = "index.html";
/// How many folders deep a place of the page may lie.
const MAX_DEPTH: usize = 6;
/// A file whose name holds a hash of it never changes.
const FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("no-cache");

/// The files of the page, ready to be sent.
#[derive(Debug)]
pub struct Assets {
    files: HashMap<&'static str, Asset>,
    /// The page for each depth of a path: from there it names its files.
    index: Vec<Asset>,
    build: String,
}

#[derive(Debug)]
struct Asset {
    forms: Vec<(Encoding, Bytes)>,
    kind: HeaderValue,
    cache: HeaderValue,
    hash: String,
}

/// How a body is compressed, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Brotli,
    Gzip,
    Identity,
}

impl Assets {
    /// The page in this binary, shown at the root and below a base path.
    pub fn embedded(base: &BasePath, buster: &CacheBuster) -> Self {
        Self::of(EMBEDDED, base, buster)
    }

    /// A page of these files, which it loads from the folder `buster`.
    pub fn of(page: &[PageFile], base: &BasePath, buster: &CacheBuster) -> Self {
        let build = build_id(page);
        let index = page.iter().find(|file| file.path == INDEX);
        let html = index.map_or(NO_PAGE.into(), |file| String::from_utf8_lossy(file.plain));
        let html =
            with_meta(&with_meta(&html, "nodeglass-build", &build), "nodeglass-base", &format!("{base}/"));
        let index = (0..=MAX_DEPTH).map(|depth| Asset::index(seen_from(depth, buster, &html))).collect();
        let files = page.iter().filter(|file| file.path != INDEX);
        let files = files.map(|file| (file.path, Asset::of(file))).collect();
        Self { files, index, build }
    }

    /// A file by its name, in the folder of a [`CacheBuster`] or without.
    fn file(&self, name: &str) -> Option<&Asset> {
        let below = || name.split_once('/').filter(|(folder, _)| CacheBuster::is_one(folder));
        self.files.get(name).or_else(|| self.files.get(below()?.1))
    }

    /// The build id: the same for the same page in the same version of the relay.
    pub fn build(&self) -> &str {
        &self.build
    }

    /// The answer to a `GET` of a path.
    fn answer(&self, path: &str, headers: &HeaderMap) -> Response<Body> {
        let asset = match path.strip_prefix('/') {
            Some("" | INDEX) => self.index.first(),
            Some(place) if is_place(path) => self.index.get(place.matches('/').count()),
            Some(name) => self.file(name),
            None => None,
        };
        match asset {
            Some(asset) => asset.answer(headers),
            None => (StatusCode::NOT_FOUND, "there is nothing here; the page is at /\n").into_response(),
        }
    }
}

/// The build id of the page in this binary.
pub fn embedded_build() -> String {
    build_id(EMBEDDED)
}

/// Has the browser drop what its HTTP cache holds for this origin: an earlier program on this port may have left pages
/// there for URLs without a [`CacheBuster`]. The page asks for this once it is shown, because the browser holds
/// back the answer until it is done, which can take seconds.
pub async fn clear_cache() -> impl IntoResponse {
    (StatusCode::NO_CONTENT, [(headers::CLEAR_SITE_DATA, HeaderValue::from_static("\"cache\""))])
}

/// Serves the page and its files; anything else is not found.
pub async fn serve(State(web): State<WebState>, request: Request) -> Response<Body> {
    if let Some(entrance) = web.base.entrance(request.uri().path()) {
        return (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, entrance)]).into_response();
    }
    match *request.method() {
        Method::GET | Method::HEAD => web.assets.answer(request.uri().path(), request.headers()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD")]).into_response(),
    }
}

/// Whether a path is a place within the page (`/job/17/node/gpu-01`), which the page itself understands.
fn is_place(path: &str) -> bool {
    (path.starts_with("/job/") || path.starts_with("/node/"))
        && path[1..].split('/').all(|part| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        })
}

impl Asset {
    fn of(file: &PageFile) -> Self {
        let compressed = [(Encoding::Brotli, file.brotli), (Encoding::Gzip, file.gzip)];
        let compressed = compressed.into_iter().filter_map(|(encoding, bytes)| Some((encoding, bytes?)));
        let forms = compressed.chain([(Encoding::Identity, file.plain)]);
        Self {
            forms: forms.map(|(encoding, bytes)| (encoding, Bytes::from_static(bytes))).collect(),
            kind: HeaderValue::from_static(kind_of(file.path)),
            cache: if is_hashed(file.path) { FOREVER } else { ASK_AGAIN },
            hash: hex(&Sha256::digest(file.plain), 8),
        }
    }

    /// The index is changed when the relay starts, so its forms compressed beforehand are of no use.
    fn index(html: String) -> Self {
        Self {
            hash: hex(&Sha256::digest(&html), 8),
            forms: vec![(Encoding::Identity, html.into())],
            kind: HeaderValue::from_static(kind_of(INDEX)),
            cache: ASK_AGAIN,
        }
    }

    fn answer(&self, headers: &HeaderMap) -> Response<Body> {
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
            out.insert(CONTENT_TYPE, self.kind.clone());
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

    /// The best form that the browser takes; the plain one if it says nothing.
    fn form(&self, headers: &HeaderMap) -> (Encoding, Bytes) {
        let accepted: Vec<_> =
            headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()).collect();
        let accepted = accepted.join(",");
        let taken = self.forms.iter().find(|(encoding, _)| encoding.is_accepted(&accepted));
        taken.cloned().unwrap_or((Encoding::Identity, Bytes::new()))
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

    /// Whether `Accept-Encoding` names it and does not take it back (`br;q=0`).
    fn is_accepted(self, accepted: &str) -> bool {
        let Some(name) = self.name() else { return true };
        accepted.split(',').any(|one| {
            let (token, weight) = one.split_once(';').unwrap_or((one, ""));
            let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
            token.trim().eq_ignore_ascii_case(name) && weight.is_ok_and(|weight| weight > 0.0)
        })
    }
}

/// The first half of a SHA-256 over everything a browser can get, and the relay's version.
fn build_id(page: &[PageFile]) -> String {
    let mut sha = Sha256::new();
    sha.update(env!("CARGO_PKG_VERSION"));
    for file in page {
        for part in [file.path.as_bytes(), file.plain] {
            sha.update((part.len() as u64).to_be_bytes());
            sha.update(part);
        }
    }
    hex(&sha.finalize(), 8)
}

fn hex(bytes: &[u8], len: usize) -> String {
    bytes.iter().take(len).fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// The page with a `<meta>` set: the one that is there, or a new one. Values are ours, never a stranger's.
fn with_meta(html: &str, name: &str, value: &str) -> String {
    let start = format!("<meta name=\"{name}\" content=\"");
    if let Some((before, after)) = html.split_once(&start)
        && let Some((_, after)) = after.split_once('"')
    {
        return format!("{before}{start}{value}\"{after}");
    }
    html.replacen("<head>", &format!("<head>\n    {start}{value}\">"), 1)
}

/// The page as it must be at a depth: its files are named relative to the root, wherever a proxy puts that.
fn seen_from(depth: usize, buster: &CacheBuster, html: &str) -> String {
    let root = if depth == 0 { "./".to_owned() } else { "../".repeat(depth) };
    html.replace("=\"./", &format!("=\"{root}{buster}/"))
}

/// Whether a name ends in a hash, as Trunk gives it (`name-0123456789abcdef.js`, `name-0123…_bg.wasm`).
fn is_hashed(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.split('.').next().unwrap_or(name).trim_end_matches("_bg");
    let hash = stem.rsplit_once('-').map_or("", |(_, hash)| hash);
    hash.len() >= 8 && hash.bytes().all(|b| b.is_ascii_hexdigit())
}

fn kind_of(path: &str) -> &'static str {
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

    #[test]
    fn only_names_that_end_in_a_hash_are_kept_forever() {
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
    fn places_of_the_page_are_jobs_and_nodes_with_plain_names() {
        for path in ["/job/17", "/job/17/node/gpu-01.cluster", "/node/n_1", "/job/17/processes"] {
            assert!(is_place(path), "{path}");
        }
        for path in [
            "/job",
            "/job/",
            "/job//1",
            "/jobs/1",
            "/job/../x",
            "/job/..%2fx",
            "/node/a%00",
            "/x",
            "/node/.x",
        ] {
            assert!(!is_place(path), "{path}");
        }
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
    fn a_meta_is_filled_in_or_added() {
        let there = r#"<head><meta name="a" content="old"></head>"#;
        assert_eq!(with_meta(there, "a", "new"), r#"<head><meta name="a" content="new"></head>"#);
        assert!(with_meta("<head></head>", "a", "new").contains(r#"<meta name="a" content="new">"#));
    }

    #[test]
    fn a_page_deep_down_finds_its_files() {
        let buster = CacheBuster::random().unwrap();
        let html = r#"<script type="module" src="./start-1.js"></script><link href="./a.css">"#;
        for (depth, root) in [(0, "./"), (1, "../"), (3, "../../../")] {
            let expected = format!(
                r#"<script type="module" src="{root}{buster}/start-1.js"></script><link href="{root}{buster}/a.css">"#
            );
            assert_eq!(seen_from(depth, &buster, html), expected);
        }
    }

    #[test]
    fn the_build_id_follows_what_is_in_the_page() {
        let file = |plain| PageFile { path: "a.js", plain, brotli: None, gzip: None };
        let build = |plain| {
            let buster = CacheBuster::random().unwrap();
            Assets::of(&[file(plain)], &BasePath::default(), &buster).build().to_owned()
        };
        assert_eq!(build(b"1").len(), 16);
        assert_ne!(build(b"1"), build(b"2"));
        assert_eq!(build(b"1"), build(b"1"));
    }
}
