//! Secrets recognized by their own format: well-known keys, JSON web tokens, and URLs with
//! credentials.

use super::{MASK, names};

/// Alphabet of a key's body.
#[derive(Clone, Copy)]
enum Body {
    /// Letters and digits, mixed.
    Alnum,
    /// Uppercase letters and digits.
    Upper,
    /// Hexadecimal digits.
    Hex,
    /// URL-safe base64.
    Url,
    /// URL-safe base64 with dots.
    Dotted,
    /// As `Url`, with a long part that is not a word.
    Odd,
}

/// Key prefixes, with the alphabet and the minimum length of the rest.
const KEYS: [(&str, Body, usize); 82] = [
    ("ntn_", Body::Alnum, 30),
    ("secret_", Body::Alnum, 40),
    ("figd_", Body::Url, 20),
    ("ATATT3x", Body::Url, 20),
    ("glsa_", Body::Url, 20),
    ("glc_", Body::Alnum, 30),
    ("jina_", Body::Alnum, 30),
    ("sbp_", Body::Hex, 30),
    ("phc_", Body::Alnum, 30),
    ("phx_", Body::Alnum, 30),
    ("NRAK-", Body::Upper, 20),
    ("PMAK-", Body::Hex, 20),
    ("shpss_", Body::Hex, 32),
    ("shpca_", Body::Hex, 32),
    ("shppa_", Body::Hex, 32),
    ("EAAC", Body::Alnum, 40),
    ("vercel_", Body::Alnum, 20),
    ("sntrys_", Body::Alnum, 20),
    ("rubygems_", Body::Hex, 32),
    ("pul-", Body::Hex, 32),
    ("ops_eyJ", Body::Url, 30),
    ("dp.pt.", Body::Alnum, 30),
    ("hf_", Body::Alnum, 20),
    ("api_org_", Body::Alnum, 20),
    ("ghp_", Body::Alnum, 20),
    ("gho_", Body::Alnum, 20),
    ("ghs_", Body::Alnum, 20),
    ("ghu_", Body::Alnum, 20),
    ("ghr_", Body::Alnum, 20),
    ("github_pat_", Body::Url, 20),
    ("glpat-", Body::Dotted, 16),
    ("gldt-", Body::Dotted, 16),
    ("glrt-", Body::Dotted, 16),
    ("glcbt-", Body::Dotted, 16),
    ("glptt-", Body::Dotted, 16),
    ("sk-", Body::Odd, 20),
    ("sk_live_", Body::Alnum, 12),
    ("sk_test_", Body::Alnum, 12),
    ("rk_live_", Body::Alnum, 12),
    ("whsec_", Body::Alnum, 16),
    ("xoxa-", Body::Url, 12),
    ("xoxb-", Body::Url, 12),
    ("xoxe-", Body::Url, 12),
    ("xoxe.", Body::Dotted, 12),
    ("xoxp-", Body::Url, 12),
    ("xoxr-", Body::Url, 12),
    ("xoxs-", Body::Url, 12),
    ("xapp-", Body::Url, 12),
    ("AKIA", Body::Upper, 12),
    ("ASIA", Body::Upper, 12),
    ("ABIA", Body::Upper, 12),
    ("ACCA", Body::Upper, 12),
    ("AIza", Body::Url, 30),
    ("ya29.", Body::Dotted, 12),
    ("GOCSPX-", Body::Url, 20),
    ("npm_", Body::Alnum, 20),
    ("pypi-Ag", Body::Url, 20),
    ("nvapi-", Body::Url, 12),
    ("dop_v1_", Body::Hex, 12),
    ("doo_v1_", Body::Hex, 12),
    ("dor_v1_", Body::Hex, 12),
    ("r8_", Body::Alnum, 30),
    ("gsk_", Body::Alnum, 30),
    ("xai-", Body::Alnum, 30),
    ("pplx-", Body::Alnum, 30),
    ("tgp_v1_", Body::Url, 30),
    ("fw_", Body::Alnum, 20),
    ("csk-", Body::Alnum, 30),
    ("dckr_pat_", Body::Url, 20),
    ("dckr_oat_", Body::Url, 20),
    ("dapi", Body::Hex, 32),
    ("hvs.", Body::Url, 20),
    ("hvb.", Body::Url, 20),
    ("SG.", Body::Dotted, 40),
    ("tskey-", Body::Url, 20),
    ("lin_api_", Body::Alnum, 30),
    ("shpat_", Body::Hex, 32),
    ("wandb_v1_", Body::Url, 30),
    ("rpa_", Body::Alnum, 30),
    ("lsv2_", Body::Url, 30),
    ("pcsk_", Body::Url, 40),
    ("AGE-SECRET-KEY-1", Body::Upper, 40),
];
/// Prefix of a JSON web token: `{"` in base64.
const WEB_TOKEN: &str = "eyJ";
/// Maximum number of bytes examined to recognize a key or a web token.
const MAX_KEY: usize = 256;
const MAX_WEB_TOKEN: usize = 4_096;

