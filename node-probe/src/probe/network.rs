//! Whether this node itself is cut off, so that the relay's silence says nothing about the relay.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

/// The network interface through which the SSH connection of this probe came.
#[derive(Debug, Default)]
pub(super) struct Uplink {
    /// `/sys/class/net/NAME/carrier`; `None` without an SSH connection, or if the interface is unknown.
    carrier: Option<String>,
}

impl Uplink {
    /// Finds the interface of this process's SSH connection.
    pub(super) fn of_this_process() -> Self {
        let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
        let client = connection.split(' ').next().and_then(|client| client.parse().ok());
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let interface = client.and_then(|client: IpAddr| match client {
            IpAddr::V4(_) => interface_to(client, &read("/proc/net/route"), ipv4_route),
            IpAddr::V6(_) => interface_to(client, &read("/proc/net/ipv6_route"), ipv6_route),
        });
        // A name that contains a slash is invalid.
        let name = interface.filter(|name| Path::new(name).components().count() == 1 && !name.contains('/'));
        Self { carrier: name.map(|name| format!("/sys/class/net/{name}/carrier")) }
    }

    /// Returns whether the interface has no link, as with an unplugged cable. An interface that is turned off refuses to be
    /// read, and one that is unknown counts as linked.
    pub(super) fn is_cut(&self) -> bool {
        self.carrier.as_ref().is_some_and(|path| {
            fs::read_to_string(path).map_or(Path::new(path).exists(), |up| up.trim() == "0")
        })
    }
}

/// A route: the network as bits from the left, the length of its prefix, and the interface.
type Route<'a> = (u128, u32, &'a str);

/// Returns the interface of the most specific route to an address.
fn interface_to(address: IpAddr, table: &str, parse: fn(&str) -> Option<Route<'_>>) -> Option<String> {
    let bits = match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => u128::from(address),
    };
    let is_of = |(network, length, _): &Route<'_>| {
        let mask = u128::MAX.checked_shl(128 - (*length).min(128)).unwrap_or(0);
        bits & mask == network & mask
    };
    let routes = table.lines().filter_map(parse).filter(is_of);
    routes.max_by_key(|(_, length, _)| *length).map(|(.., interface)| interface.to_owned())
}

/// A line of `/proc/net/route`: interface, destination, gateway, flags, …, mask as eighth field; addresses in the byte order of
/// this machine.
fn ipv4_route(line: &str) -> Option<Route<'_>> {
    let mut fields = line.split_whitespace();
    let (interface, destination) = (fields.next()?, fields.next()?);
    let mask = fields.nth(5)?;
    // The bytes are in the order of the network, and were printed as one number of this machine.
    let address = |text| Some(u32::from_be_bytes(u32::from_str_radix(text, 16).ok()?.to_ne_bytes()));
    Some((u128::from(address(destination)?) << 96, address(mask)?.leading_ones(), interface))
}

/// A line of `/proc/net/ipv6_route`: destination, length of its prefix, …, interface as last field.
fn ipv6_route(line: &str) -> Option<Route<'_>> {
    let mut fields = line.split_whitespace();
    let (destination, length) = (fields.next()?, fields.next()?);
    let network = u128::from_str_radix(destination, 16).ok()?;
    Some((network, u32::from_str_radix(length, 16).ok()?, fields.last()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IPV4: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
ib0\t00004D0A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
";

    const IPV6: &str = "\
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 1 0 00000003 eth0
fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 1 0 00000001 ib0
";

    #[test]
    fn the_most_specific_route_names_the_interface() {
        // As little-endian machines print it.
        if cfg!(target_endian = "little") {
            for (address, interface) in [("10.77.0.1", "ib0"), ("10.78.0.1", "eth0"), ("8.8.8.8", "eth0")] {
                let found = interface_to(address.parse().unwrap(), IPV4, ipv4_route);
                assert_eq!(found.as_deref(), Some(interface), "{address}");
            }
        }
        for (address, interface) in [("fd00::7", "ib0"), ("fd00:0:0:1::7", "eth0")] {
            let found = interface_to(address.parse().unwrap(), IPV6, ipv6_route);
            assert_eq!(found.as_deref(), Some(interface), "{address}");
        }
        assert_eq!(interface_to("10.0.0.1".parse().unwrap(), "garbage\nIface x y", ipv4_route), None);
    }

    #[test]
    fn f01_an_interface_is_cut_only_while_it_states_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("carrier");
        let uplink = Uplink { carrier: Some(path.display().to_string()) };
        assert!(!uplink.is_cut(), "an interface that is gone");
        for (text, is_cut) in [("0\n", true), ("1\n", false)] {
            fs::write(&path, text).unwrap();
            assert_eq!(uplink.is_cut(), is_cut);
        }
        assert!(!Uplink::default().is_cut());
    }
}
