//! The head of a job's page: name, allocation, and time left.

use super::job_entry::{health_by, overview_scope};
use super::job_progress::Progress;
use crate::describe::job::{
    SHORT_S, bottleneck as describe_bottleneck, exit_text, pending_reason, run_time, time_left,
};
use crate::domain::attention::Entry;
use crate::domain::compared::{self, Compared};
use crate::domain::health::{self, Health};
use crate::domain::job_groups;
use crate::domain::job_names;
use crate::domain::outcome;
use crate::domain::ownership;
use crate::domain::route::{JobTab, Route};
use crate::domain::text;
use crate::platform;
use crate::state::page::Page;
use crate::view::severity_class::SeverityClass;
use crate::view::widgets::code_text::code_text;
use crate::view::widgets::dot::Dot;
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::insight::Bottleneck;
use nodeglass_protocol::job::{Job, JobState, TimeLimit};
use std::sync::Arc;

/// The head of a job.
#[component]
pub fn JobHead(
    /// The job.
    id: JobId,
    /// Its attention list.
    entries: Memo<Arc<Vec<Entry>>>,
) -> impl IntoView {
    let page = Page::from_context();
    let job = {
        let page = page.clone();
        Memo::new(move |_| page.job(id))
    };
    let model = {
        let overview = page.fleet.overview().clone();
        Memo::new(move |_| {
            overview.nodes().track();
            job.with(|job| overview.read(|picture| ownership::gpu_models(job.as_ref()?, picture)))
        })
    };
    let health = health_by(&page, &overview_scope(&page, id), job, entries);
    let is_listed = Memo::new(move |_| entries.with(|entries| !entries.is_empty()));
    move || match job.get() {
        None => view! { <div class="head"><h1>{format!("Job {id}")}</h1></div> }.into_any(),
        Some(job) => {
            let time = job.is_active().then(|| {
                view! { <div class="head__side"><TimeLeft job=job.clone()/> <Progress id/></div> }.into_any()
            });
            view! {
                <div class="head">
                    <div class="head__what">
                        <div class="head__title"><h1>{job_names::first(&job)}</h1> {compare_link(&page, &job)}</div>
                        <Meta job=job.clone() model health is_listed/>
                        {pending_notice(&job)}
                        {failure_notice(&page, &job)}
                    </div>
                    {time}
                </div>
            }
            .into_any()
        }
    }
}

/// The way to a comparison of the job, once it has started.
fn compare_link(page: &Page, job: &Job) -> Option<AnyView> {
    let first = vec![Compared::whole(job.id)];
    let title = "Compare this job with others, or parts of its run with each other";
    compared::has_started(job).then(|| {
        view! { <a class="btn btn--small" href=page.href(&Route::Compare(first)) title=title>"Compare"</a> }.into_any()
    })
}

/// Explains why a job is pending, with its expected start.
fn pending_notice(job: &Job) -> AnyView {
    let Some(reason_text) = pending_reason(job) else { return ().into_any() };
    let start = job.start.map(|at| format!(" Expected to start: {}.", platform::format_time_or_date(at)));
    view! { <p class="head__why">"Waiting: " {code_text(&reason_text)} {start}</p> }.into_any()
}

/// Explains why a job failed, with a link to its last log lines.
fn failure_notice(page: &Page, job: &Job) -> AnyView {
    let Some(failure) = outcome::failure(job) else { return ().into_any() };
    let logs = page.shows_logs().then(|| {
        let href = page.href(&Route::Job(job.id, JobTab::Logs));
        view! { <a class="link" href=href>"Show its last log lines"</a> }
    });
    view! { <p class="head__why">{code_text(&failure.why)} " " {logs}</p> }.into_any()
}

