//! A trusted proxy says what its own visitor asked for, once and clearly, or the request is not answered.

use axum::http::HeaderMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// What a proxy says of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Forwarded {
    /// The host that the browser asked for.
    pub(super) host: Option<String>,
    /// `http` or `https`, as the browser speaks with the proxy.
    pub(super) scheme: Option<&'static str>,
    /// Who is behind it; the unspecified address if it does not say.
    pub(super) client: Option<IpAddr>,
    /// The user whom it let in.
    pub(super) user: Option<String>,
    /// Whether the request has any header of a proxy, readable or not.
    pub(super) is_by_proxy: bool,
}

/// A header that is there several times, with several values, or with one that cannot be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unclear(String);

impl Unclear {
    /// What to tell whoever set the proxy up.
    pub(super) fn sentence(&self) -> String {
        format!("the proxy must send {} with exactly one value\n", self.0)
    }
}

const HOST: &str = "X-Forwarded-Host";
const PROTO: &str = "X-Forwarded-Proto";
const FOR: &str = "X-Forwarded-For";
/// What proxies add besides the `X-Forwarded-…` headers, in lower case.
const OTHERS: [&str; 3] = ["forwarded", "via", "x-real-ip"];

impl Forwarded {
    /// Reads the headers of a trusted proxy, and the one that names its visitor if it has one; nobody else's must
    /// be read.
    pub(super) fn read(headers: &HeaderMap, user_header: Option<&str>) -> Result<Self, Unclear> {
        let scheme = match one(headers, PROTO)? {
            None => None,
            Some("http") => Some("http"),
            Some("https") => Some("https"),
            Some(_) => return Err(Unclear(PROTO.into())),
        };
        let user = match user_header {
            // Some proxies send it empty for who did not log in.
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

    /// Who is behind the proxy, as far as it says.
    pub(super) fn client(&self) -> IpAddr {
        self.client.unwrap_or(Ipv4Addr::UNSPECIFIED.into())
    }
}

/// Browsers send none of these. One that is empty or cannot be read shows a proxy as well as any other.
fn is_by_proxy(headers: &HeaderMap, user_header: Option<&str>) -> bool {
    let adds = |name: &str| name.starts_with("x-forwarded-") || OTHERS.contains(&name);
    headers.keys().any(|name| adds(name.as_str()))
        || user_header.is_some_and(|name| headers.contains_key(name))
}

/// The value of a header that may be missing, but not be there twice, neither as two lines nor as a list.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Unclear> {
    let unclear = || Unclear(name.to_owned());
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let value = value.to_str().map_err(|_| unclear())?.trim();
    let is_one = values.next().is_none() && !value.is_empty() && !value.contains(',');
    if is_one { Ok(Some(value)) } else { Err(unclear()) }
}

/// Whether a header is there once, with nothing in it.
fn is_empty(headers: &HeaderMap, name: &str) -> bool {
    let mut values = headers.get_all(name).iter();
    values.next().is_some_and(|value| value.is_empty()) && values.next().is_none()
}

/// The last address: that one the trusted proxy saw itself; what stands before it anybody may have written.
fn client(headers: &HeaderMap) -> Option<IpAddr> {
    let last = headers.get_all(FOR).iter().next_back()?.to_str().ok()?.rsplit(',').next()?.trim();
    let with_port = || last.parse::<SocketAddr>().ok().map(|addr| addr.ip());
    Some(last.parse().ok().or_else(with_port)?.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn read(lines: &[(&str, &str)]) -> Result<Forwarded, Unclear> {
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
    fn t27_what_a_proxy_says_once_is_heard() {
        let heard = read(&[
            ("X-Forwarded-Host", "portal.example.org"),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-For", "203.0.113.9"),
        ]);
        let client = "203.0.113.9".parse().ok();
        assert_eq!(
            heard,
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

    /// A proxy that runs as the owner is told from the owner's own browser by these headers alone.
    #[test]
    fn t27_any_header_of_a_proxy_shows_one() {
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
    fn t27_two_hosts_or_schemes_are_none() {
        for (name, says) in [("X-Forwarded-Host", HOST), ("X-Forwarded-Proto", PROTO)] {
            for lines in [
                &[(name, "http"), (name, "http")][..],
                &[(name, "https, http")],
                &[(name, "")],
                &[(name, " ")],
                &[(name, "http,")],
            ] {
                assert_eq!(read(lines), Err(Unclear(says.into())), "{lines:?}");
            }
        }
        for scheme in ["ftp", "HTTPS", "javascript"] {
            assert_eq!(read(&[("X-Forwarded-Proto", scheme)]), Err(Unclear(PROTO.into())), "{scheme}");
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
            assert_eq!(read(lines), Err(Unclear(USER.into())), "{lines:?}");
        }
        let mut headers = HeaderMap::new();
        headers.append(USER, HeaderValue::from_static("alice"));
        assert_eq!(Forwarded::read(&headers, None).unwrap().user, None, "it was not asked for");
    }

    #[test]
    fn t27_of_many_clients_the_last_counts_for_only_that_one_the_proxy_saw() {
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
