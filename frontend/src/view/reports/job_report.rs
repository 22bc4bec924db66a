//! The report of a job: what it did with what it was given, on the screen and on paper.

use super::load::{Loading, load};
use super::overlay::RunGraph;
use crate::describe::note::note_text;
use crate::describe::{finding, report};
use crate::domain::compared::{self, Compared};
use crate::domain::route::Route;
use crate::domain::text;
use crate::platform;
use crate::state::page::Page;
use crate::view::widgets::actions::act;
use crate::view::widgets::copy::copy_button;
use crate::view::widgets::fact_list::fact_groups;
use crate::view::widgets::meter::meter;
use leptos::prelude::*;
use nodeglass_protocol::JobId;
use nodeglass_protocol::note::Note;
use nodeglass_protocol::report::{Advice, GpuReport, Report, ReportAnswer, ReportQuery, UTIL_BINS};
use nodeglass_protocol::request::Request;
use nodeglass_rules::attention::{Folded, fold_run};
use nodeglass_rules::gpu_hours::GpuHours;
use nodeglass_rules::number::{self, ColumnFormat};
use nodeglass_rules::run::REQUEUED;

/// Maximum number of other jobs that are offered for comparison.
const OFFERED: usize = 6;

/// The report of a job.
#[component]
pub fn JobReport(
    /// The job.
    id: JobId,
) -> impl IntoView {
    let page = Page::from_context();
    let notes = page.notes;
    let runs = {
        let page = page.clone();
        Memo::new(move |_| page.job(id).is_some_and(|job| job.is_active()))
    };
    let loaded = load(
        move || {
            // The final report is there as soon as the job has ended.
            runs.get();
            notes.track();
            ReportQuery::Jobs(vec![id])
        },
        |answer| match answer {
            ReportAnswer::Jobs(reports) => Some(reports.into_iter().next()),
            _ => None,
        },
    );
    let report = Memo::new(move |_| match loaded.get() {
        Loading::Ready(report) => report,
        Loading::Pending | Loading::Failed(_) => None,
    });
    let notice = move || match loaded.get() {
        Loading::Pending => Some("Loading the report …".to_owned()),
        Loading::Failed(why) => Some(why),
        Loading::Ready(None) => {
            Some(format!("There is no report of job {id}: nodeglass has not seen it run."))
        }
        Loading::Ready(Some(_)) => None,
    };
    let is_any = Memo::new(move |_| report.with(Option::is_some));
    view! {
        {move || notice().map(|text| view! { <p class="empty">{text}</p> })}
        <Show when=move || is_any.get()><Shown report/></Show>
    }
}

/// A report. What has buttons is not created anew with the sums of a running job, so that it keeps the focus.
#[component]
fn Shown(report: Memo<Option<Report>>) -> impl IntoView {
    let page = Page::from_context();
    let part = move |write: fn(&Report) -> AnyView| move || report.with(|report| report.as_ref().map(write));
    let covered = {
        let page = page.clone();
        move || report.with(|report| report.as_ref().map(|report| coverage(report, page.wall_s())))
    };
    let suggested = Memo::new(move |_| {
        report.with(|report| report.as_ref().map_or_else(Vec::new, |report| report.advice.clone()))
    });
    let actions = report.with_untracked(|report| report.as_ref().map(|report| actions(&page, report)));
    let figures = |report: &Report| fact_groups(report::facts(report));
    view! {
        <div class="report">
            {part(title)}
            <div class="report__bar"><p>{covered}</p> {actions}</div>
            {move || suggested.with(|suggested| advice(suggested))}
            <div class="report__top">{part(hours)} {part(distribution)}</div>
            <RunGraph report/>
            <div class="facts-columns facts-columns--page">{part(figures)}</div>
            {part(finding_table)}
            {part(note_table)}
            {part(|report| gpu_table(&report.gpus))}
        </div>
    }
}

