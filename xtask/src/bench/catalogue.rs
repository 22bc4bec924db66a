//! The catalogue of measured quantities: name, unit, description, and target.

use std::fmt::Write as _;

/// A measured quantity.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its key in `summary.json`; the part before the first dot is the subject.
    pub(crate) name: &'static str,
    /// Its unit.
    pub(crate) unit: &'static str,
    /// Its target.
    pub(crate) goal: Option<Goal>,
    /// A one-sentence description.
    pub(crate) what: &'static str,
}

/// A target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// Maximum.
    AtMost(f64),
    /// Minimum.
    AtLeast(f64),
}

impl Goal {
    /// Returns whether a value meets it.
    pub(crate) fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }

    /// Formats it as shown in the table.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::AtMost(limit) => format!("≤ {limit}"),
            Self::AtLeast(limit) => format!("≥ {limit}"),
        }
    }
}

impl Entry {
    /// The part of the program that it belongs to.
    pub(crate) fn subject(&self) -> &'static str {
        self.name.split('.').next().unwrap_or_default()
    }

    /// Returns whether a command line argument selects it: its name, or a prefix up to a dot or
    /// underscore.
    pub(crate) fn matches(&self, selection: &str) -> bool {
        let rest = self.name.strip_prefix(selection);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '_']))
    }
}

