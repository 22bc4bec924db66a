//! Usage and waste of the owner's jobs of the last weeks.

use super::load::{Loading, load};
use crate::describe::report::state_text;
use crate::domain::compared::has_started;
use crate::domain::route::{JobTab, Route};
use crate::domain::text;
use crate::platform;
use crate::state::address::Address;
use crate::state::page::Page;
use crate::view::widgets::meter::meter;
use leptos::prelude::*;
use nodeglass_protocol::report::{JobUsage, ReportAnswer, ReportQuery, Usage, UsageSums};
use nodeglass_rules::gpu_hours::GpuHours;
use nodeglass_rules::number::{ColumnFormat, carbon, energy, energy_unit, money};

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
            <div class="usage__days" role="group" aria-label="Period">{DAYS.map(|offered| period_button(&address, days, offered))}</div>
        </div>
        {move || body()}
    }
}

/// The button that chooses a number of days.
fn period_button(address: &Address, days: Memo<u32>, offered: u32) -> AnyView {
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
}

/// The text in the place of missing figures.
fn nothing_yet(days: u32, has_run: bool) -> String {
    if has_run {
        return "Your jobs are not summed up yet: their first figures appear about a minute after the relay has started."
            .to_owned();
    }
    format!("nodeglass saw no job of yours run in the last {days} days.")
}

fn shown(page: &Page, usage: &Usage) -> AnyView {
    // Noon, so that a change of the clocks does not move the date.
    let weeks = usage.weeks.iter().map(|week| (platform::date(week.monday_s + 43_200), &week.sums));
    let projects = usage.projects.iter().map(|project| (project.project.to_string(), &project.sums));
    let wasteful = (!usage.wasteful.is_empty()).then(|| {
        view! {
            <h2 class="caption"><b>"Jobs with the most unused GPU hours"</b></h2>
            {job_table(page, "Wasteful jobs", &usage.wasteful)}
        }
    });
    let newest = usage.jobs.len().min(LISTED);
    let listed = match usize::try_from(usage.total.jobs).unwrap_or(usize::MAX) {
        all if all > newest => format!("The newest {newest} of {all} jobs"),
        all => text::count(all, "job", "jobs"),
    };
    view! {
        {summary(usage)}
        <div class="usage__both">
            <section>
                <h2 class="caption"><b>"By week"</b></h2>
                {sums_table("Week of", &weeks.collect::<Vec<_>>())}
            </section>
            <section>
                <h2 class="caption"><b>"By project"</b></h2>
                {sums_table("Account or job name", &projects.collect::<Vec<_>>())}
            </section>
        </div>
        {wasteful}
        <h2 class="caption"><b>{listed}</b></h2>
        {job_table(page, "Newest jobs", &usage.jobs[..newest])}
    }
    .into_any()
}

/// Describes the observed share of the allocation, its use, and the unknown rest.
fn summary(usage: &Usage) -> AnyView {
    let (total, hours) = (&usage.total, GpuHours::from(&usage.total));
    let costs = total.costs.iter().map(|cost| money(cost.amount, cost.currency.as_str()));
    let co2 = total.co2_kg.map(|kg| format!("{} of CO₂", carbon(kg)));
    let measured: Vec<String> = costs.chain(co2).chain(total.energy_kwh.map(energy)).collect();
    let measured = if measured.is_empty() { String::new() } else { format!(", {}", measured.join(", ")) };
    let unobserved = (total.jobs_unobserved > 0).then(|| {
        let jobs = text::count(total.jobs_unobserved as usize, "job", "jobs");
        format!("{jobs} not observed: no relay was running.")
    });
    let lacking: Vec<String> =
        unobserved.into_iter().chain(usage.incomplete.as_ref().map(ToString::to_string)).collect();
    view! {
        <p class="usage__sum">
            <b class="num">{hours.coverage()}</b> {hours.spent().map(|spent| format!(": {spent}"))} {measured} ". " {lacking.join(" ")}
        </p>
    }
    .into_any()
}

/// Formats of the figures of a table's columns.
#[derive(Clone, Copy)]
struct Formats {
    allocated: ColumnFormat,
    /// Parts of the allocated hours, which are added and compared.
    parts: ColumnFormat,
}

impl Formats {
    fn of(all: &[GpuHours]) -> Self {
        let parts = all.iter().flat_map(|hours| [hours.used, hours.unused]);
        Self {
            allocated: ColumnFormat::of(all.iter().map(|hours| hours.allocated)),
            parts: ColumnFormat::of(parts),
        }
    }
}

