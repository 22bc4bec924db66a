//! Command lines that read what was stored: `relay report`, `relay history`, `relay me` and `relay audit`.

use super::query::WhichRelay;
use super::value::{self, count_up_to};
use clap::{Args, Subcommand, ValueEnum};
use nodeglass_api::JobSelector;
use nodeglass_http_client::HttpUrl;
use nodeglass_notify::webhook::WebhookFormat;
use nodeglass_protocol::NodeName;

/// The format of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// Aligned columns for a terminal.
    #[default]
    Text,
    /// Markdown, for a ticket or a note.
    Markdown,
    /// JSON, for scripts.
    Json,
}

/// The format of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Every report, as a list.
    #[default]
    Json,
    /// One line per job.
    Csv,
}

/// The format of the audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AuditFormat {
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
pub struct AuditArgs {
    /// Only views and actions of the last days
    #[arg(long, default_value_t = 30, value_parser = count_up_to(366))]
    pub days: u32,
    /// Format of the output
    #[arg(long, value_enum, default_value_t)]
    pub format: AuditFormat,
    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
}

/// `relay report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Job id, as 48461, 48440_16 or 48511+0
    #[arg(value_name = "JOBID")]
    pub job: JobSelector,
    /// Report an earlier run of a job that was requeued; 1 is the first one that was observed [default: the latest]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub run: Option<u16>,
    /// Format of the output
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
    /// Short for --format json
    #[arg(long, conflicts_with_all = ["format", "webhook"])]
    pub json: bool,
    /// Post the report to this URL instead; without a URL, to the one of the setting report-webhook, which other
    /// users cannot see in the list of processes
    #[arg(long, value_name = "URL", value_parser = value::webhook, conflicts_with = "format")]
    pub webhook: Option<Option<HttpUrl>>,
    /// Format of the post: json, or message for Slack and Mattermost
    #[arg(long, value_enum, requires = "webhook")]
    pub webhook_format: Option<WebhookFormat>,
    /// The relay.
    #[command(flatten)]
    pub which: WhichRelay,
}

/// `relay history`.
#[derive(Clone, Debug, Subcommand)]
pub enum HistoryCommand {
    /// List the jobs that were seen, newest first
    List(ListJobsArgs),
    /// Print the report of a job
    Show(ShowArgs),
    /// List what was found of nodes and their GPUs during all jobs, the worst first
    Faults(FaultsArgs),
    /// Print the reports of all jobs in a form for other programs
    Export {
        /// Format of the output
        #[arg(long, value_enum, default_value_t)]
        format: ExportFormat,
        /// The days.
        #[command(flatten)]
        days: Days,
        /// The relay.
        #[command(flatten)]
        which: WhichRelay,
    },
}

/// `relay history faults`.
#[derive(Clone, Debug, Args)]
pub struct FaultsArgs {
    /// Only of this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<NodeName>,
    /// The days.
    #[command(flatten)]
    pub days: Days,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `relay history show`.
#[derive(Clone, Debug, Args)]
pub struct ShowArgs {
    /// Job id, as 48461, 48440_16 or 48511+0
    #[arg(value_name = "JOBID")]
    pub job: JobSelector,
    /// Format of the output
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// The relay.
    #[command(flatten)]
    pub which: WhichRelay,
}

impl From<ShowArgs> for ReportArgs {
    fn from(ShowArgs { job, format, json, which }: ShowArgs) -> Self {
        Self { job, run: None, format, json, webhook: None, webhook_format: None, which }
    }
}

/// `relay history list` and `relay me`.
#[derive(Clone, Copy, Debug, Args)]
pub struct ListJobsArgs {
    /// The days of the jobs.
    #[command(flatten)]
    pub days: Days,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The relay.
    #[command(flatten)]
    pub which: WhichRelay,
}

/// A number of days before now.
#[derive(Clone, Copy, Debug, Args)]
pub struct Days {
    /// Only jobs that started in the last N days
    #[arg(long, default_value_t = 30, value_parser = count_up_to(36_500))]
    pub days: u32,
}
