//! InfiniBand and RoCE traffic from the port counters under `/sys/class/infiniband`.

use super::{device_rates::DeviceRates, file::OpenFile};
use nodeglass_protocol::Reading;
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

/// Data counters have units of four bytes, independent of the link width.
const WORD: u64 = 4;
/// Error counters.
const ERRORS: [&str; 3] = ["symbol_error", "link_downed", "port_rcv_errors"];
/// Interval of port discovery, because links may come up later.
const FOUND_AGAIN_NS: u64 = 30_000_000_000;
/// Interval of error queries, each of which is a firmware request.
const ERRORS_EVERY_NS: u64 = 5_000_000_000;

/// Traffic of all links.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Received, in bytes/s.
    pub rx: Reading<u64>,
    /// Sent, in bytes/s.
    pub tx: Reading<u64>,
    /// Errors since the links came up.
    pub errors: Reading<u64>,
}

/// The active ports of this node.
#[derive(Debug)]
pub struct Ports {
    class: PathBuf,
    ports: Vec<Port>,
    found_ns: Option<u64>,
    errors: (Option<u64>, Reading<u64>),
    rates: DeviceRates,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Port {
    name: String,
    received: OpenFile,
    sent: OpenFile,
    errors: Vec<OpenFile>,
}

impl Ports {
    /// Creates the ports of a folder such as `/sys/class/infiniband`.
    pub fn of(class: PathBuf) -> Self {
        Self {
            class,
            ports: Vec::new(),
            found_ns: None,
            errors: (None, Reading::NotYet),
            rates: DeviceRates::default(),
            buffer: Vec::new(),
        }
    }

    /// Reads all counters. May hang if the driver does.
    pub fn read(&mut self, now_ns: u64) -> Traffic {
        if self.found_ns.is_none_or(|at| now_ns.saturating_sub(at) >= FOUND_AGAIN_NS) {
            (self.ports, self.found_ns) = (found(&self.class), Some(now_ns));
        }
        if self.ports.is_empty() {
            self.rates.reset();
            return Traffic {
                rx: Reading::Unsupported,
                tx: Reading::Unsupported,
                errors: Reading::Unsupported,
            };
        }
        let mut counters = HashMap::new();
        for port in &self.ports {
            let received = port.received.number(&mut self.buffer);
            if let (Ok(received), Ok(sent)) = (received, port.sent.number(&mut self.buffer)) {
                counters.insert(port.name.clone(), [received, sent].map(|words| words.saturating_mul(WORD)));
            }
        }
        let failed = counters.is_empty();
        let [rx, tx] = self.rates.rates(now_ns, counters);
        self.count_errors(now_ns);
        let rate = |rate| if failed { Reading::Failed("no port reports its counters".into()) } else { rate };
        Traffic { rx: rate(rx), tx: rate(tx), errors: self.errors.1.clone() }
    }

    fn count_errors(&mut self, now_ns: u64) {
        if self.errors.0.is_some_and(|at| now_ns.saturating_sub(at) < ERRORS_EVERY_NS) {
            return;
        }
        let counters = self.ports.iter().flat_map(|port| &port.errors);
        let counts: Vec<u64> = counters.filter_map(|counter| counter.number(&mut self.buffer).ok()).collect();
        let sum = counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let errors = if counts.is_empty() { Reading::Unsupported } else { Reading::Value(sum) };
        self.errors = (Some(now_ns), errors);
    }
}

/// Returns all ports whose link is up.
fn found(class: &Path) -> Vec<Port> {
    let mut ports = Vec::new();
    for card in fs::read_dir(class).into_iter().flatten().flatten() {
        for port in fs::read_dir(card.path().join("ports")).into_iter().flatten().flatten() {
            let folder = port.path();
            let up = fs::read_to_string(folder.join("state")).is_ok_and(|state| state.contains("ACTIVE"));
            if !up {
                continue;
            }
            let open = |name: &str| OpenFile::open(&folder.join("counters").join(name));
            ports.push(Port {
                name: format!("{}/{}", card.file_name().display(), port.file_name().display()),
                received: open("port_rcv_data"),
                sent: open("port_xmit_data"),
                errors: ERRORS.iter().map(|name| open(name)).filter(OpenFile::is_open).collect(),
            });
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn port(class: &Path, card: &str, state: &str, counters: [u64; 4]) {
        let folder = class.join(card).join("ports/1");
        fs::create_dir_all(folder.join("counters")).unwrap();
        fs::write(folder.join("state"), state).unwrap();
        for (name, count) in
            ["port_rcv_data", "port_xmit_data", "symbol_error", "link_downed"].into_iter().zip(counters)
        {
            fs::write(folder.join("counters").join(name), format!("{count}\n")).unwrap();
        }
    }

    #[test]
    fn four_byte_words_of_active_links_are_counted() {
        let class = tempfile::tempdir().unwrap();
        let mut ports = Ports::of(class.path().into());
        port(class.path(), "mlx5_0", "4: ACTIVE\n", [1_000, 2_000, 3, 1]);
        port(class.path(), "mlx5_1", "1: DOWN\n", [9, 9, 100, 100]);
        let first = ports.read(SECOND);
        assert_eq!(first, Traffic { rx: Reading::NotYet, tx: Reading::NotYet, errors: Reading::Value(4) });
        port(class.path(), "mlx5_0", "4: ACTIVE\n", [1_500, 2_002, 5, 1]);
        let second = ports.read(3 * SECOND);
        assert_eq!(
            second,
            Traffic { rx: Reading::Value(1_000), tx: Reading::Value(4), errors: Reading::Value(4) }
        );
        assert_eq!(ports.read(7 * SECOND).errors, Reading::Value(6));
    }

    #[test]
    fn a_node_without_links_has_no_zeros() {
        let class = tempfile::tempdir().unwrap();
        assert_eq!(Ports::of(class.path().join("none")).read(SECOND).rx, Reading::Unsupported);
        port(class.path(), "mlx5_1", "1: DOWN\n", [9, 9, 1, 1]);
        assert_eq!(Ports::of(class.path().into()).read(SECOND).errors, Reading::Unsupported);
    }
}
