//! What all of the owner's jobs of the last weeks used and wasted.

use super::load::{Loading, load};
use crate::describe::report::{energy, precise, state_text};
use crate::domain::compared::has_started;
use crate::domain::route::{JobTab, Route};
use crate::domain::text;
use crate::platform;
use crate::state::page::Page;
use crate::view::widgets::meter::meter;
use leptos::prelude::*;
use nodeglass_protocol::report::{JobUsage, ReportAnswer, ReportQuery, Usage, UsageSums};

/// The offered numbers of days.
const DAYS: [u32; 4] = [7, 30, 90, 365];
/// The number without a choice.
const DEFAULT_DAYS: u32 = 30;
/// The query parameter of the number of days.
const DAYS_PARAMETER: &str = "days";
/// Number of jobs listed one by one.
const LISTED: usize = 100;

/// Usage by week, project and job.
#[component]
pub fn UsagePage() -> impl IntoView {
    let page = Page::from_context();
    let chosen = page.address.query(DAYS_PARAMETER);
    let days = Memo::new(move |_| {
        let days = chosen.with(|days| days.as_ref().and_then(|days| days.parse().ok()));
        days.filter(|days| DAYS.contains(days)).unwrap_or(DEFAULT_DAYS)
    });
    let loaded = load(
        move || ReportQuery::Usage { days: days.get() },
        |answer| match answer {
            ReportAnswer::Usage(usage) => Some(*usage),
            _ => None,
        },
    );
    let address = page.address.clone();
    let choice = move |offered: u32| {
        let address = address.clone();
        let choose = move |_| {
            let value = (offered != DEFAULT_DAYS).then(|| offered.to_string());
            address.push_query(DAYS_PARAMETER, value);
        };
        view! {
            <button class="btn btn--small" aria-pressed=move || (days.get() == offered).to_string() on:click=choose>
                {if offered == 365 { "1 year".to_owned() } else { format!("{offered} days") }}
            </button>
        }
        .into_any()
    };
    let has_run = {
        let page = page.clone();
        Memo::new(move |_| {
            let owner = page.owner();
            page.jobs.with(|jobs| jobs.iter().any(|job| job.user.as_str() == owner && has_started(job)))
        })
    };
    let body = move || match loaded.get() {
        Loading::Pending => view! { <p class="empty">"Loading …"</p> }.into_any(),
        Loading::Failed(why) => view! { <p class="empty">{why}</p> }.into_any(),
        Loading::Ready(usage) if usage.total.jobs == 0 => {
            view! { <p class="empty">{nothing_yet(usage.days, has_run.get())}</p> }.into_any()
        }
        Loading::Ready(usage) => shown(&page, &usage),
    };
    view! {
        <div class="head head--line usage__head">
            <h1>"My usage"</h1>
            <div class="usage__days" role="group" aria-label="Period">{DAYS.map(choice)}</div>
        </div>
        {move || body()}
    }
}

/// What stands in the place of figures that are not there.
fn nothing_yet(days: u32, has_run: bool) -> String {
    if has_run {
        return "Your jobs are not summed up yet: their first figures appear about a minute after the relay has started."
            .to_owned();
    }
    format!("No job of yours ran in the last {days} days, as far as nodeglass has seen.")
}

fn shown(page: &Page, usage: &Usage) -> AnyView {
    let most = |sums: &UsageSums, most: f64| sums.gpu_hours_allocated.max(most);
    let weeks_most = usage.weeks.iter().fold(0.0, |high, week| most(&week.sums, high));
    let weeks = usage.weeks.iter().map(|week| {
        // Noon, so that a change of the clocks does not move the date.
        sums_row(platform::date(week.monday_s + 43_200), &week.sums, weeks_most)
    });
    let projects_most = usage.projects.iter().fold(0.0, |high, project| most(&project.sums, high));
    let projects = usage
        .projects
        .iter()
        .map(|project| sums_row(project.project.to_string(), &project.sums, projects_most));
    let wasteful = (!usage.wasteful.is_empty()).then(|| {
        view! {
            <h2 class="caption"><b>"Jobs with the most unused GPU hours"</b></h2>
            {job_table(page, "Wasteful jobs", &usage.wasteful)}
        }
    });
    let total = &usage.total;
    let newest = usage.jobs.len().min(LISTED);
    let listed = match usize::try_from(total.jobs).unwrap_or(usize::MAX) {
        all if all > newest => format!("The newest {newest} of {all} jobs"),
        all => text::count(all, "job", "jobs"),
    };
    view! {
        <p class="usage__sum">
            <b class="num">{precise(total.gpu_hours_allocated)}</b> " GPU hours allocated, "
            <b class="num">{precise(total.gpu_hours_used)}</b> " used, "
            <b class="num">{precise(total.gpu_hours_unused)}</b> " observed and not used"
            {total.costs.iter().map(|cost| view! { ", " <b class="num">{precise(cost.amount)}</b> " " {cost.currency.to_string()} }).collect_view()}
            {total.co2_kg.map(|kg| view! { ", " <b class="num">{precise(kg)}</b> " kg of CO₂" })}
            {total.energy_kwh.map(|kwh| view! { ", " <b class="num">{energy(kwh)}</b> })}
        </p>
        <div class="usage__both">
            <section>
                <h2 class="caption"><b>"By week"</b></h2>
                {sums_table("Week of", weeks.collect_view().into_any())}
            </section>
            <section>
                <h2 class="caption"><b>"By project"</b></h2>
                {sums_table("Account or job name", projects.collect_view().into_any())}
            </section>
        </div>
        {wasteful}
        <h2 class="caption"><b>{listed}</b></h2>
        {job_table(page, "Newest jobs", &usage.jobs[..newest])}
    }
    .into_any()
}