/// A job's state and allocation in one line.
#[component]
fn Meta(
    job: Job,
    model: Memo<Option<String>>,
    health: Memo<Health>,
    /// Whether the list below states what is wrong.
    is_listed: Memo<bool>,
) -> impl IntoView {
    let has_ended = matches!(job.state, JobState::Ended(_));
    let label = state_view(&job, health, is_listed);
    let gpus = match job.gpu_count {
        Some(gpus) => {
            let model = move || model.get();
            Some(
                view! { <span>"GPUs " <b class="num">{text::grouped(gpus.into())}</b><b>{model}</b></span> }
                    .into_any(),
            )
        }
        None => job.is_active().then(|| view! { <span>"GPUs " <b>"unknown"</b></span> }.into_any()),
    };
    let started = job.start.filter(|_| !matches!(job.state, JobState::Pending));
    let reason = job
        .reason
        .as_ref()
        .filter(|_| has_ended && outcome::failure(&job).is_none())
        .map(ToString::to_string);
    let exit = job.exit.as_ref().filter(|exit| has_ended && exit.as_str() != "0:0").map(|exit| {
        let reason_text = exit_text(exit.as_str());
        view! { <span>"Exit code " <b class="num">{exit.to_string()}</b> " " {reason_text}</span> }
    });
    let page = Page::from_context();
    let array = job_groups::array_of(&job).map(|array| {
        let href = page.href(&Route::Array(array));
        view! { <span>"Array " <a class="link num" href=href>{array.to_string()}</a></span> }
    });
    let (of_job, several_users) = (job.account.clone(), page.several_users);
    let account = move || {
        let shown = of_job.clone().filter(|_| several_users.get());
        shown.map(|account| view! { <span>"Account " <b>{account.to_string()}</b></span> })
    };
    view! {
        <div class="meta">
            <span class="meta__state"><Dot health/> {label}</span>
            <span>"Job " <b class="num">{job.label.to_string()}</b></span>
            {array}
            <span>"User " <b>{job.user.to_string()}</b></span>
            {account}
            <span>"Partition " <b>{job.partition.to_string()}</b></span>
            <span>"Nodes " <b class="num">{text::grouped(job.node_count.into())}</b></span>
            {gpus}
            {started.map(|at| view! { <span>"Started " <b class="num">{platform::format_time_or_date(at)}</b></span> })}
            {job.ended.map(|at| view! { <span>"Ended " <b class="num">{platform::format_time_or_date(at)}</b></span> })}
            {reason.map(|reason| view! { <span>{reason}</span> })}
            {exit}
            <LimitedBy id=job.id/>
        </div>
    }
}

/// The state of a job, and what is wrong with one that still runs, unless the list below begins with it.
fn state_view(job: &Job, health: Memo<Health>, is_listed: Memo<bool>) -> impl Fn() -> AnyView + use<> {
    let (state, has_ended) = (health::state_label(job), matches!(job.state, JobState::Ended(_)));
    move || {
        health.with(|health| {
            let class = health.severity.text_class();
            if has_ended || health.label.contains(&state) {
                return view! { <b class=class>{health.label.clone()}</b> }.into_any();
            }
            let wrong =
                (!is_listed.get()).then(|| view! { " · " <span class=class>{health.label.clone()}</span> });
            view! { <b>{state.clone()} {wrong}</b> }.into_any()
        })
    }
}

/// The limit of the speed of a job's GPUs, if clear.
#[component]
fn LimitedBy(id: JobId) -> impl IntoView {
    let overview = Page::from_context().fleet.overview().clone();
    let bottleneck = Memo::new(move |_| {
        overview.insights().track();
        overview.read(|picture| picture.insight(id)?.bottleneck.clone())
    });
    move || {
        bottleneck.get().map(|Bottleneck { kind, evidence }| {
            view! { <span title=evidence.to_string()>"Limited by " <b>{describe_bottleneck(kind)}</b></span> }
        })
    }
}

#[component]
fn TimeLeft(job: Job) -> impl IntoView {
    let page = Page::from_context();
    let TimeLimit::Seconds(limit) = job.limit else {
        let ran = move || run_time(&job, page.wall_s()).map(text::span);
        return view! { <div class="time"><span>"Running for "</span><b class="num">{move || ran()}</b></div> }
            .into_any();
    };
    let left = Memo::new(move |_| time_left(&job, page.wall_s()));
    let share = move || left.get().map_or(0.0, |left| 1.0 - left as f64 / limit.max(1) as f64);
    view! {
        <div class="time" class:time--short=move || left.get().is_some_and(|left| left < SHORT_S)>
            <span>"Time left "</span>
            <b class="num">{move || text::or_absent(left.get().map(text::span))}</b>
            <span>" of " {text::span(limit)}</span>
            <div class="time__bar"><i style:--share=move || text::share(share())></i></div>
        </div>
    }
    .into_any()
}