/// The title on paper, where the head of the job's page is missing.
fn title(report: &Report) -> AnyView {
    let at = |time_s: Option<i64>| time_s.map_or_else(|| "–".to_owned(), platform::format_time_or_date);
    let what = format!("Job {} · {}", report.label, report.name);
    let when = format!(
        "{} · {} · partition {} · {} to {} · as of {}",
        report.user,
        report::state_text(&report.state, report.is_final),
        report.partition,
        at(report.start_s),
        at(report.ended_s),
        platform::zoned_datetime(report.at_s),
    );
    view! { <header class="report__title"><h1>{what}</h1><p>{when}</p></header> }.into_any()
}

/// Describes the coverage of the report at `now_s`, in s since 1970.
fn coverage(report: &Report, now_s: i64) -> String {
    match (report.is_final, report.observed_pct.round() as u64) {
        _ if report.state.as_str() == REQUEUED => {
            "The job was requeued; this is the report of its run until then.".to_owned()
        }
        (true, 99..) => "The job has ended; this is its final report.".to_owned(),
        (true, observed) => format!("The job has ended; {observed} % of its run was observed."),
        (false, _) if report.is_outdated(now_s) => {
            Report::last_observed(platform::format_time_or_date(report.at_s))
        }
        (false, _) => "The job is still running; these are its figures so far.".to_owned(),
    }
}

/// The actions on the report.
fn actions(page: &Page, report: &Report) -> AnyView {
    // A guest has no relay with this job.
    let command = untrack(|| page.is_owner()).then(|| {
        let command = format!("relay report {} --format markdown", report.label);
        view! { <span class="report__command"><code class="command">{command.clone()}</code> {copy_button(command)}</span> }
    });
    view! {
        <span class="report__do">
            {compare(page, report)}
            <button class="btn btn--small" on:click=|_| platform::print()>"Print or save as PDF"</button>
            {send(page, report.job)}
            {command}
        </span>
    }
    .into_any()
}

/// The button that posts the report, if a webhook is configured.
fn send(page: &Page, job: JobId) -> AnyView {
    let page = page.clone();
    let webhook = {
        let page = page.clone();
        Memo::new(move |_| page.fleet.welcome().and_then(|welcome| welcome.report_webhook.clone()))
    };
    (move || {
        let page = page.clone();
        webhook.get().map(|url| {
            let send = move |_| act(page.clone(), Request::SendReport(job));
            view! { <button class="btn btn--small" title=format!("Posts the report to {url}") on:click=send>"Send to webhook"</button> }
        })
    })
    .into_any()
}

/// Links that compare the job with the newest ones of its kind, and one with any other.
fn compare(page: &Page, report: &Report) -> AnyView {
    let own = report.job;
    let others = untrack(|| {
        page.jobs.with(|jobs| {
            let alike = compared::alike(own, report.user.as_str(), report.name.as_str(), jobs);
            let label = |id: &JobId| jobs.iter().find(|job| job.id == *id).map(|job| job.label.to_string());
            alike.iter().take(OFFERED).filter_map(|id| Some((*id, label(id)?))).collect::<Vec<_>>()
        })
    });
    let href =
        |jobs: &[JobId]| page.href(&Route::Compare(jobs.iter().copied().map(Compared::whole).collect()));
    let links = others.into_iter().map(|(id, label)| {
        view! { <a class="link num" href=href(&[own, id])>{label}</a> }
    });
    let links = links.collect_view();
    view! {
        <span class="report__compare">
            "Compare with " {links} <a class="link" href=href(&[own])>"another job or time"</a>
        </span>
    }
    .into_any()
}

