//! Command lines that read what jobs used: `relay report`, `relay history` and `relay me`.

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
