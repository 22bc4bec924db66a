//! Headers of a trusted proxy that describe the original request; ambiguous ones are rejected.

use axum::http::HeaderMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Statements of a proxy about a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Forwarded {
    /// The host that the client requested.
    pub(super) host: Option<String>,
    /// `http` or `https`: the scheme between client and proxy.
    pub(super) scheme: Option<&'static str>,
    /// The client's address, if the proxy states it.
    pub(super) client: Option<IpAddr>,
    /// The user that the proxy authenticated.
    pub(super) user: Option<String>,
    /// Whether the request has any header that proxies add, readable or not.
    pub(super) is_by_proxy: bool,
}

/// A header that occurs repeatedly, has several values, or an invalid one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AmbiguousHeader(String);

impl AmbiguousHeader {
    /// The error message for the administrator of the proxy.
    pub(super) fn sentence(&self) -> String {
        format!("the proxy must send {} with exactly one value\n", self.0)
    }
}

const HOST: &str = "X-Forwarded-Host";
const PROTO: &str = "X-Forwarded-Proto";
const FOR: &str = "X-Forwarded-For";
/// Headers that proxies add besides `X-Forwarded-…`, in lower case.
const OTHERS: [&str; 3] = ["forwarded", "via", "x-real-ip"];

impl Forwarded {
    /// Reads the headers of a trusted proxy, including `user_header` if configured. Must not be called
    /// for any other peer.
    pub(super) fn read(headers: &HeaderMap, user_header: Option<&str>) -> Result<Self, AmbiguousHeader> {
        let scheme = match one(headers, PROTO)? {
            None => None,
            Some("http") => Some("http"),
            Some("https") => Some("https"),
            Some(_) => return Err(AmbiguousHeader(PROTO.into())),
        };
        let user = match user_header {
            // Some proxies send it empty for unauthenticated clients.
            Some(name) if is_empty(headers, name) => None,
            Some(name) => one(headers, name)?.map(str::to_owned),
            None => None,
        };
        Ok(Self {
            host: one(headers, HOST)?.map(str::to_owned),
            scheme,
            client: client(headers),
            user,
            is_by_proxy: is_by_proxy(headers, user_header),
        })
    }

    /// The client's address; unspecified if the proxy does not state it.
    pub(super) fn client(&self) -> IpAddr {
        self.client.unwrap_or(Ipv4Addr::UNSPECIFIED.into())
    }
}

/// Browsers send none of these headers; an empty or unreadable one reveals a proxy as well.
fn is_by_proxy(headers: &HeaderMap, user_header: Option<&str>) -> bool {
    let adds = |name: &str| name.starts_with("x-forwarded-") || OTHERS.contains(&name);
    headers.keys().any(|name| adds(name.as_str()))
        || user_header.is_some_and(|name| headers.contains_key(name))
}

/// The value of an optional header that must not be repeated, neither as several lines nor as a list.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, AmbiguousHeader> {
    let unclear = || AmbiguousHeader(name.to_owned());
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let value = value.to_str().map_err(|_| unclear())?.trim();
    let is_one = values.next().is_none() && !value.is_empty() && !value.contains(',');
    if is_one { Ok(Some(value)) } else { Err(unclear()) }
}

/// Returns whether a header occurs exactly once and is empty.
fn is_empty(headers: &HeaderMap, name: &str) -> bool {
    let mut values = headers.get_all(name).iter();
    values.next().is_some_and(|value| value.is_empty()) && values.next().is_none()
}