fn advice(advice: &[Advice]) -> AnyView {
    if advice.is_empty() {
        return ().into_any();
    }
    let entries = advice.iter().map(|advice| {
        let line = advice.sbatch.as_ref().map(|line| {
            let line = line.to_string();
            view! { <span class="advice__line"><code class="command">{line.clone()}</code> {copy_button(line)}</span> }
        });
        view! { <li><span>{advice.text.to_string()}</span> {line}</li> }
    });
    view! {
        <section class="advice" aria-label="Advice">
            <h2>"Next time"</h2>
            <ul>{entries.collect_view()}</ul>
        </section>
    }
    .into_any()
}

/// The use of the allocated GPU hours, as one bar.
fn hours(report: &Report) -> AnyView {
    let totals = &report.totals;
    let allocated = totals.gpu_hours_allocated;
    if totals.gpus == 0 || allocated <= 0.0 {
        return ().into_any();
    }
    let spent = GpuHours::from(totals);
    let parts = [
        ("used", "Used", spent.used, "the integral of utilisation over time, without hangs"),
        (
            "slowed",
            "Of these lost to slow GPUs",
            spent.slowed,
            "as findings state: the other GPUs waited for them",
        ),
        ("part", "Partly busy", spent.partly_busy(), "time above 5 % utilisation, minus the time used"),
        (
            "hung",
            "Lost to a hang",
            spent.hung,
            "time in which all GPUs waited for each other at full utilisation",
        ),
        ("idle", "Idle", spent.idle, "time at 5 % utilisation or less"),
        ("unknown", "Unknown utilisation", spent.of_unknown_use(), "it was not reported or not read"),
        ("unknown", "Not observed", spent.unobserved(), "no samples were taken"),
    ];
    let format =
        ColumnFormat::of([spent.used, spent.partly_busy(), spent.hung, spent.idle, spent.of_unknown_use()]);
    let bars = parts.iter().map(|(class, _, hours, _)| {
        // The lost hours are a part of the used ones.
        let own = if *class == "used" { hours - spent.slowed } else { *hours };
        view! { <i class=format!("hours__{class}") style:--share=text::share(own / allocated)></i> }
    });
    let bars = bars.collect_view();
    let legend = parts.iter().filter(|(_, _, hours, _)| *hours > 0.0).map(|(class, label, hours, help)| {
        let share = number::percent(100.0 * hours / allocated);
        view! {
            <li title=*help>
                <i class=format!("hours__{class}") aria-hidden="true"></i>
                <span>{*label}</span>
                <b class="num">{format!("{} h", format.write(*hours))}</b>
                <span class="num">{share}</span>
            </li>
        }
    });
    view! {
        <section class="card" aria-label="GPU hours">
            <h2>"GPU hours " <b class="num">{number::precise(allocated)}</b></h2>
            <div class="hours" aria-hidden="true">{bars}</div>
            <ul class="hours__legend">{legend.collect_view()}</ul>
        </section>
    }
    .into_any()
}

/// The time of the GPUs at each utilisation.
fn distribution(report: &Report) -> AnyView {
    let Some(shares) = report.totals.util_distribution_pct else { return ().into_any() };
    let highest = shares.iter().copied().fold(1.0, f64::max);
    let bins = shares.iter().enumerate().map(|(bin, share)| {
        let help = format!("{}–{} % utilisation: {} % of the time", bin * 10, bin * 10 + 10, share.round());
        let title = help.clone();
        view! {
            <li title=title>
                <span class="bins__share num" aria-hidden="true">{(*share >= 0.5).then(|| format!("{} %", share.round() as u64))}</span>
                <i class=hue(bin) style:--share=text::share(share / highest) role="img" aria-label=help></i>
                <span class="bins__at num" aria-hidden="true">{bin * 10}</span>
            </li>
        }
    });
    let mean = report.totals.util_pct.map(|util| format!("mean {} %", number::precise(util)));
    view! {
        <section class="card" aria-label="Distribution of utilisation">
            <h2>"Time at each utilisation " <b class="num">{mean}</b></h2>
            <ol class="bins">{bins.collect_view()}</ol>
            <p class="facts__note">"Share of GPU time by utilisation, in %"</p>
        </section>
    }
    .into_any()
}