/// The entry of a key; `wire.bytes_per_gpu_sample_busy.some_trace` belongs to
/// `wire.bytes_per_gpu_sample_busy`.
pub(crate) fn find(key: &str) -> Option<&'static Entry> {
    let of = |entry: &&Entry| {
        key.strip_prefix(entry.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    CATALOGUE.iter().find(of)
}

/// The whole catalogue, as printed by `--list`.
pub(crate) fn list() -> String {
    let width = CATALOGUE.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    CATALOGUE.iter().fold(String::new(), |mut out, entry| {
        let goal = entry.goal.map(|goal| format!(" ({})", goal.describe())).unwrap_or_default();
        let _ = writeln!(out, "{:width$}  {} [{}]{goal}", entry.name, entry.what, entry.unit);
        out
    })
}

const fn entry(name: &'static str, unit: &'static str, goal: Option<Goal>, what: &'static str) -> Entry {
    Entry { name, unit, goal, what }
}

const fn most(limit: f64) -> Option<Goal> {
    Some(Goal::AtMost(limit))
}

/// Entries of one subject stand together: its measuring program is run once.
pub(crate) const CATALOGUE: &[Entry] = &[
    entry("probe.cpu_pct_1hz_8gpu", "% of a core", most(0.3), "the probe as it runs: 8 GPUs, once a second"),
    entry("probe.rss_mb", "MB", most(8.0), "its resident memory"),
    entry("probe.tick_us", "µs of CPU", None, "one whole tick: readings, processes, host, and the line"),
    entry(
        "probe.vs_nvitop_cpu_ratio",
        "ours/theirs",
        most(0.05),
        "one tick against a steady snapshot by nvitop's API",
    ),
    entry(
        "probe.vs_gpustat_cpu_ratio",
        "ours/theirs",
        None,
        "one tick against a steady query by gpustat's API",
    ),
    entry(
        "probe.vs_nvnodetop_poll_cpu_ratio",
        "ours/theirs",
        most(0.02),
        "a relay and its probes against nvnodetop on the same nodes, CPU of all hosts, a second",
    ),
    entry(
        "wire.bytes_per_gpu_sample_idle",
        "B",
        most(0.5),
        "six core fields of idle GPUs, for each GPU, second and viewer; frames whole",
    ),
    entry("wire.bytes_per_gpu_sample_busy", "B", most(4.5), "the same of busy GPUs"),
    entry("wire.bytes_per_gpu_sample_all_fields", "B", most(10.0), "every field, processes, host and jobs"),
    entry("wire.bytes_per_gpu_sample_overview", "B", None, "busy GPUs in the overview"),
    entry(
        "wire.overview_snapshot_bytes_per_gpu",
        "B",
        None,
        "the overview's snapshot with its complete history, for each GPU",
    ),
    entry("wire.vs_json_ratio", "ours/theirs", None, "the six core fields against the same as JSON"),
    entry("wire.vs_gpustat_web_ratio", "ours/theirs", None, "the same against gpustat-web's whole HTML"),
    entry("wire.vs_gpu_hot_ratio", "ours/theirs", None, "the same against gpu-hot's whole JSON"),
    entry("history.bytes_per_gpu_hour", "B", None, "memory of a week of busy GPUs"),
    entry("history.mb_1000gpu_7d", "MB", None, "the same of 1,000 GPUs"),
    entry("history.record_us", "µs", None, "a node's sample of 8 GPUs"),
    entry("history.zoom_ms_p99_1000gpu", "ms", most(100.0), "a range of one field of 1,000 GPUs"),
    entry("history.zoom_ms_p50_1000gpu", "ms", None, "the same, the median"),
    entry("history.disk_bytes_per_sample", "B", None, "a GPU's value in the stored history"),
    entry(
        "history.victoria_metrics_bytes_per_sample",
        "B",
        None,
        "the same values in VictoriaMetrics, on disk without its index",
    ),
    entry(
        "history.replay_speed_max",
        "times real time",
        Some(Goal::AtLeast(60.0)),
        "events of 64 nodes applied from a recording",
    ),
    entry(
        "soak.history_mb_64n_20d",
        "MB",
        most(68.0),
        "history in memory over 20 simulated days of 64 nodes",
    ),
    entry("soak.disk_mb_64n_20d", "MB", most(540.0), "the stored history"),
    entry("soak.database_mb_64n_20d", "MB", None, "the database of jobs"),
    entry("soak.rss_mb_64n_20d", "MB", None, "resident memory of the simulation at its end"),
    entry("relay.cpu_pct_64n_0v", "% of a core", most(0.1), "64 nodes of 8 GPUs, no viewer"),
    entry("relay.cpu_pct_64n_1v", "% of a core", most(0.5), "64 nodes, one page looks at the job"),
    entry("relay.rss_mb_64n", "MB", most(25.0), "resident memory with 64 nodes"),
    entry("relay.rss_mb_64n_7d", "MB", most(100.0), "the same with the history of a week"),
    entry("relay.cpu_pct_1000n_1v", "% of a core", None, "1,000 nodes, one page"),
    entry("relay.cpu_pct_1000n_100v", "% of a core", most(10.0), "1,000 nodes, a hundred pages"),
    entry("relay.rss_mb_1000n", "MB", most(200.0), "resident memory with 1,000 nodes and a hundred pages"),
    entry(
        "relay.line_in_to_frame_out_p50_ms",
        "ms",
        None,
        "from a node's line to a page's frame, the median",
    ),
    entry("relay.line_in_to_frame_out_p99_ms", "ms", most(20.0), "the same for 99 of 100 samples"),
    entry("relay.start_1000n_s", "s", None, "until 1,000 nodes are live and sampled"),
    entry("relay.ssh2_200_cpu_pct", "% of a core", None, "200 nodes through as many SSH sessions, one page"),
    entry("relay.ssh2_200_rss_mb", "MB", None, "resident memory with these"),
    entry("relay.ssh2_200_start_s", "s", None, "until they are live and sampled"),
    entry("relay.growth", "exponent", most(1.05), "of its CPU with the nodes, and with the viewers"),
    entry(
        "fanout.frames_per_s",
        "frames/s",
        None,
        "frames that reach viewers when lines arrive as fast as they are published",
    ),
    entry(
        "fanout.vs_bare_ratio",
        "theirs/ours",
        Some(Goal::AtLeast(0.8)),
        "CPU a frame of a bare tokio-tungstenite loop that sends frames as long, against the relay's",
    ),
    entry(
        "slurm.requests_per_min",
        "requests",
        most(4.0),
        "to slurmctld in steady state, with 1, 30 and 3,000 own jobs, and with all users' jobs",
    ),
    entry(
        "api.metrics_ms_1000n",
        "ms",
        most(500.0),
        "GET /metrics of a relay with 1,000 nodes of 8 GPUs, as the client waits",
    ),
    entry(
        "findings.cpu_pct_64n",
        "% of a core",
        most(0.1),
        "summing up and examining 64 nodes of 8 GPUs with jobs of 8 nodes, sampled every second",
    ),
    entry("findings.cpu_pct_1000n", "% of a core", most(2.0), "the same with 1,000 nodes"),
    entry(
        "top.cpu_pct_64n",
        "% of a core",
        most(1.0),
        "relay top attached to 64 nodes, 200×50, all jobs; without the relay",
    ),
    entry(
        "nats.publisher_cpu_pct_1000n_3r",
        "% of a core",
        None,
        "a relay that runs 1,000 probes, and shares them with three view-only relays over NATS",
    ),
    entry("nats.server_cpu_pct_1000n_3r", "% of a core", None, "the NATS server between them"),
    entry("nats.server_rss_mb_1000n_3r", "MB", None, "its resident memory"),
    entry("nats.view_cpu_pct_1000n_100v", "% of a core", None, "each view-only relay, with 100 viewers"),
    entry("nats.view_rss_mb_1000n_100v", "MB", None, "its resident memory"),
    entry("nats.messages_per_s_1000n", "messages/s", None, "what the publisher sends, once for all relays"),
    entry("nats.kb_per_s_1000n", "kB/s", None, "the payload of these messages with their headers"),
    entry(
        "nats.line_in_to_frame_out_p50_ms",
        "ms",
        None,
        "from a node's line through NATS to a page's frame, the median",
    ),
    entry("nats.line_in_to_frame_out_p99_ms", "ms", most(100.0), "the same for 99 of 100 samples"),
    entry(
        "nats.lost_samples",
        "samples",
        most(0.0),
        "seconds of 1,000 nodes that a page of a view-only relay lacks",
    ),
    entry(
        "nats.growth",
        "exponent",
        most(1.05),
        "of the CPU of server and view-only relays with their number",
    ),
    entry("page.wasm_all_br_kb", "kB", most(750.0), "the page's program, compressed with brotli"),
    entry("page.js_br_kb", "kB", most(10.0), "its scripts"),
    entry("page.first_paint_ms", "ms", most(500.0), "from navigation to first contentful paint; loopback"),
    entry("page.first_row_ms", "ms", most(700.0), "from navigation to the first row of a table; loopback"),
    entry(
        "page.first_row_slow_link_ms",
        "ms",
        most(2_000.0),
        "the same over 5 Mbit/s with a round-trip time of 60 ms",
    ),
    entry("page.work_ms_per_s", "ms/s", most(40.0), "CPU time of scripts, style and layout with 1,000 GPUs"),
    entry("page.long_tasks_per_min", "tasks", most(0.0), "tasks of 50 ms and more with 1,000 GPUs"),
    entry("page.block_ms_p99", "ms", most(16.0), "longest block of the main thread in 99 of 100 seconds"),
    entry(
        "page.filter_long_tasks_throttled",
        "tasks",
        most(0.0),
        "long tasks while typing a filter, the CPU throttled to a quarter",
    ),
    entry(
        "page.open_job_throttled_ms",
        "ms",
        most(300.0),
        "from the click to the rows of a job with 64 GPUs, the CPU throttled to a quarter",
    ),
    entry("page.hidden_cpu_ms_per_min", "ms/min", None, "CPU time of a minimised page"),
    entry("page.heap_mb_start", "MB", None, "memory of the page when it is complete"),
    entry("page.heap_mb_end", "MB", None, "the same after as many samples as ten minutes have"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_figure_is_found_under_the_whole() {
        assert_eq!(find("probe.rss_mb").unwrap().unit, "MB");
        assert_eq!(find("probe.rss_mb.of_a_part").unwrap().name, "probe.rss_mb");
        assert!(find("probe.rss_mb_else").is_none());
    }

    #[test]
    fn a_goal_has_a_right_side() {
        assert!(Goal::AtMost(0.3).is_met(0.3) && !Goal::AtMost(0.3).is_met(0.31));
        assert!(Goal::AtLeast(0.8).is_met(0.9) && !Goal::AtLeast(0.8).is_met(0.79));
    }

    #[test]
    fn a_prefix_matches_an_entry_at_word_boundaries_only() {
        let entry = find("probe.cpu_pct_1hz_8gpu").unwrap();
        assert!(entry.matches("probe") && entry.matches("probe.cpu_pct"));
        assert!(!entry.matches("pro") && !entry.matches("probe.cpu_p"));
    }
}
