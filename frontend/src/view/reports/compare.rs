//! Several jobs or parts of them side by side, with their differences from the first one.

use super::load::{Loading, load};
use super::overlay::Overlay;
use super::parts::{Add, label_of};
use crate::describe::comparison::difference_sentence;
use crate::describe::report::{
    Figure, Figures, difference, figures, is_as_much, is_observed_alike, state_text,
};
use crate::domain::compared::{Compared, has_started, heading};
use crate::domain::route::{JobTab, Route};
use crate::domain::text::ABSENT;
use crate::state::page::Page;
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::report::{MAX_JOBS, Report, ReportAnswer, ReportQuery};
use nodeglass_rules::number::percent;
use std::borrow::Cow;
use std::sync::Arc;

/// The jobs of the address.
#[component]
pub fn Compare() -> impl IntoView {
    let page = Page::from_context();
    let route = page.route;
    // While the page leaves for another route, the view still shows what it showed.
    let compared = Memo::new(move |before: Option<&Vec<Compared>>| match route.get() {
        Route::Compare(compared) => distinct(compared),
        _ => before.cloned().unwrap_or_default(),
    });
    let jobs = Memo::new(move |_| compared.with(|all| distinct(all.iter().map(|one| one.job))));
    let loaded = load_reports(jobs);
    let reports = Memo::new(move |_| match loaded.get() {
        Loading::Ready(reports) => reports,
        Loading::Pending | Loading::Failed(_) => Arc::default(),
    });
    // A job is listed once, in the order of the address, however many of its times are compared.
    let runs = Memo::new(move |_| {
        let of =
            |job: &JobId| reports.with(|reports| reports.iter().find(|report| report.job == *job).cloned());
        jobs.with(|jobs| jobs.iter().filter_map(of).collect::<Vec<_>>())
    });
    let has_parts = Memo::new(move |_| compared.with(|all| all.iter().any(|one| one.part.is_some())));
    let is_any = Memo::new(move |_| reports.with(|reports| !reports.is_empty()));
    // Nothing can be compared yet, but another job can be chosen.
    let is_empty = Memo::new(move |_| matches!(loaded.get(), Loading::Ready(reports) if reports.is_empty()));
    let title = move || match is_empty.get() {
        // Of an unknown job, there is nothing to name.
        true => "Compare jobs".to_owned(),
        false => reports.with(|reports| compared.with(|all| heading(all, |job| label_of(job, reports)))),
    };
    let difference = move || compared.with(|all| runs.with(|reports| difference_of(all, reports)));
    let notice = notice(page.clone(), loaded, jobs, is_empty);
    let prompt = move || prompt(compared.with(Vec::len), is_any.get());
    let figures = move || {
        let is_any = runs.with(|reports| !reports.is_empty());
        is_any.then(|| runs.with(|reports| table(&page, reports, has_parts.get())))
    };
    view! {
        <div class="head head--line"><h1>{title}</h1></div>
        {notice}
        {move || difference().map(|text| view! { <p class="usage__sum">{text}</p> })}
        {move || prompt().map(|text| view! { <p class="usage__sum">{text}</p> })}
        <Show when=move || is_any.get()><Overlay compared reports/></Show>
        <Show when=move || is_any.get() || is_empty.get()><Add compared reports/></Show>
        {figures}
    }
}

/// Missing reports, with a way to other jobs if no report is there.
fn notice(
    page: Page,
    loaded: Memo<Loading<Arc<Vec<Report>>>>,
    jobs: Memo<Vec<JobId>>,
    is_empty: Memo<bool>,
) -> impl Fn() -> Option<AnyView> {
    let all_jobs = page.href(&Route::AllJobs);
    move || {
        let text = match loaded.get() {
            Loading::Pending => Some("Loading the reports …".to_owned()),
            Loading::Failed(why) => Some(why),
            Loading::Ready(reports) => missing(&page, &jobs.get(), &reports),
        };
        let href = all_jobs.clone();
        let way_out = move || {
            let href = href.clone();
            is_empty.get().then(|| view! { " " <a class="link" href=href>"Go to all jobs"</a> })
        };
        text.map(|text| view! { <p class="empty">{text} {way_out}</p> }.into_any())
    }
}

