//! The tables of fields in PROTOCOL.md are generated from the catalogue, and its list of types from the sources.

use super::{protocol_types, read, root};
use nodeglass_protocol::field::{Aggregate, FullScale, Metric, Retention, Scale, Unit, ValueKind};
use nodeglass_protocol::{Field, GpuField, HostField, JobField, ProcessField};
use std::fmt::Write as _;

/// Set to write the generated parts into the document instead of comparing them.
const UPDATE: &str = "NODEGLASS_FREEZE";

#[test]
fn the_protocol_document_lists_the_fields_and_types_of_the_sources() {
    let path = root().join("protocol/PROTOCOL.md");
    let mut document = read(&path);
    for (name, part) in [
        ("fields: gpu", table::<GpuField>()),
        ("fields: host", table::<HostField>()),
        ("fields: process", table::<ProcessField>()),
        ("fields: job", table::<JobField>()),
        ("types", protocol_types::list()),
    ] {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end: {name} -->\n"));
        let from = document.find(&begin).expect("the part has a first marker") + begin.len();
        let to = from + document[from..].find(&end).expect("the part has a last marker");
        if std::env::var_os(UPDATE).is_some() {
            document.replace_range(from..to, &part);
            continue;
        }
        let changed = part.lines().find(|line| !document[from..to].lines().any(|listed| listed == *line));
        assert!(
            document[from..to] == part,
            "the wire has changed ({name}: {}): review protocol/PROTOCOL.md, and run `cargo xtask generate`",
            changed.unwrap_or("something was moved or removed")
        );
    }
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(path, document).expect("the document can be written");
    }
}

#[test]
fn names_state_their_unit_and_no_two_are_equal() {
    fn check<F: Field>() {
        let mut names = Vec::new();
        for metric in F::ALL.iter().map(|field| field.metric()) {
            let Metric { name, unit, title, label, short, help, .. } = metric;
            assert!(name.ends_with(unit.suffix()), "{name} is in {unit:?}");
            assert!(*unit != Unit::One || !name.ends_with("_pct"), "{name}");
            assert!([title, label, short, help].iter().all(|text| !text.is_empty()), "{name}");
            assert!(!help.ends_with('.') && metric.prometheus_help().ends_with('.'), "{name}: a phrase");
            let exported = metric.prometheus_name(F::ROW_KIND);
            assert!(exported.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
            names.extend([(*name).to_owned(), exported]);
        }
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count, "{names:?}");
    }
    check::<GpuField>();
    check::<HostField>();
    check::<ProcessField>();
    check::<JobField>();
}

/// A line for each field.
fn table<F: Field>() -> String {
    let mut out = String::from(
        "| | field | reading | step | kind | over rows | of | in | Prometheus | meaning |\n|--:|---|---|---|---|---|---|---|---|---|\n",
    );
    for field in F::ALL {
        let metric = field.metric();
        let _ = writeln!(
            out,
            "| {} | `{}` | {} | {} | {} | {} | {} | {} | `{}` | {} |",
            field.index(),
            metric.name,
            reading(metric),
            step(metric),
            kind(metric.kind),
            aggregate(metric.aggregate),
            full_scale(metric),
            places(metric),
            metric.prometheus_name(F::ROW_KIND),
            metric.help
        );
    }
    out
}

fn reading<F>(metric: &Metric<F>) -> String {
    match metric.divisor {
        _ if metric.is_derived => "by the relay".to_owned(),
        1 => format!("`{}`", metric.reading),
        per => format!("`{}` / {per}", metric.reading),
    }
}

fn step<F>(metric: &Metric<F>) -> String {
    let unit = |step: u64| match (metric.unit, step) {
        (Unit::Byte | Unit::BytePerSecond, step) => {
            format!("{} MiB{}", step >> 20, metric.unit.symbol().trim_start_matches('B'))
        }
        (Unit::Hundredth, 1) => "1/100".to_owned(),
        (unit, step) => format!("{step} {}", unit.symbol()).trim_end().to_owned(),
    };
    match metric.scale {
        Scale::Linear(step) => unit(step),
        Scale::Logarithmic(step) => format!("rate from {}", unit(step)),
    }
}

fn kind(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Gauge => "gauge",
        ValueKind::Counter => "counter",
        ValueKind::BitMask => "bit mask",
        ValueKind::State => "state",
    }
}

fn aggregate(aggregate: Aggregate) -> &'static str {
    match aggregate {
        Aggregate::None => "–",
        Aggregate::Sum => "sum",
        Aggregate::Mean => "mean",
        Aggregate::Max => "maximum",
    }
}

fn full_scale<F: Field>(metric: &Metric<F>) -> String {
    match metric.full_scale {
        FullScale::None => "–".to_owned(),
        FullScale::Constant(value) => format!("{value} {}", metric.unit.symbol()),
        FullScale::Field(whole) => format!("`{}`", whole.name()),
        FullScale::Limit(_) => "a fact".to_owned(),
    }
}

fn places<F>(metric: &Metric<F>) -> &'static str {
    match (metric.retention, metric.in_summary) {
        (Retention::None, false) => "–",
        (Retention::None, true) => "summary",
        (Retention::Full, false) => "history",
        (Retention::Full, true) => "summary, history",
        (Retention::Summary, _) => "summary with history",
    }
}
