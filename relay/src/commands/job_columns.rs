//! The columns of exported jobs, which a CSV file has: name with unit, and value.

use nodeglass_protocol::Text;
use nodeglass_report::Report;

/// A column.
#[derive(Clone, Copy)]
pub(super) struct Column {
    /// Name, with the unit of numbers.
    pub(super) name: &'static str,
    /// Reads the value of a job; `None` if it is unknown.
    pub(super) read: fn(&Report) -> Option<Value>,
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// Text.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
    /// Yes or no.
    Flag(bool),
    /// A time, in s since 1970.
    Time(i64),
}

/// All columns, in their order.
pub(super) const COLUMNS: [Column; 41] = [
    column("job", |report| whole(report.job.0)),
    column("label", |report| text(&report.label)),
    column("name", |report| text(&report.name)),
    column("user", |report| text(&report.user)),
    column("account", |report| text(report.account.as_ref()?)),
    column("partition", |report| text(&report.partition)),
    column("state", |report| text(&report.state)),
    column("exit", |report| text(report.exit.as_ref()?)),
    column("application", |report| text(report.application.as_ref()?)),
    column("is_final", |report| Some(Value::Flag(report.is_final))),
    column("start", |report| report.start_s.map(Value::Time)),
    column("ended", |report| report.ended_s.map(Value::Time)),
    column("elapsed_s", |report| whole(report.elapsed_s)),
    column("limit_s", |report| whole(report.limit_s?)),
    column("nodes", |report| whole(report.node_count)),
    column("gpus", |report| whole(report.totals.gpus)),
    column("observed_pct", |report| number(report.observed_pct)),
    column("gpu_hours_allocated", |report| number(report.totals.gpu_hours_allocated)),
    column("gpu_hours_observed", |report| number(report.totals.gpu_hours_observed)),
    column("gpu_hours_used", |report| number(report.totals.gpu_hours_used)),
    column("gpu_hours_slowed", |report| number(report.totals.gpu_hours_slowed)),
    column("gpu_hours_unused", |report| number(report.totals.gpu_hours_unused)),
    column("gpu_hours_hung", |report| number(report.totals.gpu_hours_hung)),
    column("gpu_hours_idle", |report| number(report.totals.gpu_hours_idle)),
    column("util_pct", |report| number(report.totals.util_pct?)),
    column("energy_kwh", |report| number(report.totals.energy_kwh?)),
    column("co2_kg", |report| number(report.totals.co2_kg?)),
    column("cost", |report| number(report.totals.cost.as_ref()?.amount)),
    column("currency", |report| text(&report.totals.cost.as_ref()?.currency)),
    column("gpu_mem_peak_bytes", |report| whole(report.totals.gpu_mem_peak_bytes?)),
    column("mem_peak_bytes", |report| whole(report.totals.mem_peak_bytes?)),
    column("mem_requested_bytes", |report| whole(report.totals.mem_requested_bytes?)),
    column("cpus_used", |report| number(report.totals.cpus_used?)),
    column("cpus_allocated", |report| whole(report.totals.cpus_allocated?)),
    column("xids", |report| whole(report.totals.xids)),
    column("sacct_state", |report| text(&report.accounting.as_ref()?.state)),
    column("sacct_exit_code", |report| whole(report.accounting.as_ref()?.exit_code)),
    column("sacct_step_exit_code", |report| whole(report.accounting.as_ref()?.step_exit_code?)),
    column("sacct_signal", |report| whole(report.accounting.as_ref()?.signal?)),
    column("sacct_max_rss_bytes", |report| whole(report.accounting.as_ref()?.max_rss_bytes?)),
    column("sacct_reason", |report| text(report.accounting.as_ref()?.reason.as_ref()?)),
];

const fn column(name: &'static str, read: fn(&Report) -> Option<Value>) -> Column {
    Column { name, read }
}

/// Text that is not empty: the fields of SLURM are empty where they are unknown.
fn text(text: &Text) -> Option<Value> {
    (!text.is_empty()).then(|| Value::Text(text.to_string()))
}

fn whole(number: impl Into<u64>) -> Option<Value> {
    Some(Value::Whole(i64::try_from(number.into()).unwrap_or(i64::MAX)))
}

fn number(number: f64) -> Option<Value> {
    number.is_finite().then_some(Value::Number(number))
}