/// Loads the reports of jobs.
fn load_reports(jobs: Memo<Vec<JobId>>) -> Memo<Loading<Arc<Vec<Report>>>> {
    load(
        move || ReportQuery::Jobs(jobs.get()),
        |answer| match answer {
            ReportAnswer::Jobs(reports) => Some(Arc::new(reports)),
            _ => None,
        },
    )
}

/// Describes how the second job differs from the first, if whole runs are compared.
fn difference_of(compared: &[Compared], reports: &[Report]) -> Option<String> {
    let are_whole = compared.iter().take(2).all(|one| one.part.is_none());
    difference_sentence(reports.first()?, reports.get(1)?).filter(|_| are_whole)
}

/// The next choice, until there are two jobs to compare.
fn prompt(count: usize, is_any: bool) -> Option<&'static str> {
    match count {
        0 => Some("Choose the first job. Its figures and graphs are shown beside the following jobs."),
        1 if is_any => Some("Choose a job, or another time of this one, to compare it with."),
        _ => None,
    }
}

/// Without duplicates, and at most as many as can be compared.
fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for one in all {
        if distinct.len() < MAX_JOBS && !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}

/// Returns which of the jobs have no report, and why.
fn missing(page: &Page, jobs: &[JobId], reports: &[Report]) -> Option<String> {
    let missing = jobs.iter().filter(|job| reports.iter().all(|report| report.job != **job));
    let is_guest = page.share().is_some();
    let why = |id: &JobId| match page.job(*id) {
        Some(job) if !has_started(&job) => {
            format!("Job {} has not started: there is nothing to compare yet.", job.label)
        }
        Some(job) => format!("There is no report of job {} yet.", job.label),
        None if is_guest => format!("Job {id} is not shared with you."),
        None => format!("There is no report of job {id}: nodeglass has not seen it run."),
    };
    let missing: Vec<_> = missing.map(why).collect();
    (!missing.is_empty()).then(|| missing.join(" "))
}

/// The figures of the reports; they are of whole runs, which is said where parts are compared.
fn table(page: &Page, reports: &[Report], has_parts: bool) -> AnyView {
    let columns: Vec<Vec<Figures>> = reports.iter().map(figures).collect();
    let is_unlike = |report| reports.first().is_some_and(|first| !is_observed_alike(report, first));
    let unlike: Vec<bool> = reports.iter().map(is_unlike).collect();
    let known = |report: &Report| report.totals.usage_known_pct;
    let is_known_unlike = reports
        .first()
        .is_some_and(|first| reports.iter().any(|other| !is_as_much(known(first), known(other))));
    let notice = match unlike.contains(&true) {
        true => Some(differing("Only figures of whole runs are compared, because different parts of them were observed", reports, |report| report.observed_pct)),
        false => is_known_unlike.then(|| differing("Traffic, CPUs and host memory are not compared, because they are known for different parts of the runs", reports, known)),
    };
    let notice = notice.map(|text| view! { <p class="usage__sum">{text}</p> });
    let heads = reports.iter().map(|report| {
        let href = page.href(&Route::Job(report.job, JobTab::Report));
        view! {
            <th scope="col" class="num">
                <a class="link" href=href>{report.label.to_string()}</a>
                <small>{report.name.to_string()}</small>
                <small>{state_text(&report.state, report.is_final)}</small>
            </th>
        }
    });
    let heads = heads.collect_view();
    let rows = labels(&columns).into_iter().map(|(title, labels)| {
        let rows = labels.into_iter().map(|label| row(&columns, &unlike, title, label)).collect_view();
        let width = (reports.len() + 1).to_string();
        view! {
            <tbody>
                <tr class="plain__group"><th scope="rowgroup" colspan=width>{title}</th></tr>
                {rows}
            </tbody>
        }
    });
    view! {
        <h2 class="caption"><b>{if has_parts { "Figures of the whole runs" } else { "Figures" }}</b></h2>
        {notice}
        <div class="report__table compare" role="region" aria-label="Figures of the jobs" tabindex="0">
            <table class="plain">
                <thead><tr><th scope="col">"Figure"</th> {heads}</tr></thead>
                {rows.collect_view()}
            </table>
        </div>
    }
    .into_any()
}

