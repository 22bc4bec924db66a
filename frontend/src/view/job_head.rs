//! A job's head: its name, what SLURM gave it, and how long it may still run.

use super::dot::Dot;
use super::share_sheet::Sharing;
use crate::browser;
use crate::health::{self, Health, Shape};
use crate::page::Page;
use crate::tell::job::{SHORT_S, exit_words, run_time, time_left, waits_because};
use crate::{roster, text};
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::{Job, JobState, TimeLimit};

/// The head of a job.
#[component]
pub fn JobHead(
    /// The job.
    id: JobId,
) -> impl IntoView {
    let page = Page::here();
    let job = {
        let page = page.clone();
        Memo::new(move |_| page.job(id))
    };
    let model = {
        let overview = page.fleet.overview().clone();
        Memo::new(move |_| {
            overview.nodes().track();
            job.with(|job| overview.read(|picture| roster::model_of(job.as_ref()?, picture)))
        })
    };
    move || match job.get() {
        None => view! { <div class="head"><h1>{format!("Job {id}")}</h1></div> }.into_any(),
        Some(job) => {
            let time = job.is_active().then(|| view! { <TimeLeft job=job.clone()/> }.into_any());
            view! {
                <div class="head">
                    <div class="head__what">
                        <div class="head__title"><h1>{job.name.to_string()}</h1> <ShareIt/></div>
                        <Meta job=job.clone() model/>
                        {why(&job)}
                    </div>
                    {time}
                </div>
            }
            .into_any()
        }
    }
}

/// The owner's way to share it.
#[component]
fn ShareIt() -> impl IntoView {
    let page = Page::here();
    move || {
        let open = page.sharing;
        page.is_owner().then(|| {
            view! { <button class="btn btn--small" on:click=move |_| open.set(Some(Sharing::Make))>"Share this job"</button> }.into_any()
        })
    }
}

/// Why a job waits, and until when as far as SLURM expects.
fn why(job: &Job) -> AnyView {
    let Some(words) = waits_because(job) else { return ().into_any() };
    let start = job.start.map(|at| format!(" Expected to start: {}.", browser::time_of_day(at)));
    view! { <p class="head__why">"It waits: " {words} {start}</p> }.into_any()
}

#[component]
fn Meta(job: Job, model: Memo<Option<String>>) -> impl IntoView {
    let shape = match job.state {
        JobState::Pending => Shape::Waiting,
        JobState::Ended(_) => Shape::Ended,
        _ => Shape::Well,
    };
    let word = health::state_word(&job.state);
    let health = Health { shape, word: word.clone() };
    let gpus = job.gpu_count.map(|gpus| {
        let model = move || model.get().map(|model| format!(" × {model}"));
        view! { <span>"GPUs " <b class="num">{gpus}</b><b>{model}</b></span> }
    });
    let started = job.start.filter(|_| !matches!(job.state, JobState::Pending));
    let ended = matches!(job.state, JobState::Ended(_));
    let reason = job.reason.as_ref().filter(|_| ended).map(|code| text::reason(code.as_str()).to_owned());
    let exit = job.exit.as_ref().filter(|exit| ended && exit.as_str() != "0:0").map(|exit| {
        let words = exit_words(exit.as_str());
        view! { <span>"Exit code " <b class="num">{exit.to_string()}</b> " " {words}</span> }
    });
    view! {
        <div class="meta">
            <span class="meta__state"><Dot health=Signal::stored(health)/> <b>{word}</b></span>
            <span>"Job " <b class="num">{job.label.to_string()}</b></span>
            <span>"User " <b>{job.user.to_string()}</b></span>
            <span>"Partition " <b>{job.partition.to_string()}</b></span>
            <span>"Nodes " <b class="num">{job.node_count}</b></span>
            {gpus}
            {started.map(|at| view! { <span>"Started " <b class="num">{browser::time_of_day(at)}</b></span> })}
            {job.ended.map(|at| view! { <span>"Ended " <b class="num">{browser::time_of_day(at)}</b></span> })}
            {reason.map(|reason| view! { <span>{reason}</span> })}
            {exit}
        </div>
    }
}

#[component]
fn TimeLeft(job: Job) -> impl IntoView {
    let page = Page::here();
    let TimeLimit::Seconds(limit) = job.limit else {
        let ran = move || run_time(&job, page.wall_s()).map(text::clock);
        return view! { <div class="time"><span>"Running for "</span><b class="num">{move || ran()}</b></div> }
            .into_any();
    };
    let left = Memo::new(move |_| time_left(&job, page.wall_s()));
    let share = move || left.get().map_or(0.0, |left| 1.0 - left as f64 / limit.max(1) as f64);
    view! {
        <div class="time" class:time--short=move || left.get().is_some_and(|left| left < SHORT_S)>
            <span>"Time left "</span>
            <b class="num">{move || text::or_absent(left.get().map(text::clock))}</b>
            <span>" of " {text::span(limit)}</span>
            <div class="time__bar"><i style:--share=move || text::share(share())></i></div>
        </div>
    }
    .into_any()
}
