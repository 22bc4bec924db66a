//! Jobs as an Apache Parquet file: typed columns, null where a value is unknown.

use crate::commands::job_columns::{COLUMNS, Column, Kind, Value};
use nodeglass_report::Report;
use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};
use std::sync::Arc;

/// The file.
///
/// # Errors
/// If the library fails; it writes to memory.
pub(super) fn file(reports: &[Report]) -> Result<Vec<u8>> {
    let version = concat!("nodeglass ", env!("CARGO_PKG_VERSION")).to_owned();
    let properties = Arc::new(WriterProperties::builder().set_created_by(version).build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema()?, properties)?;
    let mut rows = writer.next_row_group()?;
    for column in COLUMNS {
        let mut cells = rows.next_column()?.ok_or_else(|| missing(column.name))?;
        write(cells.untyped(), column, reports)?;
        cells.close()?;
    }
    rows.close()?;
    writer.into_inner()
}

fn missing(name: &str) -> ParquetError {
    ParquetError::General(format!("the column {name} is missing from the schema"))
}

/// One optional field for each column.
fn schema() -> Result<TypePtr> {
    let field = |column: &Column| {
        let (physical, logical) = match column.kind {
            Kind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Whole => (PhysicalType::INT64, None),
            Kind::Number => (PhysicalType::DOUBLE, None),
            Kind::Flag => (PhysicalType::BOOLEAN, None),
            // In UTC.
            Kind::Time => (PhysicalType::INT64, Some(LogicalType::timestamp(true, TimeUnit::MILLIS))),
        };
        let field = Type::primitive_type_builder(column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_converted_type(ConvertedType::NONE)
            .with_logical_type(logical);
        field.build().map(Arc::new)
    };
    let fields = COLUMNS.iter().map(field).collect::<Result<Vec<_>>>()?;
    Type::group_type_builder("jobs").with_fields(fields).build().map(Arc::new)
}

/// Writes the known values of a column, and for each job whether it has one.
fn write(writer: &mut ColumnWriter<'_>, column: Column, reports: &[Report]) -> Result<()> {
    let values: Vec<_> = reports.iter().map(column.read).collect();
    let known: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let known = Some(&known[..]);
    let values = values.into_iter().flatten();
    match writer {
        ColumnWriter::ByteArrayColumnWriter(writer) => {
            let texts: Vec<_> = values.filter_map(bytes).collect();
            writer.write_batch(&texts, known, None)
        }
        ColumnWriter::Int64ColumnWriter(writer) => {
            let numbers: Vec<_> = values.filter_map(whole).collect();
            writer.write_batch(&numbers, known, None)
        }
        ColumnWriter::DoubleColumnWriter(writer) => {
            let numbers: Vec<_> = values.filter_map(number).collect();
            writer.write_batch(&numbers, known, None)
        }
        ColumnWriter::BoolColumnWriter(writer) => {
            let flags: Vec<_> = values.filter_map(flag).collect();
            writer.write_batch(&flags, known, None)
        }
        _ => return Err(ParquetError::General(format!("the column {} has an unexpected type", column.name))),
    }?;
    Ok(())
}

fn bytes(value: Value) -> Option<ByteArray> {
    match value {
        Value::Text(text) => Some(ByteArray::from(text.into_bytes())),
        _ => None,
    }
}

fn whole(value: Value) -> Option<i64> {
    match value {
        Value::Whole(number) => Some(number),
        Value::Time(at_s) => Some(at_s.saturating_mul(1_000)),
        _ => None,
    }
}

fn number(value: Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(number),
        _ => None,
    }
}