/// Masks the secrets in a word that are recognized by their format.
pub fn masked(word: &str) -> String {
    without_keys(&without_userinfo(word))
}

/// Masks user and password in each URL of a word, and paths that are secrets as a whole.
fn without_userinfo(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    let mut rest = word;
    while let Some((scheme, after)) = rest.split_once("://") {
        out.push_str(scheme);
        out.push_str("://");
        let (hidden, host) = userinfo(after);
        if hidden {
            out.push_str(MASK);
            out.push('@');
        }
        let end = host.find(['/', '?', '#']).unwrap_or(host.len());
        out.push_str(&host[..end]);
        rest = &host[end..];
        if let Some(kept) = webhook(&host[..end], rest) {
            out.push_str(kept);
            out.push_str(MASK);
            return out;
        }
        if let Some((kept, after)) = path_token(scheme, rest) {
            out.push_str(kept);
            out.push_str(MASK);
            rest = after;
        }
    }
    if out.is_empty() {
        return without_login(word);
    }
    out.push_str(rest);
    out
}

/// Returns whether a URL has credentials, and the rest after them.
fn userinfo(address: &str) -> (bool, &str) {
    let authority = &address[..address.find(['/', '?', '#']).unwrap_or(address.len())];
    if let Some(at) = authority.rfind('@') {
        return (at > 0, &address[at + 1..]);
    }
    // A password may contain a slash: a port consists of digits.
    let port = authority.split_once(':').map(|(_, port)| port);
    let is_port = port.is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    let next = &address[..address.find("://").unwrap_or(address.len())];
    match next.rfind('@').filter(|_| !is_port && !authority.starts_with('[')) {
        Some(at) => (true, &address[at + 1..]),
        None => (false, address),
    }
}

/// Returns the part of a webhook URL's path that may be shown, if it is a webhook.
fn webhook<'a>(host: &str, path: &'a str) -> Option<&'a str> {
    let path = &path[..path.find("://").unwrap_or(path.len())];
    let after = |mark: &str| path.find(mark).map(|at| &path[..at + mark.len()]);
    if host.ends_with("hooks.slack.com") {
        return (path.len() > 1).then_some("/");
    }
    let kept = ["/webhooks/", "/webhookb2/", "/webhook/"].iter().find_map(|mark| after(mark))?;
    (kept.len() < path.len()).then_some(kept)
}

/// Returns the path before and after a token: `/t/TOKEN/channel` of a package channel, or the last
/// segment of a stream ingest URL.
fn path_token<'a>(scheme: &str, path: &'a str) -> Option<(&'a str, &'a str)> {
    if scheme.ends_with("rtmp") || scheme.ends_with("rtmps") {
        let end = path.find(['?', '"', '\'']).unwrap_or(path.len());
        let at = path[..end].rfind('/')? + 1;
        return (at > 1 && at < end).then(|| (&path[..at], &path[end..]));
    }
    let at = path.find("/t/")? + 3;
    let length = path[at..].find('/')?;
    let (token, after) = path[at..].split_at(length);
    let is_token = token.len() >= 12 && is_mixed(token.as_bytes()) && !names::is_plain(token);
    is_token.then_some((&path[..at], after))
}