/// The last address: the trusted proxy added it; clients control everything before it.
fn client(headers: &HeaderMap) -> Option<IpAddr> {
    let last = headers.get_all(FOR).iter().next_back()?.to_str().ok()?.rsplit(',').next()?.trim();
    let with_port = || last.parse::<SocketAddr>().ok().map(|addr| addr.ip());
    Some(last.parse().ok().or_else(with_port)?.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn read(lines: &[(&str, &str)]) -> Result<Forwarded, AmbiguousHeader> {
        let header = |(name, value): &(&str, &str)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        };
        let mut headers = HeaderMap::new();
        for (name, value) in lines.iter().map(header) {
            headers.append(name, value);
        }
        Forwarded::read(&headers, Some("X-Forwarded-User"))
    }

    #[test]
    fn t27_headers_that_a_proxy_sends_once_are_read() {
        let result = read(&[
            ("X-Forwarded-Host", "portal.example.org"),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-For", "203.0.113.9"),
        ]);
        let client = "203.0.113.9".parse().ok();
        assert_eq!(
            result,
            Ok(Forwarded {
                host: Some("portal.example.org".into()),
                scheme: Some("https"),
                client,
                user: None,
                is_by_proxy: true
            })
        );
        assert_eq!(read(&[]), Ok(Forwarded::default()));
    }

    /// These headers alone distinguish a proxy that runs as the owner from the owner's browser.
    #[test]
    fn t27_any_proxy_header_reveals_a_proxy() {
        for line in [
            ("X-Forwarded-User", ""),
            ("X-Forwarded-For", "unix:"),
            ("X-Forwarded-Port", "443"),
            ("X-Real-IP", ""),
            ("Forwarded", "for=unknown"),
            ("Via", "1.1 portal"),
        ] {
            assert!(read(&[line]).unwrap().is_by_proxy, "{line:?}");
        }
        assert!(!read(&[("Accept", "*/*"), ("X-Requested-With", "x")]).unwrap().is_by_proxy);
    }

    #[test]
    fn t27_ambiguous_hosts_and_schemes_are_rejected() {
        for (name, says) in [("X-Forwarded-Host", HOST), ("X-Forwarded-Proto", PROTO)] {
            for lines in [
                &[(name, "http"), (name, "http")][..],
                &[(name, "https, http")],
                &[(name, "")],
                &[(name, " ")],
                &[(name, "http,")],
            ] {
                assert_eq!(read(lines), Err(AmbiguousHeader(says.into())), "{lines:?}");
            }
        }
        for scheme in ["ftp", "HTTPS", "javascript"] {
            assert_eq!(
                read(&[("X-Forwarded-Proto", scheme)]),
                Err(AmbiguousHeader(PROTO.into())),
                "{scheme}"
            );
        }
    }

    #[test]
    fn t27_a_user_is_named_once_or_not_at_all() {
        const USER: &str = "X-Forwarded-User";
        assert_eq!(read(&[(USER, "alice")]).unwrap().user.as_deref(), Some("alice"));
        assert_eq!(read(&[(USER, "")]).unwrap().user, None);
        for lines in [
            &[(USER, "alice"), (USER, "alice")][..],
            &[(USER, "bob"), (USER, "alice")],
            &[(USER, ""), (USER, "alice")],
            &[(USER, "bob, alice")],
            &[(USER, "alice,")],
        ] {
            assert_eq!(read(lines), Err(AmbiguousHeader(USER.into())), "{lines:?}");
        }
        let mut headers = HeaderMap::new();
        headers.append(USER, HeaderValue::from_static("alice"));
        assert_eq!(Forwarded::read(&headers, None).unwrap().user, None, "not configured");
    }

    #[test]
    fn t27_of_several_client_addresses_the_last_counts_as_the_proxy_added_it() {
        for (value, client) in [
            ("203.0.113.9", "203.0.113.9"),
            ("127.0.0.1, 203.0.113.9", "203.0.113.9"),
            ("spoofed,203.0.113.9:4711", "203.0.113.9"),
            ("[2001:db8::1]:80", "2001:db8::1"),
            ("::ffff:203.0.113.9", "203.0.113.9"),
        ] {
            assert_eq!(read(&[(FOR, value)]).unwrap().client(), client.parse::<IpAddr>().unwrap(), "{value}");
        }
        let doubled = read(&[(FOR, "127.0.0.1"), (FOR, "203.0.113.9")]).unwrap();
        assert_eq!(doubled.client, "203.0.113.9".parse().ok());
        assert_eq!(read(&[(FOR, "unknown")]).unwrap().client(), IpAddr::from(Ipv4Addr::UNSPECIFIED));
    }
}
