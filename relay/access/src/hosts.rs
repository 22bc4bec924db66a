//! The `Host` names under which the relay accepts requests, which prevents DNS rebinding.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The accepted host names.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts {
    names: Vec<String>,
}

impl AllowedHosts {
    /// Loopback and these names (lower case, without port).
    pub fn new(names: Vec<String>) -> Self {
        Self { names }
    }

    /// Returns whether a `Host` header is accepted: loopback, `localhost` or an allowed name, with any
    /// port.
    ///
    /// Any port, because the local end of a tunnel may differ from the relay's.
    pub fn allows(&self, authority: &str) -> bool {
        let Some(host) = host_of(authority) else { return false };
        if let Some(literal) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            return literal.parse() == Ok(Ipv6Addr::LOCALHOST);
        }
        if let Ok(ip) = host.parse::<Ipv4Addr>() {
            return IpAddr::from(ip).is_loopback();
        }
        let host = host.to_ascii_lowercase();
        host == "localhost" || self.names.contains(&host)
    }
}

/// Returns whether an authority is exactly this address. An address cannot be rebound.
pub fn is_address(authority: &str, ip: IpAddr) -> bool {
    let host = host_of(authority).unwrap_or_default();
    let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match ip {
        IpAddr::V4(ip) => host.parse() == Ok(ip),
        IpAddr::V6(ip) => literal.is_some_and(|literal| literal.parse() == Ok(ip)),
    }
}

/// The host in `host` or `host:port`.
fn host_of(authority: &str) -> Option<&str> {
    let end_of_literal = authority.rfind(']').map_or(0, |at| at + 1);
    match authority[end_of_literal..].find(':') {
        None => Some(authority),
        Some(colon) => {
            let (host, port) = authority.split_at(end_of_literal + colon);
            // `parse` would accept a sign as well.
            let is_port = port[1..].bytes().all(|b| b.is_ascii_digit()) && port[1..].parse::<u16>().is_ok();
            is_port.then_some(host)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_allowed_under_any_port() {
        let hosts = AllowedHosts::default();
        for host in [
            "127.0.0.1:8080",
            "127.0.0.1",
            "127.9.9.9:1",
            "localhost",
            "LOCALHOST:65535",
            "[::1]:80",
            "[::1]",
        ] {
            assert!(hosts.allows(host), "{host}");
        }
    }

    #[test]
    fn a_rebound_or_misshapen_name_is_not() {
        let hosts = AllowedHosts::new(vec!["portal.example.org".into()]);
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:8080",
            "evil@localhost",
            "localhost@evil.example",
            "10.0.0.1:8080",
            "0.0.0.0:8080",
            "[::]:8080",
            "[::ffff:10.0.0.1]",
            "::1",
            "",
            ":8080",
            "localhost:",
            "localhost:x",
            "localhost:80:80",
            "localhost:+80",
            "127.0.0.1:-0",
            "[::1]:+80",
            "localhost:99999",
            "localhost.",
            "2130706433",
            "0x7f.1",
            "xportal.example.org",
            "[::1]x",
        ] {
            assert!(!hosts.allows(host), "{host}");
        }
    }

    #[test]
    fn an_address_is_itself_and_nothing_else() {
        let (v4, v6) = ("10.0.0.7".parse().unwrap(), "2001:db8::7".parse().unwrap());
        for host in ["10.0.0.7", "10.0.0.7:8443"] {
            assert!(is_address(host, v4) && !is_address(host, v6), "{host}");
        }
        for host in ["[2001:db8::7]", "[2001:db8:0::7]:8443"] {
            assert!(is_address(host, v6) && !is_address(host, v4), "{host}");
        }
        for host in [
            "",
            "10.0.0.8",
            "10.0.0.7:+80",
            "10.0.0.7.evil.example",
            "2001:db8::7",
            "[10.0.0.7]",
            "10.7",
            "localhost",
        ] {
            assert!(!is_address(host, v4) && !is_address(host, v6), "{host}");
        }
    }

    #[test]
    fn a_name_from_the_settings_is_allowed() {
        let hosts = AllowedHosts::new(vec!["portal.example.org".into()]);
        assert!(hosts.allows("Portal.Example.Org:443"));
        assert!(hosts.allows("portal.example.org"));
    }
}
