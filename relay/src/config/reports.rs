//! Command lines that read what was stored: `relay report`, `relay history`, `relay me` and `relay audit`.

use clap::{Args, Subcommand, ValueEnum};
use nodeglass_protocol::JobId;

/// The form of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportForm {
    /// Aligned columns for a terminal.
    #[default]
    Text,
    /// Markdown, for a ticket or a note.
    Markdown,
    /// JSON, for scripts.
    Json,
}

/// The form of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportForm {
    /// Every report, as a list.
    #[default]
    Json,
    /// One line per job.
    Csv,
    /// Apache Parquet, for pandas, DuckDB and the like.
    Parquet,
}

/// The form of the audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AuditForm {
    /// Aligned columns for a terminal.
    #[default]
    Text,
    /// JSON, for scripts.
    Json,
    /// One line per view or action.
    Csv,
}

/// `relay audit`.
#[derive(Clone, Copy, Debug, Args)]
pub struct AuditOrder {
    /// Only views and actions of the last days
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=366))]
    pub days: u32,
    /// Form of the output
    #[arg(long, value_enum, default_value_t)]
    pub format: AuditForm,
}

/// `relay report`.
#[derive(Clone, Copy, Debug, Args)]
pub struct ReportOrder {
    /// Number of the job
    #[arg(value_name = "JOBID")]
    pub job: JobId,
    /// Form of the output
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportForm,
}

/// `relay history`.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum HistoryOrder {
    /// List the jobs that were seen, newest first
    List(Days),
    /// Print the report of a job
    Show(ReportOrder),
    /// Print the reports of all jobs in a form for other programs
    Export {
        /// Form of the output
        #[arg(long, value_enum, default_value_t)]
        format: ExportForm,
        /// Which jobs.
        #[command(flatten)]
        days: Days,
    },
}

/// A number of days before now.
#[derive(Clone, Copy, Debug, Args)]
pub struct Days {
    /// Only jobs that started in the last days
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
}
