//! A job's head: its name, what SLURM gave it, and how long it may still run.

use super::dot::Dot;
use crate::browser;
use crate::health::{self, Health, Shape};
use crate::lazy::{lazy, memo, part, words};
use crate::page::Page;
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
        memo(move || page.job(id))
    };
    let model = {
        let overview = page.fleet.overview().clone();
        memo(move || {
            overview.nodes().track();
            job.with(|job| overview.read(|picture| roster::model_of(job.as_ref()?, picture)))
        })
    };
    part(move || match job.get() {
        None => view! { <div class="head"><h1>{format!("Job {id}")}</h1></div> }.into_any(),
        Some(job) => {
            let time = job.is_active().then(|| view! { <TimeLeft job=job.clone()/> });
            view! {
                <div class="head">
                    <div class="head__what">
                        <h1>{job.name.to_string()}</h1>
                        <Meta job=job.clone() model/>
                    </div>
                    {time}
                </div>
            }
            .into_any()
        }
    })
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
        let model = words(move || model.get().map(|model| format!(" × {model}")));
        view! { <span>"GPUs " <b class="num">{gpus}</b><b>{model}</b></span> }
    });
    let started = job.start.filter(|_| !matches!(job.state, JobState::Pending));
    let reason =
        job.reason.as_ref().filter(|_| !job.is_active()).map(|code| text::reason(code.as_str()).to_owned());
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
        </div>
    }
}

/// How long a job runs and may run, in seconds.
fn run_time(job: &Job, now_s: i64) -> Option<u64> {
    let since = job.start?;
    Some(job.ended.unwrap_or(now_s).saturating_sub(since).max(0).cast_unsigned())
}

/// What is left of a job's time in seconds, if it is limited.
pub fn time_left(job: &Job, now_s: i64) -> Option<u64> {
    match job.limit {
        TimeLimit::Seconds(limit) => Some(limit.saturating_sub(run_time(job, now_s)?)),
        TimeLimit::Unknown | TimeLimit::Unlimited => None,
    }
}

#[component]
fn TimeLeft(job: Job) -> impl IntoView {
    let page = Page::here();
    let TimeLimit::Seconds(limit) = job.limit else {
        let ran = words(move || run_time(&job, page.wall_s()).map(text::clock));
        return view! { <div class="time"><span>"Running for "</span><b class="num">{ran}</b></div> }
            .into_any();
    };
    let left = memo(move || time_left(&job, page.wall_s()));
    let share = move || left.get().map_or(0.0, |left| 1.0 - left as f64 / limit.max(1) as f64);
    view! {
        <div class="time" class:time--short=lazy(move || left.get().is_some_and(|left| left < 600))>
            <span>"Time left "</span>
            <b class="num">{words(move || text::or_absent(left.get().map(text::clock)))}</b>
            <span>" of " {text::span(limit)}</span>
            <div class="time__bar"><i style:--share=lazy(move || text::share(share()))></i></div>
        </div>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(limit: TimeLimit) -> Job {
        let json = r#"{"id":1,"label":"1","part_of":null,"name":"n","user":"u","account":null,"partition":"p",
            "qos":null,"state":"running","reason":null,"submitted":null,"start":1000,"ended":null,
            "limit":"unknown","nodes":[],"node_count":1,"cpus":null,"gpu_count":null,"gpus":[]}"#;
        Job { limit, ..serde_json::from_str(json).unwrap() }
    }

    #[test]
    fn time_left_counts_down_and_stops_at_zero() {
        let job = job(TimeLimit::Seconds(600));
        assert_eq!(time_left(&job, 1_100), Some(500));
        assert_eq!(time_left(&job, 9_000), Some(0));
        assert_eq!(time_left(&job, 900), Some(600));
    }

    #[test]
    fn a_job_without_a_limit_has_no_time_left() {
        assert_eq!(time_left(&job(TimeLimit::Unlimited), 1_100), None);
    }
}
