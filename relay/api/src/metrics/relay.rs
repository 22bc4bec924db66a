//! The relay itself: its resource usage, its probes, what was lost and what it delivered.

use super::super::{ConnectionLosses, Losses, ProbeStatus, RemoteWriteStatus, Snapshot};
use super::{Kind, Labels, RelayMetrics, Sink, seconds};
use std::collections::BTreeMap;

/// Writes the series of the relay itself, its probes, losses and deliveries.
pub fn write(out: &mut dyn Sink, snapshot: &Snapshot, relay: &RelayMetrics) {
    use Kind::{Counter, Gauge};
    out.family("nodeglass_build_info", "Version of the relay, always 1.", Gauge);
    out.sample(&Labels::new(&[("version", &relay.version), ("build", &relay.build)]), Some(1.0));
    let (frames, rss) = (Some(relay.coalesced as f64), relay.rss_bytes.map(|bytes| bytes as f64));
    let (slurm_at, started_at) = (relay.slurm_at.map(seconds), relay.started_at.map(seconds));
    #[rustfmt::skip]
    let families = [
        ("nodeglass_relay_viewers", "Connected pages.", Gauge, Some(f64::from(relay.viewers))),
        ("nodeglass_relay_coalesced_frames_total", "Frames that slow viewers missed.", Counter, frames),
        ("nodeglass_relay_slurm_last_success_timestamp_seconds", "Time of the last job list of SLURM.", Gauge, slurm_at),
        ("process_cpu_seconds_total", "CPU time of the relay.", Counter, Some(relay.cpu_s)),
        ("process_resident_memory_bytes", "Memory of the relay in RAM.", Gauge, rss),
        ("process_start_time_seconds", "Start time of the relay.", Gauge, started_at),
    ];
    for (name, help, kind, value) in families {
        out.family(name, help, kind);
        out.sample(&Labels::default(), value);
    }
    out.family(
        "nodeglass_relay_nats_up",
        "Whether the connection to NATS, and the leases of nodes over it, are there: 1, else 0.",
        Gauge,
    );
    for (part, is_up) in [("connection", relay.nats_connected), ("leases", relay.nats_leases)] {
        let value = is_up.map(|is_up| f64::from(u8::from(is_up)));
        out.sample(&Labels::new(&[("part", part)]), value);
    }
    let mut states: BTreeMap<&str, u32> = BTreeMap::new();
    snapshot.nodes.iter().for_each(|node| *states.entry(node.connection.name()).or_default() += 1);
    out.family("nodeglass_relay_nodes", "Nodes by the state of their connection.", Kind::Gauge);
    for (state, count) in states {
        out.sample(&Labels::new(&[("state", state)]), Some(f64::from(count)));
    }
    probes(out, &relay.probes);
    losses(out, &relay.losses);
    out.family(
        "nodeglass_notifications_total",
        "Notices of findings and jobs by channel, and what became of them.",
        Kind::Counter,
    );
    for status in &relay.notifications {
        let outcomes =
            [("delivered", status.delivered), ("failed", status.failed), ("dropped", status.dropped)];
        for (outcome, count) in outcomes {
            let labels = Labels::new(&[("channel", &status.channel), ("outcome", outcome)]);
            out.sample(&labels, Some(count as f64));
        }
    }
    if let Some(status) = &relay.remote_write {
        remote_write(out, status);
    }
}

fn remote_write(out: &mut dyn Sink, status: &RemoteWriteStatus) {
    out.family(
        "nodeglass_remote_write_samples_total",
        "Samples for remote write, and what became of them.",
        Kind::Counter,
    );
    let outcomes = [("sent", status.sent), ("refused", status.refused), ("dropped", status.dropped)];
    for (outcome, count) in outcomes {
        out.sample(&Labels::new(&[("outcome", outcome)]), Some(count as f64));
    }
    let families = [
        (
            "nodeglass_remote_write_pending_samples",
            "Samples that wait for the server.",
            Kind::Gauge,
            status.pending,
        ),
        (
            "nodeglass_remote_write_pending_bytes",
            "Size of the samples that wait for the server.",
            Kind::Gauge,
            status.pending_bytes,
        ),
        (
            "nodeglass_remote_write_sent_bytes_total",
            "Bytes of accepted requests.",
            Kind::Counter,
            status.sent_bytes,
        ),
        (
            "nodeglass_remote_write_retries_total",
            "Requests that failed and are repeated.",
            Kind::Counter,
            status.retries,
        ),
    ];
    for (name, help, kind, value) in families {
        out.family(name, help, kind);
        out.sample(&Labels::default(), Some(value as f64));
    }
}

fn losses(out: &mut dyn Sink, losses: &Losses) {
    let labelled = |of: &ConnectionLosses| probe_labels(&of.node, of.job);
    let labels: Vec<Labels> = losses.connections.iter().map(labelled).collect();
    type Count = fn(&ConnectionLosses) -> u64;
    let families: [(&str, &str, Count); 3] = [
        ("nodeglass_node_connection_attempts_total", "Attempts to start a probe on a node.", |of| {
            of.attempts
        }),
        ("nodeglass_node_unreadable_lines_total", "Lines of a node's probe that could not be read.", |of| {
            of.unreadable_lines
        }),
        (
            "nodeglass_node_lost_samples_total",
            "Samples that a node's probe took and that neither arrived nor were recovered.",
            |of| of.lost_samples,
        ),
    ];
    for (name, help, count) in families {
        out.family(name, help, Kind::Counter);
        let connections = losses.connections.iter().zip(&labels);
        connections.for_each(|(of, labels)| out.sample(labels, Some(count(of) as f64)));
    }
    out.family(
        "nodeglass_relay_unstored_records_total",
        "Records that could not be stored, by part: history, jobs, audit or recording.",
        Kind::Counter,
    );
    for (part, records) in losses.unstored.by_part() {
        out.sample(&Labels::new(&[("part", part)]), Some(records as f64));
    }
}

/// The labels of a probe, which may run in a job.
fn probe_labels(node: &str, job: Option<u32>) -> Labels {
    match job {
        Some(job) => Labels::new(&[("node", node), ("job", &job.to_string())]),
        None => Labels::new(&[("node", node)]),
    }
}

fn probes(out: &mut dyn Sink, probes: &[ProbeStatus]) {
    let labelled = |probe: &ProbeStatus| probe_labels(&probe.node, probe.job);
    out.family("nodeglass_probe_cpu_seconds_total", "CPU time of a node's probe.", Kind::Counter);
    for probe in probes {
        out.sample(&labelled(probe), Some(probe.cpu_ms as f64 / 1e3));
    }
    out.family("nodeglass_probe_resident_memory_bytes", "Memory of a node's probe in RAM.", Kind::Gauge);
    for probe in probes {
        out.sample(&labelled(probe), Some(probe.rss_bytes as f64));
    }
}