/// Explains why figures are not compared by the share of each run that they are of.
fn differing(why: &str, reports: &[Report], share_of: impl Fn(&Report) -> f64) -> String {
    let shares = reports.iter().map(|report| format!("{} of {}", percent(share_of(report)), report.label));
    format!("{why}: {}.", shares.collect::<Vec<_>>().join(", "))
}

/// The labels of all figures of any job, in order, by group.
fn labels(columns: &[Vec<Figures>]) -> Vec<(&'static str, Vec<Cow<'static, str>>)> {
    let mut all: Vec<(&'static str, Vec<Cow<'static, str>>)> = Vec::new();
    for Figures { title, figures } in columns.iter().flatten() {
        if !all.iter().any(|(known, _)| known == title) {
            all.push((title, Vec::new()));
        }
        let Some((_, labels)) = all.iter_mut().find(|(known, _)| known == title) else { continue };
        for figure in figures {
            if !labels.contains(&figure.label) {
                labels.push(figure.label.clone());
            }
        }
    }
    all
}

/// The values of a job's figures with a label, and the first of these figures.
fn cell<'a>(column: &'a [Figures], title: &str, label: &str) -> Option<(String, &'a Figure)> {
    let group = column.iter().find(|group| group.title == title)?;
    let found: Vec<_> = group.figures.iter().filter(|figure| figure.label == label).collect();
    let value = found.iter().map(|figure| figure.value.clone()).collect::<Vec<_>>().join(", ");
    Some((value, found.first().copied()?))
}

fn row(columns: &[Vec<Figures>], unlike: &[bool], title: &str, label: Cow<'static, str>) -> AnyView {
    let all: Vec<_> = columns.iter().map(|column| cell(column, title, &label)).collect();
    let numbers: Vec<f64> = all.iter().flatten().filter_map(|(_, figure)| figure.number).collect();
    let unit = all.iter().flatten().map(|(_, figure)| figure.unit).next();
    let mut alike = unit.and_then(|unit| unit.alike(&numbers)).into_iter().flatten();
    let first = all.first().and_then(|first| Some(first.as_ref()?.1));
    let base = first.and_then(|figure| figure.number);
    let is_known_alike = |figure: &Figure| {
        let known = figure.known_pct.zip(first.and_then(|first| first.known_pct));
        known.is_none_or(|(known, of_first)| is_as_much(known, of_first))
    };
    let cells = all.into_iter().zip(unlike).enumerate().map(|(at, (figure, is_unlike))| {
        let (value, figure) =
            figure.map_or((ABSENT.to_owned(), None), |(value, figure)| (value, Some(figure)));
        let number = figure.and_then(|figure| figure.number);
        let value = number.and_then(|_| alike.next()).unwrap_or(value);
        let is_alike = |figure: &Figure| figure.is_of_whole_run || !is_unlike && is_known_alike(figure);
        let number = number.filter(|_| figure.is_some_and(is_alike));
        let than_first = (at > 0).then(|| view! { <small>{difference(number, base)}</small> });
        view! { <td class="num">{than_first} " " {value}</td> }
    });
    let cells = cells.collect_view();
    view! { <tr><th scope="row">{label}</th> {cells}</tr> }.into_any()
}
