//! Every job at once: what each does, in one row, with the nodes it holds below its name.

use super::dot::Dot;
use super::heat_map::HeatMap;
use super::job_entry::{Cells, job_health, overview_scope, what, when};
use super::job_list::NoJobs;
use super::meter::Meter;
use super::scope::Scope;
use crate::lazy::{memo, part, rows, words};
use crate::page::Page;
use crate::place::{Place, Tab};
use crate::text;
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::JobState;
use nodeglass_protocol::live::Mode;

/// Every job.
#[component]
pub fn AllJobs() -> impl IntoView {
    let page = Page::here();
    let ids = {
        let page = page.clone();
        memo(move || page.jobs.with(|jobs| jobs.iter().map(|job| job.id).collect::<Vec<_>>()))
    };
    let fleet = page.fleet.clone();
    let local = memo(move || fleet.welcome().is_some_and(|welcome| welcome.mode == Mode::Local));
    let some = memo(move || ids.with(|ids| !ids.is_empty()));
    let scene = page.fleet.overview().clone();
    let nodes = {
        let scene = scene.clone();
        memo(move || scene.nodes().get())
    };
    let any = memo(move || nodes.with(|nodes| !nodes.is_empty()));
    let heat = part(move || {
        let scope = Scope { scene: scene.clone(), nodes, job: None };
        any.get().then(|| view! { <HeatMap scope glance=true/> })
    });
    let table = part(move || some.get().then(|| view! { <JobTable ids/> }));
    view! {
        <div class="head"><h1>{words(move || if local.get() { "Machines" } else { "All jobs" })}</h1></div>
        {heat}
        {table}
        <NoJobs/>
    }
}

#[component]
fn JobTable(ids: Memo<Vec<JobId>>) -> impl IntoView {
    let list = rows(ids, JobId::to_string, |id| view! { <JobRow id/> }.into_any());
    view! {
        <div class="table-box">
            <table class="table all" aria-label="All jobs">
                <thead>
                    <tr>
                        <th class="all__name" scope="col">"Job"</th>
                        <th class="all__cells hide-s" scope="col">"GPUs now"</th>
                        <th class="all__meter hide-m" scope="col">"Utilisation"</th>
                        <th class="all__pct right" scope="col">"%"</th>
                        <th class="all__state hide-s" scope="col">"State"</th>
                        <th class="all__when right" scope="col">"Time"</th>
                    </tr>
                </thead>
                <tbody>{list}</tbody>
            </table>
        </div>
    }
}

#[component]
fn JobRow(id: JobId) -> impl IntoView {
    let page = Page::here();
    let job = {
        let page = page.clone();
        memo(move || page.job(id))
    };
    let scope = overview_scope(&page, id);
    let health = job_health(&page, &scope, job);
    let totals = memo({
        let (scope, page) = (scope.clone(), page.clone());
        move || scope.totals(&page)
    });
    let settings = page.settings;
    let util = move || totals.get().util_pct();
    let state = words(move || {
        let reason = job.with(|job| {
            let job = job.as_ref().filter(|job| matches!(job.state, JobState::Pending))?;
            job.reason.as_ref().map(|code| text::reason(code.as_str()).to_owned())
        });
        reason.unwrap_or_else(|| health.get().word)
    });
    let time = {
        let page = page.clone();
        memo(move || job.with(|job| job.as_ref().map(|job| when(job, page.wall_s()))).unwrap_or_default())
    };
    view! {
        <tr class="is-link">
            <th class="all__name" scope="row">
                <a href=page.href(&Place::Job(id, Tab::Nodes))>
                    <Dot health/>
                    <span>
                        <b>{words(move || job.with(|job| job.as_ref().map(|job| job.name.to_string())))}</b>
                        <small>{words(move || job.with(|job| job.as_ref().map(what)))}</small>
                    </span>
                </a>
            </th>
            <td class="hide-s"><Cells scope/></td>
            <td class="hide-m">
                <Meter
                    share=Signal::derive(move || util().map(|util| util as f64 / 100.0))
                    label="mean utilisation"
                    hue=Signal::derive(move || settings.scheme().class(util()))
                />
            </td>
            <td class="right num">{words(move || text::or_absent(util().map(|util| util.to_string())))}</td>
            <td class="all__state hide-s">{state}</td>
            <td class="right"><span class="num">{words(move || time.get().0)}</span> " " <small>{words(move || time.get().1)}</small></td>
        </tr>
    }
}