/// The class of the colour of a tenth of the scale, as in the heat map.
fn hue(bin: usize) -> &'static str {
    match bin * 4 / UTIL_BINS {
        0 => "bin bin--0",
        1 => "bin bin--1",
        2 => "bin bin--2",
        _ => "bin bin--3",
    }
}

/// Findings during the run, on the screen and on paper.
fn finding_table(report: &Report) -> AnyView {
    if report.findings.is_empty() {
        return ().into_any();
    }
    let entries = fold_run(&report.findings);
    let row = |entry: &Folded<'_>| {
        let evidence = match entry.evidence(|job| job.to_string()).as_slice() {
            [] => "–".to_owned(),
            lines => lines.join(" · "),
        };
        let finding = entry.finding;
        let positions = finding.capture.iter().flat_map(|capture| capture.lines());
        let positions = positions.map(|line| view! { <small class="plain__position">{line}</small> });
        view! {
            <tr>
                <th scope="row" class="num">{finding::began(entry)}</th>
                <td class="num">{finding::lasted(entry)}</td>
                <td>{finding.title.to_string()} {positions.collect_view()}</td>
                <td>{evidence}</td>
            </tr>
        }
    };
    let rows = entries.iter().map(row).collect_view();
    view! {
        <h2 class="caption"><b>{text::count(entries.len(), "finding", "findings")}</b></h2>
        <div class="report__table" role="region" aria-label="Findings" tabindex="0">
            <table class="plain plain--notes plain--findings">
                <thead><tr>
                    <th scope="col" class="num">"When"</th>
                    <th scope="col" class="num">"Lasted"</th>
                    <th scope="col">"Finding"</th>
                    <th scope="col">"Evidence"</th>
                </tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
    .into_any()
}

/// The notes of the job, on the screen and on paper.
fn note_table(report: &Report) -> AnyView {
    let lacking = report.lacks_notes.then(|| {
        view! { <p class="report__note">"Notes may be missing: the stored ones cannot be read now, or there are more than are kept."</p> }
    });
    if report.notes.is_empty() {
        return lacking.into_any();
    }
    let row = |note: &Note| {
        let at_s = (note.at_ms / 1_000).cast_signed();
        let after_s = report.start_s.map(|start_s| at_s.saturating_sub(start_s));
        let after = after_s.map(|after_s| match after_s {
            ..0 => "before the start".to_owned(),
            late_s if report.is_final && late_s.unsigned_abs() > report.elapsed_s => {
                format!("{} after the end", text::span(late_s.unsigned_abs() - report.elapsed_s))
            }
            after_s => text::span(after_s.unsigned_abs()),
        });
        view! {
            <tr>
                <th scope="row" class="num">{platform::format_time_or_date(at_s)}</th>
                <td class="num">{text::or_absent(after)}</td>
                <td>{note_text(note)}</td>
            </tr>
        }
    };
    let rows = report.notes.iter().map(row).collect_view();
    view! {
        <h2 class="caption"><b>{text::count(report.notes.len(), "note", "notes")}</b></h2>
        <div class="report__table" role="region" aria-label="Notes" tabindex="0">
            <table class="plain plain--notes">
                <thead><tr>
                    <th scope="col" class="num">"Time"</th>
                    <th scope="col" class="num">"After the start"</th>
                    <th scope="col">"Note"</th>
                </tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
        {lacking}
    }
    .into_any()
}

