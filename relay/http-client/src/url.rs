//! The URL of a server: validated when it is configured, and never printed in full.

use hyper::Uri;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Longest URL, in bytes.
const MAX_BYTES: usize = 2_048;

/// An `http` or `https` URL. Its path and query often are a secret, so `Display` and `Debug` leave them out.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpUrl {
    is_tls: bool,
    host: Host,
    port: u16,
    target: String,
    is_private: bool,
}

/// The host as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name.
    Name(String),
}

/// Error of parsing a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpUrlError {
    /// It cannot be parsed.
    #[error("it is not a URL such as https://example.org/path")]
    NotAUrl,
    /// Another scheme.
    #[error("it must begin with https:// (or http:// within a private network)")]
    Scheme,
    /// A name or password before the host.
    #[error("it must not contain a user name or password")]
    UserInfo,
    /// Too long.
    #[error("it is longer than {MAX_BYTES} bytes")]
    TooLong,
}

impl HttpUrl {
    pub(crate) fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns whether the owner wrote `#private`: the host may be in a private network.
    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// Path and query.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// The same server at a path below this URL's.
    #[must_use]
    pub fn join(&self, path: &str) -> Self {
        let base = self.target.split('?').next().unwrap_or_default().trim_end_matches('/');
        Self { target: format!("{base}{path}"), ..self.clone() }
    }

    /// The value of `Host`.
    pub(crate) fn authority(&self) -> String {
        let default = if self.is_tls { 443 } else { 80 };
        if self.port == default { self.host.to_string() } else { format!("{}:{}", self.host, self.port) }
    }
}

impl FromStr for HttpUrl {
    type Err = HttpUrlError;

    fn from_str(raw: &str) -> Result<Self, HttpUrlError> {
        if raw.len() > MAX_BYTES {
            return Err(HttpUrlError::TooLong);
        }
        // `Uri` accepts a fragment and drops it.
        let (raw, fragment) = raw.split_once('#').unwrap_or((raw, ""));
        let uri: Uri = raw.parse().map_err(|_| HttpUrlError::NotAUrl)?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(HttpUrlError::Scheme),
        };
        let authority = uri.authority().ok_or(HttpUrlError::NotAUrl)?;
        if authority.as_str().contains('@') {
            return Err(HttpUrlError::UserInfo);
        }
        let name = authority.host().trim_end_matches('.').to_ascii_lowercase();
        if name.is_empty() {
            return Err(HttpUrlError::NotAUrl);
        }
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
        let host = bare.parse().map_or_else(|_| Host::Name(name.clone()), Host::Address);
        // `Uri` ignores a port that is not a number.
        let port =
            match authority.as_str().strip_prefix(authority.host()).and_then(|rest| rest.strip_prefix(':')) {
                Some(port) => port.parse().map_err(|_| HttpUrlError::NotAUrl)?,
                None if is_tls => 443,
                None => 80,
            };
        let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        Ok(Self { is_tls, host, port, target, is_private: fragment == "private" })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/…", if self.is_tls { "https" } else { "http" }, self.authority())
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(raw: &str) -> HttpUrl {
        raw.parse().unwrap_or_else(|error| panic!("{raw}: {error}"))
    }

    #[test]
    fn a_url_has_host_port_and_target() {
        let url = parse("https://Chat.example.org/hooks/s3cret?x=1#top");
        assert_eq!((url.is_tls(), url.port(), url.target()), (true, 443, "/hooks/s3cret?x=1"));
        assert_eq!(
            (url.host(), url.authority().as_str()),
            (&Host::Name("chat.example.org".into()), "chat.example.org")
        );
        let url = parse("http://127.0.0.1:8065");
        assert_eq!((url.is_tls(), url.port(), url.target()), (false, 8065, "/"));
        assert_eq!(url.authority(), "127.0.0.1:8065");
        let url = parse("http://[::1]:80/x");
        assert_eq!((url.host(), url.authority().as_str()), (&Host::Address("::1".parse().unwrap()), "[::1]"));
    }

    #[test]
    fn neither_form_of_output_contains_the_secret() {
        let url = parse("https://hooks.example.org:8443/services/T0/B0/s3cret?token=s3cret");
        assert_eq!(url.to_string(), "https://hooks.example.org:8443/…");
        assert!(!format!("{url:?}").contains("s3cret"));
    }

    #[test]
    fn what_is_no_http_url_is_refused() {
        for (raw, why) in [
            ("", HttpUrlError::NotAUrl),
            ("example.org/hooks", HttpUrlError::NotAUrl),
            ("/hooks", HttpUrlError::Scheme),
            ("ftp://example.org/", HttpUrlError::Scheme),
            ("file:///etc/passwd", HttpUrlError::NotAUrl),
            ("https://alice:pw@example.org/", HttpUrlError::UserInfo),
            ("https://example.org:x/", HttpUrlError::NotAUrl),
            ("https://example.org:99999/", HttpUrlError::NotAUrl),
            ("https://exa mple.org/", HttpUrlError::NotAUrl),
            ("https://example.org/\r\nX: 1", HttpUrlError::NotAUrl),
        ] {
            assert_eq!(raw.parse::<HttpUrl>(), Err(why), "{raw}");
        }
        let long = format!("https://example.org/{}", "x".repeat(MAX_BYTES));
        assert_eq!(long.parse::<HttpUrl>(), Err(HttpUrlError::TooLong));
    }
}
