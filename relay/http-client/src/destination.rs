//! Addresses that may be contacted. The name is resolved once, and every address that it has is checked.
//!
//! A request from the login node reaches what the network admits from there: metadata services of clouds, programs on
//! loopback, devices in private networks. The owner may name such a host, but a name must not resolve there unless
//! the URL says so, or the certificate of the host proves its name.

use crate::error::HttpError;
use crate::url::{Host, HttpUrl};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum number of addresses that are tried.
const MAX_ADDRESSES: usize = 4;

/// The network to which an address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// This machine.
    Loopback,
    /// A private network.
    Private,
    /// The internet.
    Public,
    /// Nothing that may be contacted: link-local, with the metadata services of clouds, multicast, unspecified.
    Never,
}

/// Resolves the host of a URL, and returns the addresses to try, at most four, without contacting any.
///
/// # Errors
/// [`HttpError`] if there is none, or if one of them may not be contacted.
pub async fn resolve(url: &HttpUrl) -> Result<Vec<SocketAddr>, HttpError> {
    let found: Vec<IpAddr> = match url.host() {
        Host::Address(address) => vec![*address],
        Host::Name(name) => {
            let found = tokio::net::lookup_host((name.as_str(), url.port())).await;
            let found = found.map_err(|error| HttpError::Resolve(name.clone(), error.to_string()))?;
            found.map(|address| address.ip()).collect()
        }
    };
    check(url, &found)?;
    Ok(found.into_iter().take(MAX_ADDRESSES).map(|ip| SocketAddr::new(ip, url.port())).collect())
}

/// Checks every address of a host.
fn check(url: &HttpUrl, found: &[IpAddr]) -> Result<(), HttpError> {
    let refuse = |why| Err(HttpError::Destination(url.host().to_string(), why));
    if found.is_empty() {
        return Err(HttpError::Resolve(url.host().to_string(), "it has no address".to_owned()));
    }
    for address in found {
        match reach(*address) {
            Reach::Never => return refuse("leads to an address that the relay never contacts"),
            Reach::Loopback if !names_loopback(url.host()) => {
                return refuse("leads to this machine; write 127.0.0.1 or localhost if that is meant");
            }
            Reach::Private if !url.is_tls() && !names_private(url) => {
                return refuse(
                    "leads into a private network; if that is meant, write https://, its address, or #private at the end of the URL",
                );
            }
            Reach::Public if !url.is_tls() => {
                return refuse("is outside of the private network, where the URL must begin with https://");
            }
            Reach::Loopback | Reach::Private | Reach::Public => {}
        }
    }
    Ok(())
}

/// Returns whether the owner wrote that this machine is meant.
fn names_loopback(host: &Host) -> bool {
    match host {
        Host::Address(_) => true,
        Host::Name(name) => name == "localhost",
    }
}

/// Returns whether the owner wrote that a host of the private network is meant. A name without a dot is not in the public DNS.
fn names_private(url: &HttpUrl) -> bool {
    match url.host() {
        Host::Address(_) => true,
        Host::Name(name) => url.is_private() || !name.contains('.'),
    }
}

/// Returns the network to which an address leads; also for an IPv4 address in the form of an IPv6 one.
pub(crate) fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => match embedded(address) {
            Some(address) => reach_v4(address),
            None => reach_v6(address),
        },
    }
}

fn reach_v4(address: Ipv4Addr) -> Reach {
    let [first, second, third, _] = address.octets();
    // Metadata of Alibaba Cloud and of Oracle Cloud, which are not link-local.
    let is_metadata = matches!(address.octets(), [100, 100, 100, 200] | [192, 0, 0, 192]);
    match first {
        127 => Reach::Loopback,
        0 | 224.. => Reach::Never,
        _ if is_metadata || address.is_link_local() => Reach::Never,
        _ if address.is_private() || (first == 100 && second & 0xc0 == 64) => Reach::Private,
        // Protocol assignments, documentation and benchmarks.
        192 if second == 0 && (third == 0 || third == 2) => Reach::Never,
        198 if second & 0xfe == 18 || (second, third) == (51, 100) => Reach::Never,
        203 if (second, third) == (0, 113) => Reach::Never,
        _ => Reach::Public,
    }
}