fn gpu_table(gpus: &[GpuReport]) -> AnyView {
    if gpus.is_empty() {
        return ().into_any();
    }
    let has = |value: fn(&GpuReport) -> bool| gpus.iter().any(value);
    let (clocks, energy) = (has(|gpu| gpu.sm_clock_mhz.is_some()), has(|gpu| gpu.energy_kwh.is_some()));
    let (faults, throttled) = (
        has(|gpu| gpu.xids > 0 || gpu.ecc_uncorrected > Some(0) || gpu.fault_s > 0.0),
        has(|gpu| !gpu.throttled.is_empty()),
    );
    let kwh = || gpus.iter().filter_map(|gpu| gpu.energy_kwh);
    let (unit, factor) = number::energy_unit(kwh());
    let kwh_format = ColumnFormat::of(kwh().map(|kwh| kwh * factor));
    let or_absent = text::or_absent;
    let row = |gpu: &GpuReport| {
        // All in one unit, with one decimal: figures of a column are compared.
        let peak =
            gpu.mem_peak_bytes.map(|peak| format!("{} GiB", text::tenths(peak as f64 / f64::from(1 << 30))));
        let share = gpu.mem_peak_bytes.zip(gpu.mem_total_bytes.filter(|size| *size > 0));
        view! {
            <tr>
                <th scope="row">{gpu.node.to_string()} " " <span class="num">{format!("GPU {}", gpu.index)}</span></th>
                <td class="gauge">{meter("Mean utilisation", "hue-busy", gpu.util_pct.map(|util| util / 100.0))} <span class="num">{or_absent(gpu.util_pct.map(|util| format!("{} %", util.round() as u64)))}</span></td>
                <td class="num">{or_absent(gpu.idle_s.map(|idle_s| text::span(idle_s.round() as u64)))}</td>
                <td class="gauge">{meter("Peak memory", "hue-mem", share.map(|(peak, size)| peak as f64 / size as f64))} <span class="num">{or_absent(peak)}</span></td>
                {clocks.then(|| view! { <td class="num">{or_absent(gpu.sm_clock_mhz.map(|mhz| format!("{} MHz", text::grouped(mhz.round() as u64))))}</td> })}
                {energy.then(|| view! { <td class="num">{or_absent(gpu.energy_kwh.map(|kwh| kwh_format.write(kwh * factor)))}</td> })}
                {throttled.then(|| view! { <td class="plain__long">{throttled_text(gpu)}</td> })}
                {faults.then(|| view! { <td class="num">{fault_text(gpu)}</td> })}
            </tr>
        }
    };
    let rows = gpus.iter().map(row).collect_view();
    view! {
        <h2 class="caption"><b>{text::count(gpus.len(), "GPU", "GPUs")}</b></h2>
        <div class="report__table" role="region" aria-label="Figures" tabindex="0">
            <table class="plain">
                <thead><tr>
                    <th scope="col">"GPU"</th>
                    <th scope="col">"Mean utilisation"</th>
                    <th scope="col" class="num">"Idle"</th>
                    <th scope="col">"Peak memory"</th>
                    {clocks.then(|| view! { <th scope="col" class="num">"Mean SM clock"</th> })}
                    {energy.then(|| view! { <th scope="col" class="num">"Energy " {unit}</th> })}
                    {throttled.then(|| view! { <th scope="col">"Throttled"</th> })}
                    {faults.then(|| view! { <th scope="col" class="num">"Faults"</th> })}
                </tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
    .into_any()
}

/// Time for which each reason lowered the clocks.
fn throttled_text(gpu: &GpuReport) -> String {
    let reasons =
        gpu.throttled.iter().map(|one| format!("{} {}", one.reason, text::span(one.seconds.round() as u64)));
    text::or_absent(Some(reasons.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty()))
}

fn fault_text(gpu: &GpuReport) -> String {
    let ecc = gpu.ecc_uncorrected.unwrap_or(0);
    let counts = [
        (gpu.xids > 0).then(|| format!("{} Xid", gpu.xids)),
        (ecc > 0).then(|| format!("{ecc} ECC")),
        (gpu.fault_s > 0.0).then(|| format!("unreadable for {}", text::span(gpu.fault_s.round() as u64))),
    ];
    text::or_absent(
        Some(counts.into_iter().flatten().collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty()),
    )
}
