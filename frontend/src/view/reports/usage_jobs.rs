//! The jobs of a usage page: a table that can be sorted, and the jobs as comma-separated values.

use crate::describe::report::state_text;
use crate::domain::route::{JobTab, Route};
use crate::domain::{sorting, text};
use crate::platform;
use crate::state::page::Page;
use crate::view::widgets::meter::meter;
use leptos::prelude::*;
use nodeglass_protocol::report::JobUsage;
use nodeglass_rules::csv;
use nodeglass_rules::gpu_hours::GpuHours;
use nodeglass_rules::number::ColumnFormat;
use std::cmp::Ordering;
use std::fmt::Write as _;

/// A column of figures.
struct Column {
    title: &'static str,
    about: &'static str,
    /// The pattern of its part of the hours in bars.
    pattern: &'static str,
    /// The name in comma-separated values, with the unit.
    name: &'static str,
    value: fn(&JobUsage) -> Option<f64>,
    cell: fn(f64, Formats) -> String,
    /// Whether the column is left out if all jobs have 0.
    is_rare: bool,
}

const COLUMNS: [Column; 10] = [
    Column {
        value: |job| Some(job.start_s? as f64),
        cell: |start_s, _| platform::format_time_or_date(start_s as i64),
        ..column("Started", "start_s")
    },
    Column {
        value: |job| Some(job.elapsed_s as f64),
        cell: |elapsed_s, _| text::span(elapsed_s as u64),
        ..column("Run time", "elapsed_s")
    },
    Column {
        value: |job| Some(f64::from(job.gpus)),
        cell: |gpus, _| (gpus as u32).to_string(),
        ..column("GPUs", "gpus")
    },
    Column {
        value: |job| Some(job.gpu_hours_allocated),
        cell: |hours, formats| formats.allocated.write(hours),
        ..column("GPU hours", "gpu_hours_allocated")
    },
    Column { pattern: "used", value: |job| Some(job.gpu_hours_used), ..column("Used", "gpu_hours_used") },
    Column {
        pattern: "part",
        value: |job| Some(job.gpu_hours_unused),
        ..column("Unused", "gpu_hours_unused")
    },
    Column {
        about: UNKNOWN,
        pattern: "unknown",
        value: |job| Some(hours_of(job).unknown()),
        cell: |hours, formats| formats.allocated.write(hours),
        ..column("No data", "gpu_hours_unknown")
    },
    Column {
        about: "A part of the used hours: lost to slow GPUs, for which others waited",
        value: |job| Some(job.gpu_hours_slowed),
        is_rare: true,
        ..column("Slowed", "gpu_hours_slowed")
    },
    Column {
        about: "A part of the unused hours: lost to hangs",
        value: |job| Some(job.gpu_hours_hung),
        is_rare: true,
        ..column("Hung", "gpu_hours_hung")
    },
    Column {
        value: |job| job.util_pct,
        about: "Mean of the observed time",
        cell: |util, _| format!("{} %", util.round() as u64),
        ..column("Utilisation", "util_pct")
    },
];
/// The column that is a bar.
const UTILISATION: usize = COLUMNS.len() - 1;
/// Explains hours without data.
pub(super) const UNKNOWN: &str = "Not observed, or of unknown utilisation: it was not reported or not read";

const fn column(title: &'static str, name: &'static str) -> Column {
    Column {
        title,
        about: "",
        pattern: "",
        name,
        value: |_| None,
        cell: |hours, formats| formats.parts.write(hours),
        is_rare: false,
    }
}

/// Formats of the figures of a table's columns.
#[derive(Clone, Copy)]
pub(super) struct Formats {
    pub(super) allocated: ColumnFormat,
    /// Parts of the allocated hours, which are added and compared.
    pub(super) parts: ColumnFormat,
}

impl Formats {
    pub(super) fn of(all: &[GpuHours]) -> Self {
        let parts = all.iter().flat_map(|hours| [hours.used, hours.unused]);
        Self {
            allocated: ColumnFormat::of(all.iter().map(|hours| hours.allocated)),
            parts: ColumnFormat::of(parts),
        }
    }
}