fn reach_v6(address: Ipv6Addr) -> Reach {
    let [first, second, ..] = address.segments();
    // Metadata and other local services of Amazon's and Google's clouds.
    let is_of_cloud = matches!((first, second), (0xfd00, 0xec2) | (0xfd20, 0xce));
    match first {
        _ if address.is_loopback() => Reach::Loopback,
        _ if address.is_unspecified() || is_of_cloud => Reach::Never,
        first if first & 0xfe00 == 0xfc00 => Reach::Private,
        // Global unicast; the rest is link-local, site-local, multicast or reserved.
        first if first & 0xe000 == 0x2000 => Reach::Public,
        _ => Reach::Never,
    }
}

/// The IPv4 address that an IPv6 address stands for: mapped, compatible, NAT64, 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let of = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        [0, 0, 0, 0, 0, 0xffff, high, low] => Some(of(high, low)),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some(of(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(of(high, low)),
        [0x2002, high, low, ..] => Some(of(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reaches(expected: Reach, addresses: &[&str]) {
        for address in addresses {
            assert_eq!(reach(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn t35_addresses_are_sorted_by_what_they_lead_to() {
        reaches(Reach::Loopback, &["127.0.0.1", "127.255.0.3", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"]);
        reaches(
            Reach::Private,
            &["10.0.0.8", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fd12::1", "::ffff:10.0.0.8"],
        );
        reaches(
            Reach::Public,
            &["8.8.8.8", "172.32.0.1", "100.128.0.1", "2001:4860:4860::8888", "198.20.0.1"],
        );
        reaches(
            Reach::Never,
            &[
                "169.254.169.254",
                "::ffff:169.254.169.254",
                "64:ff9b::a9fe:a9fe",
                "2002:a9fe:a9fe::1",
                "100.100.100.200",
                "192.0.0.192",
                "fd00:ec2::254",
                "fe80::1",
                "0.0.0.0",
                "0.1.2.3",
                "::",
                "255.255.255.255",
                "224.0.0.1",
                "ff02::1",
                "203.0.113.1",
                "198.51.100.1",
            ],
        );
    }

    fn checked(url: &str, addresses: &[&str]) -> Result<(), String> {
        let found: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        check(&url.parse().unwrap(), &found).map_err(|error| error.to_string())
    }

    #[test]
    fn t35_a_name_leads_to_no_metadata_service_and_not_to_this_machine() {
        assert_eq!(checked("https://chat.example.org/", &["10.0.0.8"]), Ok(()));
        assert_eq!(checked("https://chat.example.org/", &["8.8.8.8"]), Ok(()));
        assert_eq!(checked("http://localhost:1/", &["127.0.0.1", "::1"]), Ok(()));
        for permitted in ["http://10.0.0.8/", "http://mattermost:8065/", "http://chat.example.org/x#private"]
        {
            assert_eq!(checked(permitted, &["10.0.0.8"]), Ok(()), "{permitted}");
        }
        assert_eq!(checked("http://127.0.0.1:1/", &["127.0.0.1"]), Ok(()));
        for (url, addresses) in [
            ("https://chat.example.org/", &["169.254.169.254"][..]),
            // One bad address is enough, wherever it is.
            ("https://chat.example.org/", &["8.8.8.8", "127.0.0.1"]),
            ("https://127.0.0.1.example.org/", &["127.0.0.1"]),
            // What libc takes for 127.0.0.1 is a name here.
            ("http://2130706433/", &["127.0.0.1"]),
            ("http://169.254.169.254/latest", &["169.254.169.254"]),
            ("http://chat.example.org/", &["8.8.8.8"]),
            ("http://chat.example.org/", &["10.0.0.8"]),
            ("http://chat.example.org/", &["fd12::1"]),
            ("http://chat.example.org/#other", &["192.168.1.1"]),
            // That it may be private does not make it this machine, a metadata service, or a public host.
            ("http://chat.example.org/#private", &["127.0.0.1"]),
            ("http://chat.example.org/#private", &["169.254.169.254"]),
            ("http://chat.example.org/#private", &["10.0.0.8", "8.8.8.8"]),
            ("https://chat.example.org/", &[]),
        ] {
            assert!(checked(url, addresses).is_err(), "{url} at {addresses:?}");
        }
    }
}