/// Masks `user:password@host` without a scheme; matches neither `image:tag@sha256:…` nor a path.
fn without_login(word: &str) -> String {
    let login = word.split_once(':').and_then(|(user, rest)| {
        let (password, host) = rest.rsplit_once('@')?;
        let plain = !user.is_empty() && !password.is_empty() && !user.contains(['/', '@', '=', ',']);
        let is_digest = host.starts_with("sha256:") || host.starts_with("sha512:");
        let is_host = host.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[');
        (plain && is_host && !is_digest && !password.contains('/')).then_some((user, host))
    });
    login.map_or_else(|| word.to_owned(), |(user, host)| format!("{user}:{MASK}@{host}"))
}

/// Masks well-known keys, web tokens and bot tokens.
fn without_keys(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    let mut rest = word;
    let mut within = false;
    while let Some(c) = rest.chars().next() {
        let key = if within {
            None
        } else {
            key(rest).or_else(|| web_token(rest)).or_else(|| bot_token(rest)).or_else(|| hex_key(rest))
        };
        if let Some(length) = key {
            out.push_str(MASK);
            rest = &rest[length..];
            within = false;
            continue;
        }
        out.push(c);
        within = c.is_ascii_alphanumeric();
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// Matches `key-` or `AC` and exactly 32 lowercase hexadecimal digits.
fn hex_key(text: &str) -> Option<usize> {
    let prefix = ["key-", "AC"].into_iter().find(|prefix| text.starts_with(prefix))?;
    let body = &text.as_bytes()[prefix.len()..];
    let is_digit = |byte: &&u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
    let length = body.iter().take(33).take_while(is_digit).count();
    let ends = body.get(32).is_none_or(|byte| !byte.is_ascii_alphanumeric());
    (length == 32 && ends).then_some(prefix.len() + 32)
}

/// Returns the length of the key at the start of a text.
fn key(text: &str) -> Option<usize> {
    let (prefix, body, least) = KEYS.iter().find(|(prefix, _, _)| text.starts_with(prefix))?;
    let after = &text.as_bytes()[prefix.len()..];
    let looked = &after[..run(&after[..after.len().min(MAX_KEY)], *body)];
    let is_odd = match body {
        Body::Alnum => is_mixed(looked),
        Body::Odd => looked
            .split(|byte| !byte.is_ascii_alphanumeric())
            .any(|piece| piece.len() >= 16 && is_mixed(piece) && piece.iter().any(u8::is_ascii_digit)),
        Body::Upper => looked.iter().any(u8::is_ascii_digit) || looked.len() >= 16,
        Body::Hex | Body::Url | Body::Dotted => true,
    };
    (looked.len() >= *least && is_odd).then(|| prefix.len() + run(after, *body))
}

/// Returns the length of a key's body.
fn run(bytes: &[u8], body: Body) -> usize {
    let fits = |byte: &u8| match body {
        Body::Alnum => byte.is_ascii_alphanumeric(),
        Body::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
        Body::Hex => byte.is_ascii_hexdigit() || *byte == b'-',
        Body::Url | Body::Odd => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'),
        Body::Dotted => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'),
    };
    bytes.iter().take_while(|byte| fits(byte)).count()
}

/// Returns whether lowercase letters are mixed with uppercase letters, or digits with letters, unlike in
/// names.
fn is_mixed(bytes: &[u8]) -> bool {
    let has = |of: fn(&u8) -> bool| bytes.iter().any(of);
    has(u8::is_ascii_digit) || (has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase))
}

/// Matches `eyJ….….…`.
fn web_token(text: &str) -> Option<usize> {
    let bytes = text.starts_with(WEB_TOKEN).then_some(text.as_bytes())?;
    let length = run(&bytes[..bytes.len().min(MAX_WEB_TOKEN)], Body::Dotted);
    let dots = bytes[..length].iter().filter(|byte| **byte == b'.').count();
    (length >= 30 && dots >= 2).then(|| run(bytes, Body::Dotted))
}

/// Matches `123456789:AA…`, also after `bot`.
fn bot_token(text: &str) -> Option<usize> {
    let bot = if text.starts_with("bot") { 3 } else { 0 };
    let digits = text.as_bytes()[bot..].iter().take(12).take_while(|byte| byte.is_ascii_digit()).count();
    let body = text[bot + digits..].strip_prefix(":AA").filter(|_| (8..=10).contains(&digits))?;
    let length = run(body.as_bytes(), Body::Url);
    (length >= 30).then_some(bot + digits + 3 + length)
}