/// The hours of a job.
fn hours_of(job: &JobUsage) -> GpuHours {
    GpuHours {
        allocated: job.gpu_hours_allocated,
        observed: job.gpu_hours_observed,
        used: job.gpu_hours_used,
        slowed: job.gpu_hours_slowed,
        unused: job.gpu_hours_unused,
        hung: job.gpu_hours_hung,
        ..GpuHours::default()
    }
}

/// A table of jobs.
#[component]
pub fn UsageJobs(
    /// Its label for screen readers.
    label: &'static str,
    /// The jobs in their order without a choice of the user.
    jobs: Memo<Vec<JobUsage>>,
    /// All jobs that are known, with later runs of these.
    known: Memo<Vec<JobUsage>>,
    /// The number of jobs that are shown.
    most: usize,
) -> impl IntoView {
    let page = Page::from_context();
    // The column, and whether the highest value is first.
    let order = RwSignal::new(None::<(usize, bool)>);
    let shown = Memo::new(move |_| jobs.with(|jobs| shown_columns(jobs)));
    let rows = move || {
        let mut sorted = jobs.get();
        if let Some((at, is_down)) = order.get() {
            sorting::sort_by(&mut sorted, |one, other| compare(at, is_down, one, other));
        }
        // The report of a job is that of its newest run.
        let is_newest = |job: &JobUsage| {
            let is_later = |other: &JobUsage| other.job == job.job && other.start_s > job.start_s;
            !known.with(|known| known.iter().any(is_later))
        };
        sorted.truncate(most);
        let formats = Formats::of(&sorted.iter().map(hours_of).collect::<Vec<_>>());
        shown.with(|shown| {
            sorted.iter().map(|job| row(&page, job, is_newest(job), shown, formats)).collect_view()
        })
    };
    let heads = move || shown.with(|shown| shown.iter().map(|at| head(*at, order)).collect_view());
    view! {
        <div class="report__table" role="region" aria-label=label tabindex="0">
            <table class="plain plain--jobs">
                <thead><tr>
                    <th scope="col">"Job"</th>
                    <th scope="col">"Name"</th>
                    <th scope="col">"State"</th>
                    {heads}
                </tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
}

/// Returns the positions of the columns that have something to show.
fn shown_columns(jobs: &[JobUsage]) -> Vec<usize> {
    let is_shown = |at: &usize| {
        let column = &COLUMNS[*at];
        !column.is_rare || jobs.iter().any(|job| (column.value)(job).is_some_and(|value| value > 0.0))
    };
    (0..COLUMNS.len()).filter(is_shown).collect()
}

/// The order of two jobs by a column; unknown values come last either way.
fn compare(at: usize, is_down: bool, one: &JobUsage, other: &JobUsage) -> Ordering {
    let value = COLUMNS[at].value;
    match (value(one), value(other)) {
        (Some(one), Some(other)) if is_down => other.total_cmp(&one),
        (Some(one), Some(other)) => one.total_cmp(&other),
        (one, other) => other.is_some().cmp(&one.is_some()),
    }
}

/// The title of a column, which sorts by it: first the highest values, then the lowest, then as before.
fn head(at: usize, order: RwSignal<Option<(usize, bool)>>) -> AnyView {
    let column = &COLUMNS[at];
    let here = move || order.get().filter(|(column, _)| *column == at).map(|(_, is_down)| is_down);
    let click = move |_| {
        order.set(match order.get_untracked() {
            Some((column, true)) if column == at => Some((at, false)),
            Some((column, false)) if column == at => None,
            _ => Some((at, true)),
        });
    };
    let pattern = (!column.pattern.is_empty()).then(|| {
        view! { <i class=format!("hours__key hours__{}", column.pattern) aria-hidden="true"></i> }
    });
    let about = (!column.about.is_empty()).then_some(column.about);
    let sorted = move || here().map(|is_down| if is_down { "descending" } else { "ascending" });
    view! {
        <th scope="col" class=if at == UTILISATION { "" } else { "num" } title=about aria-sort=sorted>
            <button class="plain__sort" on:click=click>
                {pattern} " " {column.title}
                <i class="plain__order" aria-hidden="true">{move || here().map(|is_down| if is_down { "↓" } else { "↑" })}</i>
            </button>
        </th>
    }
    .into_any()
}

fn row(page: &Page, job: &JobUsage, is_newest: bool, shown: &[usize], formats: Formats) -> AnyView {
    let label = job.label.to_string();
    let id = match is_newest {
        true => {
            let href = page.href(&Route::Job(job.job, JobTab::Report));
            view! { <a class="link num" href=href>{label}</a> }.into_any()
        }
        false => {
            let why = "The job was requeued; its report is that of the newest run.";
            view! { <span class="num" title=why>{label}</span> }.into_any()
        }
    };
    let cells = shown.iter().map(|at| {
        let (value, cell) = ((COLUMNS[*at].value)(job), COLUMNS[*at].cell);
        let text = text::or_absent(value.map(|value| cell(value, formats)));
        if *at != UTILISATION {
            return view! { <td class="num">{text}</td> }.into_any();
        }
        let bar = meter("Mean utilisation", "hue-busy", value.map(|util| util / 100.0));
        view! { <td class="gauge">{bar} <span class="num">{text}</span></td> }.into_any()
    });
    view! {
        <tr>
            <th scope="row">{id}</th>
            <td class="plain__name">{job.name.to_string()}</td>
            <td>{state_text(&job.state, job.is_final)}</td>
            {cells.collect_view()}
        </tr>
    }
    .into_any()
}

/// Jobs as comma-separated values, plain numbers in the units of their headers; empty if unknown.
pub(super) fn jobs_csv(jobs: &[JobUsage]) -> String {
    let mut out = "job,label,name,state,is_final".to_owned();
    for column in &COLUMNS {
        let _ = write!(out, ",{}", column.name);
    }
    out.push('\n');
    for job in jobs {
        let [label, name, state] = [&job.label, &job.name, &job.state].map(|text| csv::cell(text.as_str()));
        let _ = write!(out, "{},{label},{name},{state},{}", job.job, job.is_final);
        for column in &COLUMNS {
            let value = (column.value)(job).filter(|value| value.is_finite());
            let _ = write!(out, ",{}", value.map_or_else(String::new, |value| value.to_string()));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;

    fn job(id: u32, used: f64, util_pct: Option<f64>) -> JobUsage {
        JobUsage {
            job: JobId(id),
            label: format!("{id}_1").as_str().into(),
            name: "train".into(),
            state: "COMPLETED".into(),
            is_final: true,
            start_s: Some(1_700_000_000),
            elapsed_s: 3_600,
            gpus: 4,
            gpu_hours_allocated: 4.0,
            gpu_hours_observed: 3.0,
            gpu_hours_used: used,
            gpu_hours_unused: 3.0 - used,
            gpu_hours_hung: 0.0,
            gpu_hours_slowed: 0.0,
            util_pct,
            observed_pct: 75.0,
        }
    }

    #[test]
    fn jobs_without_a_value_come_last_in_either_order() {
        let order = |is_down| {
            let mut jobs = vec![job(1, 1.0, None), job(2, 1.0, Some(10.0)), job(3, 1.0, Some(90.0))];
            sorting::sort_by(&mut jobs, |one, other| compare(UTILISATION, is_down, one, other));
            jobs.iter().map(|job| job.job.0).collect::<Vec<_>>()
        };
        assert_eq!((order(true), order(false)), (vec![3, 2, 1], vec![2, 3, 1]));
    }

    #[test]
    fn what_no_job_lost_has_no_column() {
        let (none, hung) = (job(1, 1.0, None), JobUsage { gpu_hours_hung: 0.5, ..job(2, 1.0, None) });
        let titles = |jobs: &[JobUsage]| {
            shown_columns(jobs).into_iter().map(|at| COLUMNS[at].title).collect::<Vec<_>>()
        };
        assert_eq!(titles(std::slice::from_ref(&none)).len(), COLUMNS.len() - 2);
        assert!(titles(&[none, hung]).contains(&"Hung"));
    }

    #[test]
    fn values_are_plain_numbers_and_names_are_no_formulas() {
        let evil = JobUsage { name: "=cmd()".into(), ..job(7, 1.5, None) };
        assert_eq!(
            jobs_csv(&[evil]),
            "job,label,name,state,is_final,start_s,elapsed_s,gpus,gpu_hours_allocated,gpu_hours_used,\
             gpu_hours_unused,gpu_hours_unknown,gpu_hours_slowed,gpu_hours_hung,util_pct\n\
             7,7_1,\"'=cmd()\",COMPLETED,true,1700000000,3600,4,4,1.5,1.5,1,0,0,\n"
        );
    }
}
