//! Usage and waste of the owner's jobs of the last weeks.

use super::load::{Loading, load};
use super::usage_jobs::{Formats, UNKNOWN, UsageJobs, jobs_csv};
use crate::domain::compared::has_started;
use crate::domain::text;
use crate::platform;
use crate::state::address::Address;
use crate::state::page::Page;
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
    let usage = Memo::new(move |_| match loaded.get() {
        Loading::Ready(usage) if usage.total.jobs > 0 => Some(usage),
        _ => None,
    });
    let notice = move || match loaded.get() {
        Loading::Pending => Some("Loading …".to_owned()),
        Loading::Failed(why) => Some(why),
        Loading::Ready(usage) if usage.total.jobs == 0 => Some(nothing_yet(usage.days, has_run.get())),
        Loading::Ready(_) => None,
    };
    let is_any = Memo::new(move |_| usage.with(Option::is_some));
    view! {
        <div class="head head--line usage__head">
            <h1>"My usage"</h1>
            <div class="usage__days" role="group" aria-label="Period">{DAYS.map(|offered| period_button(&address, days, offered))}</div>
            <Show when=move || is_any.get()>{actions(usage)}</Show>
        </div>
        {move || notice().map(|text| view! { <p class="empty">{text}</p> })}
        <Show when=move || is_any.get()><Shown usage/></Show>
    }
}

/// The buttons that save the usage.
fn actions(usage: Memo<Option<Usage>>) -> AnyView {
    let save = move |_| {
        let usage = usage.get_untracked();
        if let Some(Usage { days, jobs, .. }) = usage {
            platform::save(&format!("usage-{days}-days.csv"), "text/csv", &jobs_csv(&jobs));
        }
    };
    view! {
        <span class="report__do">
            <button class="btn btn--small" title="Saves the jobs as comma-separated values" on:click=save>"Save as CSV"</button>
            <button class="btn btn--small" on:click=|_| platform::print()>"Print or save as PDF"</button>
        </span>
    }
    .into_any()
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

/// The figures. The tables of jobs stay as they are while these change, with the order that the user chose.
#[component]
fn Shown(usage: Memo<Option<Usage>>) -> impl IntoView {
    let jobs_of = |read: fn(&Usage) -> &Vec<JobUsage>| {
        Memo::new(move |_| {
            usage.with(|usage| usage.as_ref().map_or_else(Vec::new, |usage| read(usage).clone()))
        })
    };
    let (wasteful, newest) = (jobs_of(|usage| &usage.wasteful), jobs_of(|usage| &usage.jobs));
    let some_wasteful = Memo::new(move |_| wasteful.with(|jobs| !jobs.is_empty()));
    let listed = move || {
        let all = usage.with(|usage| usage.as_ref().map_or(0, |usage| usage.total.jobs as usize));
        match newest.with(Vec::len) {
            known if known < all => format!("{} of the newest {known} of {all} jobs", known.min(LISTED)),
            known if known > LISTED => format!("{LISTED} of {known} jobs"),
            known => text::count(known, "job", "jobs"),
        }
    };
    let page = Page::from_context();
    let title = move || {
        let days = usage.with(|usage| usage.as_ref().map_or(0, |usage| usage.days));
        let until = platform::zoned_datetime((page.wall_ms() / 1_000).cast_signed());
        let (title, period) =
            (format!("GPU usage of {}", page.owner()), format!("{days} days until {until}"));
        view! { <header class="report__title"><h1>{title}</h1><p>{period}</p></header> }
    };
    view! {
        {title}
        {move || usage.with(|usage| usage.as_ref().map(sums))}
        <Show when=move || some_wasteful.get()>
            <h2 class="caption"><b>"Jobs with the most unused GPU hours"</b></h2>
            <UsageJobs label="Wasteful jobs" jobs=wasteful known=newest most=LISTED/>
        </Show>
        <h2 class="caption"><b>{listed}</b></h2>
        <UsageJobs label="Newest jobs" jobs=newest known=newest most=LISTED/>
    }
}

/// The sums of all jobs, and by week and project.
fn sums(usage: &Usage) -> AnyView {
    // Noon, so that a change of the clocks does not move the date.
    let weeks = usage.weeks.iter().map(|week| (platform::format_date(week.monday_s + 43_200), &week.sums));
    let projects = usage.projects.iter().map(|project| (project.project.to_string(), &project.sums));
    view! {
        {summary(usage)}
        <div class="usage__both">
            <section>
                <h2 class="caption"><b>"By week"</b></h2>
                {sums_table("Started in the week of", &weeks.collect::<Vec<_>>())}
            </section>
            <section>
                <h2 class="caption"><b>"By project"</b></h2>
                {sums_table("Account or job name", &projects.collect::<Vec<_>>())}
            </section>
        </div>
    }
    .into_any()
}

/// Describes the observed share of the allocation, its use, and the unknown rest.
fn summary(usage: &Usage) -> AnyView {
    let (total, hours) = (&usage.total, GpuHours::from(&usage.total));
    let costs = total.costs.iter().map(|cost| money(cost.amount, cost.currency.as_str()));
    let co2 = total.co2_kg.map(|kg| format!("{} of CO₂", carbon(kg)));
    let measured: String =
        total.energy_kwh.map(energy).into_iter().chain(co2).map(|amount| format!(", {amount}")).collect();
    let costs: Vec<String> = costs.collect();
    let costs = (!costs.is_empty()).then(|| format!("All hours cost {}. ", costs.join(" and ")));
    let unobserved = (total.jobs_unobserved > 0).then(|| {
        let jobs = text::count(total.jobs_unobserved as usize, "job", "jobs");
        format!("{jobs} not observed.")
    });
    let lacking: Vec<String> =
        unobserved.into_iter().chain(usage.incomplete.as_ref().map(ToString::to_string)).collect();
    view! {
        <p class="usage__sum">
            <b class="num">{hours.coverage()}</b> {hours.spent().map(|spent| format!(": {spent}"))} {measured} ". " {costs} {lacking.join(" ")}
        </p>
    }
    .into_any()
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
    let parts = [("used", "Used", ""), ("part", "Unused", ""), ("unknown", "No data", UNKNOWN)];
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
