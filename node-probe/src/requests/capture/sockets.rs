//! Established TCP connections of a process.

use super::read_start;
use nodeglass_protocol::Reading;
use nodeglass_protocol::capture::{MAX_PEERS, Peer};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

/// Maximum number of open files that are examined.
const MAX_FILES: usize = 16_384;
/// Maximum size of a table of sockets, which lists the sockets of the whole machine.
const MAX_TABLE: u64 = 16 << 20;
/// State of an established connection in the tables.
const ESTABLISHED: &str = "01";

/// The number of connections, and the peers with most of them.
pub(super) fn connections(folder: &Path) -> (Reading<u32>, Vec<Peer>) {
    let inodes = match socket_inodes(folder) {
        Ok(inodes) => inodes,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return (Reading::Unsupported, Vec::new());
        }
        Err(error) => return (Reading::Failed(error.to_string().into()), Vec::new()),
    };
    let mut peers: BTreeMap<SocketAddr, u32> = BTreeMap::new();
    for table in ["net/tcp", "net/tcp6"] {
        // IPv6 may be off.
        let table = read_start(&folder.join(table), MAX_TABLE).unwrap_or_default();
        for (inode, peer) in table.split(|byte| *byte == b'\n').filter_map(connection) {
            if inodes.contains(&inode) {
                *peers.entry(peer).or_default() += 1;
            }
        }
    }
    let total = peers.values().copied().fold(0, u32::saturating_add);
    let mut peers: Vec<(SocketAddr, u32)> = peers.into_iter().collect();
    peers.sort_by_key(|(address, count)| (Reverse(*count), *address));
    let peer = |(address, count): (SocketAddr, u32)| Peer { address: address.to_string().into(), count };
    (Reading::Value(total), peers.into_iter().take(MAX_PEERS).map(peer).collect())
}

/// The inodes of a process's sockets.
fn socket_inodes(folder: &Path) -> io::Result<HashSet<u64>> {
    let entries = fs::read_dir(folder.join("fd"))?.flatten().take(MAX_FILES);
    let inode = |link: std::path::PathBuf| {
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
    };
    Ok(entries.filter_map(|entry| inode(fs::read_link(entry.path()).ok()?)).collect())
}

/// Inode and peer of an established connection.
fn connection(line: &[u8]) -> Option<(u64, SocketAddr)> {
    let line = std::str::from_utf8(line).ok()?;
    let mut fields = line.split_ascii_whitespace();
    let peer = fields.nth(2)?;
    if fields.next()? != ESTABLISHED {
        return None;
    }
    let inode = fields.nth(5)?.parse().ok()?;
    Some((inode, address(peer)?))
}

/// Parses `0100007F:1F90`: words of four bytes in the machine's order, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    if !ip.is_ascii() || !matches!(ip.len(), 8 | 32) {
        return None;
    }
    let words = (0..ip.len() / 8).map(|word| u32::from_str_radix(&ip[8 * word..8 * word + 8], 16).ok());
    let bytes: Option<Vec<[u8; 4]>> = words.map(|word| word.map(u32::to_ne_bytes)).collect();
    let bytes = bytes?.concat();
    let ip = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(bytes) => IpAddr::V4(Ipv4Addr::from(bytes)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?)).to_canonical(),
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn our_own_connections_are_counted_by_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let kept: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        let (count, peers) = connections(Path::new("/proc/self"));
        assert!(*count.value().unwrap() >= 3, "{count:?}");
        let peer = peers.iter().find(|peer| peer.address.as_str() == address.to_string()).unwrap();
        assert_eq!(peer.count, 3);
        drop(kept);
    }

    #[test]
    fn addresses_of_both_versions_are_parsed() {
        assert_eq!(address("0100007F:1F90").unwrap().to_string(), "127.0.0.1:8080");
        assert_eq!(
            address("0000000000000000FFFF00000100007F:0050").unwrap().to_string(),
            "127.0.0.1:80",
            "a mapped address is one of IPv4"
        );
        assert_eq!(address("00000000000000000000000001000000:0050").unwrap().to_string(), "[::1]:80");
        for text in ["", ":", "0100007F", "0100007F:10000", "ää00007F:1", "0100007:1"] {
            assert_eq!(address(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_line_is_too_strange(line in "[ :0-9A-Fä]{0,90}") {
            let _ = (connection(line.as_bytes()), address(&line));
        }
    }
}
