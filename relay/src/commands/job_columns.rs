//! The columns of exported jobs, which CSV and Parquet share: name with unit, type, and value.

use nodeglass_protocol::Text;
use nodeglass_report::Report;

/// A column.
#[derive(Clone, Copy)]
pub(super) struct Column {
    /// Name, with the unit of numbers.
    pub(super) name: &'static str,
    /// Type.
    pub(super) kind: Kind,
    /// Reads the value of a job; `None` if it is unknown.
    pub(super) read: fn(&Report) -> Option<Value>,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text.
    Text,
    /// A whole number.
    Whole,
    /// A number.
    Number,
    /// Yes or no.
    Flag,
    /// A time.
    Time,
}

/// A value of a column of that type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// See [`Kind::Text`].
    Text(String),
    /// See [`Kind::Whole`].
    Whole(i64),
    /// See [`Kind::Number`].
    Number(f64),
    /// See [`Kind::Flag`].
    Flag(bool),
    /// See [`Kind::Time`], in s since 1970.
    Time(i64),
}

/// All columns, in their order.
pub(super) const COLUMNS: [Column; 39] = [
    column("job", Kind::Whole, |report| whole(report.job.0)),
    column("label", Kind::Text, |report| text(&report.label)),
    column("name", Kind::Text, |report| text(&report.name)),
    column("user", Kind::Text, |report| text(&report.user)),
    column("account", Kind::Text, |report| text(report.account.as_ref()?)),
    column("partition", Kind::Text, |report| text(&report.partition)),
    column("state", Kind::Text, |report| text(&report.state)),
    column("exit", Kind::Text, |report| text(report.exit.as_ref()?)),
    column("application", Kind::Text, |report| text(report.application.as_ref()?)),
    column("is_final", Kind::Flag, |report| Some(Value::Flag(report.is_final))),
    column("start", Kind::Time, |report| report.start_s.map(Value::Time)),
    column("ended", Kind::Time, |report| report.ended_s.map(Value::Time)),
    column("elapsed_s", Kind::Whole, |report| whole(report.elapsed_s)),
    column("limit_s", Kind::Whole, |report| whole(report.limit_s?)),
    column("nodes", Kind::Whole, |report| whole(report.node_count)),
    column("gpus", Kind::Whole, |report| whole(report.totals.gpus)),
    column("observed_pct", Kind::Number, |report| number(report.observed_pct)),
    column("gpu_hours_allocated", Kind::Number, |report| number(report.totals.gpu_hours_allocated)),
    column("gpu_hours_observed", Kind::Number, |report| number(report.totals.gpu_hours_observed)),
    column("gpu_hours_used", Kind::Number, |report| number(report.totals.gpu_hours_used)),
    column("gpu_hours_hung", Kind::Number, |report| number(report.totals.gpu_hours_hung)),
    column("gpu_hours_idle", Kind::Number, |report| number(report.totals.gpu_hours_idle)),
    column("util_pct", Kind::Number, |report| number(report.totals.util_pct?)),
    column("energy_kwh", Kind::Number, |report| number(report.totals.energy_kwh?)),
    column("co2_kg", Kind::Number, |report| number(report.totals.co2_kg?)),
    column("cost", Kind::Number, |report| number(report.totals.cost.as_ref()?.amount)),
    column("currency", Kind::Text, |report| text(&report.totals.cost.as_ref()?.currency)),
    column("gpu_mem_peak_bytes", Kind::Whole, |report| whole(report.totals.gpu_mem_peak_bytes?)),
    column("mem_peak_bytes", Kind::Whole, |report| whole(report.totals.mem_peak_bytes?)),
    column("mem_requested_bytes", Kind::Whole, |report| whole(report.totals.mem_requested_bytes?)),
    column("cpus_used", Kind::Number, |report| number(report.totals.cpus_used?)),
    column("cpus_allocated", Kind::Whole, |report| whole(report.totals.cpus_allocated?)),
    column("xids", Kind::Whole, |report| whole(report.totals.xids)),
    column("sacct_state", Kind::Text, |report| text(&report.accounting.as_ref()?.state)),
    column("sacct_exit_code", Kind::Whole, |report| whole(report.accounting.as_ref()?.exit_code)),
    column("sacct_step_exit_code", Kind::Whole, |report| whole(report.accounting.as_ref()?.step_exit_code?)),
    column("sacct_signal", Kind::Whole, |report| whole(report.accounting.as_ref()?.signal?)),
    column("sacct_max_rss_bytes", Kind::Whole, |report| whole(report.accounting.as_ref()?.max_rss_bytes?)),
    column("sacct_reason", Kind::Text, |report| text(report.accounting.as_ref()?.reason.as_ref()?)),
];

const fn column(name: &'static str, kind: Kind, read: fn(&Report) -> Option<Value>) -> Column {
    Column { name, kind, read }
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