fn flag(value: Value) -> Option<bool> {
    match value {
        Value::Flag(flag) => Some(flag),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::job::{Job, JobState};
    use nodeglass_report::JobRecord;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::Field;

    fn report(id: u32, account: Option<&str>) -> Report {
        let job = Job {
            name: "träin, \"1\"".into(),
            account: account.map(Into::into),
            start: Some(1_704_067_200),
            ended: Some(1_704_070_800),
            gpu_count: Some(2),
            mem_bytes: Some(u64::MAX),
            ..Job::new(JobId(id), "alice".into(), JobState::Ended("COMPLETED".into()))
        };
        JobRecord { is_final: true, ..JobRecord::of(job, 0) }.report()
    }

    /// The rows, read back.
    fn rows(reports: &[Report]) -> Vec<Vec<(String, Field)>> {
        let reader = SerializedFileReader::new(bytes::Bytes::from(file(reports).unwrap())).unwrap();
        let row = |row: Result<parquet::record::Row>| row.unwrap().into_columns();
        reader.get_row_iter(None).unwrap().map(row).collect()
    }

    #[test]
    fn columns_are_typed_and_unknown_values_are_null() {
        let rows = rows(&[report(17, Some("lab")), report(18, None)]);
        assert_eq!(rows.len(), 2);
        let value = |row: usize, name: &str| {
            let found = rows[row].iter().find(|(column, _)| column == name);
            found.unwrap_or_else(|| panic!("no column {name}")).1.clone()
        };
        assert_eq!((value(0, "job"), value(1, "job")), (Field::Long(17), Field::Long(18)));
        assert_eq!(value(0, "name"), Field::Str("träin, \"1\"".to_owned()));
        assert_eq!((value(0, "account"), value(1, "account")), (Field::Str("lab".to_owned()), Field::Null));
        assert_eq!(value(0, "is_final"), Field::Bool(true));
        assert_eq!(value(0, "start"), Field::TimestampMillis(1_704_067_200_000));
        assert_eq!(value(0, "gpu_hours_allocated"), Field::Double(2.0));
        assert_eq!((value(0, "util_pct"), value(0, "sacct_exit_code")), (Field::Null, Field::Null));
        assert_eq!(value(0, "mem_requested_bytes"), Field::Long(i64::MAX));
        let names: Vec<_> = rows[0].iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, COLUMNS.map(|column| column.name));
    }

    #[test]
    fn every_value_has_the_type_of_its_column() {
        let full = full_report();
        for column in COLUMNS {
            let value = (column.read)(&full).unwrap_or_else(|| panic!("{} is unknown", column.name));
            let kind = match value {
                Value::Text(_) => Kind::Text,
                Value::Whole(_) => Kind::Whole,
                Value::Number(_) => Kind::Number,
                Value::Flag(_) => Kind::Flag,
                Value::Time(_) => Kind::Time,
            };
            assert_eq!(kind, column.kind, "{}", column.name);
        }
        assert!(rows(&[full])[0].iter().all(|(_, field)| *field != Field::Null));
    }

    #[test]
    fn a_file_without_jobs_has_its_columns() {
        assert!(rows(&[]).is_empty());
        let reader = SerializedFileReader::new(bytes::Bytes::from(file(&[]).unwrap())).unwrap();
        assert_eq!(reader.metadata().file_metadata().schema().get_fields().len(), COLUMNS.len());
    }

    /// A report in which everything is known.
    fn full_report() -> Report {
        let mut report = report(17, Some("lab"));
        (report.partition, report.exit, report.limit_s) = ("gpu".into(), Some("0:0".into()), Some(7_200));
        report.application = Some("PyTorch".into());
        report.accounting = Some(nodeglass_report::Accounting {
            state: "FAILED".into(),
            exit_code: 3,
            signal: Some(9),
            step_exit_code: Some(0),
            max_rss_bytes: Some(1),
            ended_s: 1,
            elapsed_s: Some(1),
            reason: Some("Xid 79".into()),
        });
        let totals = &mut report.totals;
        totals.cost = Some(nodeglass_report::Cost { amount: 1.2, currency: "EUR".into() });
        (totals.util_pct, totals.energy_kwh, totals.co2_kg) = (Some(50.0), Some(0.5), Some(0.1));
        (totals.gpu_mem_peak_bytes, totals.mem_peak_bytes) = (Some(1), Some(2));
        (totals.cpus_used, totals.cpus_allocated) = (Some(1.5), Some(8));
        report
    }
}