/// A table of sums with the first column `first`.
fn sums_table(first: &'static str, sums: &[(String, &UsageSums)]) -> AnyView {
    let hours: Vec<GpuHours> = sums.iter().map(|(_, sums)| GpuHours::from(*sums)).collect();
    let formats = Formats::of(&hours);
    let most = hours.iter().fold(0.0, |most, hours| hours.allocated.max(most));
    let kwh = || sums.iter().filter_map(|(_, sums)| sums.energy_kwh);
    let (unit, factor) = energy_unit(kwh());
    let kwh_format = ColumnFormat::of(kwh().map(|kwh| kwh * factor));
    let rows = sums.iter().zip(&hours).map(|((name, sums), hours)| {
        let energy = sums.energy_kwh.map(|kwh| kwh_format.write(kwh * factor));
        view! {
            <tr>
                <th scope="row">{name.clone()}</th>
                <td class="num">{sums.jobs}</td>
                <td class="gauge">{bar(hours, most)} <span class="num">{formats.allocated.write(hours.allocated)}</span></td>
                {parts_cells(hours, formats)}
                <td class="num">{text::or_absent(energy)}</td>
            </tr>
        }
    });
    let rows = rows.collect_view();
    view! {
        <div class="report__table" role="region" aria-label=first tabindex="0">
            <table class="plain">
                <thead><tr>
                    <th scope="col">{first}</th>
                    <th scope="col" class="num">"Jobs"</th>
                    <th scope="col">"GPU hours"</th>
                    {parts_heads()}
                    <th scope="col" class="num">"Energy " {unit}</th>
                </tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
    .into_any()
}

/// The columns of what became of the allocated hours, each with its pattern in the bars.
fn parts_heads() -> AnyView {
    let parts = [
        ("used", "Used", ""),
        ("part", "Unused", ""),
        ("unknown", "Unknown", "not observed, or the utilisation was not reported or not read"),
    ];
    let head = |(class, label, help): (&str, &'static str, &'static str)| {
        let help = (!help.is_empty()).then_some(help);
        view! { <th scope="col" class="num" title=help><i class=format!("hours__key hours__{class}") aria-hidden="true"></i> {label}</th> }
    };
    parts.map(head).collect_view().into_any()
}

fn parts_cells(hours: &GpuHours, formats: Formats) -> AnyView {
    view! {
        <td class="num">{formats.parts.write(hours.used)}</td>
        <td class="num">{formats.parts.write(hours.unused)}</td>
        <td class="num">{formats.allocated.write(hours.unknown())}</td>
    }
    .into_any()
}

/// A bar that compares the allocated hours with the most of a row, and shows what became of them.
fn bar(hours: &GpuHours, most: f64) -> AnyView {
    let share = |hours: f64| text::share(if most > 0.0 { hours / most } else { 0.0 });
    view! {
        <span class="hours hours--row" aria-hidden="true">
            <i class="hours__used" style:--share=share(hours.used)></i>
            <i class="hours__part" style:--share=share(hours.unused)></i>
            <i class="hours__unknown" style:--share=share(hours.unknown())></i>
        </span>
    }
    .into_any()
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

fn job_table(page: &Page, label: &'static str, jobs: &[JobUsage]) -> AnyView {
    let formats = Formats::of(&jobs.iter().map(hours_of).collect::<Vec<_>>());
    let some_hung = jobs.iter().any(|job| job.gpu_hours_hung > 0.0);
    let some_slowed = jobs.iter().any(|job| job.gpu_hours_slowed > 0.0);
    let rows = jobs.iter().map(|job| {
        let (href, hours) = (page.href(&Route::Job(job.job, JobTab::Report)), hours_of(job));
        view! {
            <tr>
                <th scope="row"><a class="link num" href=href>{job.label.to_string()}</a></th>
                <td class="plain__name">{job.name.to_string()}</td>
                <td>{state_text(&job.state, job.is_final)}</td>
                <td class="num">{text::or_absent(job.start_s.map(platform::time_of_day))}</td>
                <td class="num">{text::span(job.elapsed_s)}</td>
                <td class="num">{job.gpus}</td>
                <td class="num">{formats.allocated.write(hours.allocated)}</td>
                {parts_cells(&hours, formats)}
                {some_slowed.then(|| view! { <td class="num">{formats.parts.write(hours.slowed)}</td> })}
                {some_hung.then(|| view! { <td class="num">{formats.parts.write(hours.hung)}</td> })}
                <td class="gauge">{meter("Mean utilisation", "hue-busy", job.util_pct.map(|util| util / 100.0))} <span class="num">{text::or_absent(job.util_pct.map(|util| format!("{} %", util.round() as u64)))}</span></td>
            </tr>
        }
    });
    let rows = rows.collect_view();
    view! {
        <div class="report__table" role="region" aria-label=label tabindex="0">
            <table class="plain plain--jobs">
                <thead><tr>
                    <th scope="col">"Job"</th>
                    <th scope="col">"Name"</th>
                    <th scope="col">"State"</th>
                    <th scope="col" class="num">"Started"</th>
                    <th scope="col" class="num">"Run time"</th>
                    <th scope="col" class="num">"GPUs"</th>
                    <th scope="col" class="num">"GPU hours"</th>
                    {parts_heads()}
                    {some_slowed.then(|| view! { <th scope="col" class="num" title="A part of the used hours: other GPUs waited for these">"Lost to slow GPUs"</th> })}
                    {some_hung.then(|| view! { <th scope="col" class="num" title="A part of the unused hours">"Lost to hangs"</th> })}
                    <th scope="col">"Mean utilisation"</th>
                </tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
    .into_any()
}
