//! A browser may reach the relay only under names that lead to this machine by themselves; others were rebound.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The names under which a browser may reach the relay.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts {
    names: Vec<String>,
}

impl AllowedHosts {
    /// Loopback, and these names (lower case, without port).
    pub fn new(names: Vec<String>) -> Self {
        Self { names }
    }

    /// Whether a `Host` header may stand there: loopback, `localhost` or an allowed name, with any port.
    ///
    /// Any port, because the near end of a tunnel may have another one than the relay.
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

/// The host in `host` or `host:port`.
fn host_of(authority: &str) -> Option<&str> {
    let end_of_literal = authority.rfind(']').map_or(0, |at| at + 1);
    match authority[end_of_literal..].find(':') {
        None => Some(authority),
        Some(colon) => {
            let (host, port) = authority.split_at(end_of_literal + colon);
            port[1..].parse::<u16>().is_ok().then_some(host)
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
    fn a_name_from_the_settings_is_allowed() {
        let hosts = AllowedHosts::new(vec!["portal.example.org".into()]);
        assert!(hosts.allows("Portal.Example.Org:443"));
        assert!(hosts.allows("portal.example.org"));
    }
}