fn sums_table(first: &'static str, rows: AnyView) -> AnyView {
    view! {
        <div class="report__table" role="region" aria-label=first tabindex="0">
            <table class="plain">
                <thead><tr>
                    <th scope="col">{first}</th>
                    <th scope="col" class="num">"Jobs"</th>
                    <th scope="col">"GPU hours"</th>
                    <th scope="col" class="num">"Used"</th>
                    <th scope="col" class="num">"Unused"</th>
                    <th scope="col" class="num">"Energy"</th>
                </tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
    .into_any()
}

/// A row of sums. Its bar compares the allocated GPU hours with those of the other rows, and shows how many of
/// them were used.
fn sums_row(name: String, sums: &UsageSums, most: f64) -> AnyView {
    let share = |hours: f64| text::share(if most > 0.0 { hours / most } else { 0.0 });
    view! {
        <tr>
            <th scope="row">{name}</th>
            <td class="num">{sums.jobs}</td>
            <td class="gauge">
                <span class="hours hours--row" aria-hidden="true">
                    <i class="hours__used" style:--share=share(sums.gpu_hours_used)></i>
                    <i class="hours__part" style:--share=share((sums.gpu_hours_allocated - sums.gpu_hours_used).max(0.0))></i>
                </span>
                <span class="num">{precise(sums.gpu_hours_allocated)}</span>
            </td>
            <td class="num">{precise(sums.gpu_hours_used)}</td>
            <td class="num">{precise(sums.gpu_hours_unused)}</td>
            <td class="num">{text::or_absent(sums.energy_kwh.map(energy))}</td>
        </tr>
    }
    .into_any()
}

fn job_table(page: &Page, label: &'static str, jobs: &[JobUsage]) -> AnyView {
    let rows = jobs.iter().map(|job| {
        let href = page.href(&Route::Job(job.job, JobTab::Report));
        view! {
            <tr>
                <th scope="row"><a class="link num" href=href>{job.label.to_string()}</a></th>
                <td class="plain__name">{job.name.to_string()}</td>
                <td>{state_text(&job.state, job.is_final)}</td>
                <td class="num">{text::or_absent(job.start_s.map(platform::time_of_day))}</td>
                <td class="num">{text::span(job.elapsed_s)}</td>
                <td class="num">{job.gpus}</td>
                <td class="num">{precise(job.gpu_hours_allocated)}</td>
                <td class="num">{precise(job.gpu_hours_unused)}</td>
                <td class="gauge">{meter("Mean utilisation", "hue-busy", job.util_pct.map(|util| util / 100.0))} <span class="num">{text::or_absent(job.util_pct.map(|util| format!("{} %", util.round() as u64)))}</span></td>
            </tr>
        }
    });
    view! {
        <div class="report__table" role="region" aria-label=label tabindex="0">
            <table class="plain">
                <thead><tr>
                    <th scope="col">"Job"</th>
                    <th scope="col">"Name"</th>
                    <th scope="col">"State"</th>
                    <th scope="col" class="num">"Started"</th>
                    <th scope="col" class="num">"Run time"</th>
                    <th scope="col" class="num">"GPUs"</th>
                    <th scope="col" class="num">"GPU hours"</th>
                    <th scope="col" class="num">"Unused"</th>
                    <th scope="col">"Mean utilisation"</th>
                </tr></thead>
                <tbody>{rows.collect_view()}</tbody>
            </table>
        </div>
    }
    .into_any()
}
