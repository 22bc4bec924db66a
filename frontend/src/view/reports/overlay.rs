//! The readings of one job over its run, and several jobs or parts of them in one graph, aligned at their start or at a
//! note that each has.

use super::curve_plot::CurvePlot;
use super::curves::{Curves, FIELDS, observed_parts, with_equal_slots};
use super::parts::{Parts, label_of, run};
use crate::describe::report::{common_notes, note_at_s};
use crate::domain::compared::{Compared, Part};
use crate::domain::text;
use crate::platform;
use crate::state::page::Page;
use leptos::prelude::*;
use nodeglass_protocol::Text;
use nodeglass_protocol::report::Report;
use std::sync::Arc;

/// The mean of a field over the GPUs of each job, by the time since its start.
#[component]
pub fn Overlay(
    /// The compared jobs.
    compared: Memo<Vec<Compared>>,
    /// The reports of its jobs; they change while one of them runs.
    reports: Memo<Arc<Vec<Report>>>,
) -> impl IntoView {
    let field = RwSignal::new(0_usize);
    let times = times(compared, reports);
    let alignment = Alignment::new(reports);
    let aligned = alignment.times(compared, times);
    let curves = loaded_curves(compared, reports, aligned);
    // At a note, each begins at that; otherwise a run of which only the end was observed begins with that.
    let trimmed =
        Memo::new(move |_| if alignment.note.with(Option::is_some) { Vec::new() } else { aligned.get() });
    let observed = Observed::new(compared, reports, trimmed, curves);
    let shown =
        Memo::new(move |_| if trimmed.with(Vec::is_empty) { aligned.get() } else { observed.times.get() });
    let lines = Memo::new(move |_| match trimmed.with(Vec::is_empty) {
        true => with_equal_slots(curves.get()),
        false => observed.curves.get(),
    });
    let late_s = observed.late_s;
    let origin = Memo::new(move |_| {
        let is_late = late_s.with(|late_s| late_s.iter().any(Option::is_some));
        alignment.note.get().or_else(|| is_late.then(|| Text::from(FIRST_READING)))
    });
    let plot = CurvePlot::new(compared, reports, shown, origin, lines, field);
    let late = move || {
        let of = |(one, late_s): (&Compared, &Option<u64>)| {
            let label = reports.with(|reports| label_of(one.job, reports));
            Some(format!("Readings of {label} begin {} after its start.", text::duration((*late_s)?)))
        };
        let all = compared
            .with(|all| late_s.with(|late_s| all.iter().zip(late_s).filter_map(of).collect::<Vec<_>>()));
        (!all.is_empty()).then(|| view! { <p class="curves__late">{all.join(" ")}</p> })
    };
    view! {
        <section class="card" aria-label="Readings over time">
            <div class="overlay-head">
                <h2>{move || format!("{}, mean of each job's GPUs", FIELDS[field.get()].1)}</h2>
                {move || alignment.choice()}
                {late}
                <div role="group" aria-label="Metric" class="usage__days">{field_choices(field)}</div>
            </div>
            {plot.view()}
            <Parts compared reports times aligned curves/>
        </section>
    }
}

/// The mean of a field over the GPUs of a job, from its start to its end, without a long time at either of them that
/// nobody observed.
#[component]
pub fn RunGraph(
    /// The report of the job, which changes while it runs.
    report: Memo<Option<Report>>,
) -> impl IntoView {
    let field = RwSignal::new(0_usize);
    let reports =
        Memo::new(move |_| Arc::new(report.with(|report| report.iter().cloned().collect::<Vec<_>>())));
    let compared = Memo::new(move |_| {
        reports.with(|reports| reports.iter().map(|report| Compared::whole(report.job)).collect::<Vec<_>>())
    });
    let whole = times(compared, reports);
    let observed = Observed::new(compared, reports, whole, loaded_curves(compared, reports, whole));
    let Observed { times: shown, curves, late_s } = observed;
    let is_late = move || late_s.with(|late_s| late_s.iter().any(Option::is_some));
    let origin = Memo::new(move |_| is_late().then(|| Text::from(FIRST_READING)));
    let plot = CurvePlot::new(compared, reports, shown, origin, curves, field);
    let late = move || {
        let text = format!(
            "Readings begin {} after the start of the job.",
            text::duration(late_s.with(|late_s| *late_s.first()?)?)
        );
        Some(view! { <p class="curves__late">{text}</p> })
    };
    view! {
        <section class="card" aria-label="Readings over the run">
            <div class="overlay-head">
                <h2>{move || format!("{} over the run, mean of the GPUs", FIELDS[field.get()].1)}</h2>
                {late}
                <div role="group" aria-label="Metric" class="usage__days">{field_choices(field)}</div>
            </div>
            {plot.view()}
        </section>
    }
}

/// The moment at which the graph of a run begins that was observed late.
const FIRST_READING: &str = "first reading";

/// The times of runs that were observed, without a long time at either end that nobody observed, and their readings.
#[derive(Clone, Copy)]
struct Observed {
    times: Memo<Vec<Option<Part>>>,
    curves: Memo<Vec<Curves>>,
    /// For how long each was not observed at its start, in s.
    late_s: Memo<Vec<Option<u64>>>,
}

impl Observed {
    /// Of `whole` times, whose readings are `curves`.
    fn new(
        compared: Memo<Vec<Compared>>,
        reports: Memo<Arc<Vec<Report>>>,
        whole: Memo<Vec<Option<Part>>>,
        curves: Memo<Vec<Curves>>,
    ) -> Self {
        let parts = Memo::new(move |_| {
            whole.with(|whole| compared.with(|all| curves.with(|curves| observed_parts(all, whole, curves))))
        });
        // The readings of the parts once more, in shorter slots.
        let details = loaded_curves(compared, reports, parts);
        let is_part = move |at: usize| parts.with(|parts| parts.get(at).is_some_and(Option::is_some));
        let times = Memo::new(move |_| {
            let part = |at: usize| parts.with(|parts| parts.get(at).copied().flatten());
            whole.get().into_iter().enumerate().map(|(at, time)| part(at).or(time)).collect::<Vec<_>>()
        });
        let shown = Memo::new(move |_| {
            let detail = |at: usize| details.with(|details| details.get(at).cloned().unwrap_or_default());
            let all = curves.get().into_iter().enumerate();
            let all = all.map(|(at, curves)| match is_part(at) {
                true => Some(detail(at)).filter(Curves::is_loaded),
                false => Some(curves),
            });
            // None before all are loaded, as readings that are on their way are not missing.
            with_equal_slots(all.collect::<Option<Vec<_>>>().unwrap_or_default())
        });
        let late_s = Memo::new(move |_| {
            let late_s = |(part, time): (&Option<Part>, &Option<Part>)| {
                Some((part.as_ref()?.from_s - time.as_ref()?.from_s).unsigned_abs())
                    .filter(|late_s| *late_s > 0)
            };
            parts.with(|parts| whole.with(|whole| parts.iter().zip(whole).map(late_s).collect::<Vec<_>>()))
        });
        Self { times, curves: shown, late_s }
    }
}

/// The buttons that choose the field.
fn field_choices(field: RwSignal<usize>) -> [AnyView; FIELDS.len()] {
    std::array::from_fn(|at| {
        view! {
            <button class="btn btn--small" aria-pressed=move || (field.get() == at).to_string() on:click=move |_| field.set(at)>
                {FIELDS[at].1}
            </button>
        }
        .into_any()
    })
}

/// The note at which the jobs are aligned instead of their start, if the user chose one.
#[derive(Clone, Copy)]
struct Alignment {
    reports: Memo<Arc<Vec<Report>>>,
    /// The notes that each job has.
    common: Memo<Vec<Text>>,
    chosen: RwSignal<String>,
    /// The chosen note; `None` also once it is deleted or edited.
    note: Memo<Option<Text>>,
}

impl Alignment {
    fn new(reports: Memo<Arc<Vec<Report>>>) -> Self {
        let chosen = RwSignal::new(String::new());
        let common = Memo::new(move |_| reports.with(|reports| common_notes(reports)));
        let note = Memo::new(move |_| {
            common.with(|common| common.iter().find(|text| text.as_str() == chosen.get()).cloned())
        });
        Self { reports, common, chosen, note }
    }

    /// Returns the times from the note on.
    fn times(self, compared: Memo<Vec<Compared>>, times: Memo<Vec<Option<Part>>>) -> Memo<Vec<Option<Part>>> {
        let since_note = move |(one, time): (&Compared, Option<Part>)| {
            let Some(note) = self.note.get() else { return time };
            let at_s = self.reports.with(|reports| {
                let report = reports.iter().find(|report| report.job == one.job);
                report.and_then(|report| note_at_s(report, &note))
            });
            time?.since(at_s?)
        };
        Memo::new(move |_| compared.with(|all| all.iter().zip(times.get()).map(since_note).collect()))
    }

    /// Returns the choice of a note, if the jobs have one in common.
    fn choice(self) -> Option<AnyView> {
        let (options, note, chosen) = (self.common.get(), self.note, self.chosen);
        let option = |text: Text| {
            let value = text.to_string();
            let selected = move || note.with(|note| note.as_ref() == Some(&text));
            view! { <option value=value.clone() selected=selected>{value.clone()}</option> }
        };
        (!options.is_empty()).then(|| {
            view! {
                <label class="curves__align">
                    "Align at"
                    <select class="btn" on:change=move |event| chosen.set(event_target_value(&event))>
                        <option value="">"the start"</option>
                        {options.into_iter().map(option).collect_view()}
                    </select>
                </label>
            }
            .into_any()
        })
    }
}

/// Loads the readings of what is compared, and again when anything of it changes.
fn loaded_curves(
    compared: Memo<Vec<Compared>>,
    reports: Memo<Arc<Vec<Report>>>,
    times: Memo<Vec<Option<Part>>>,
) -> Memo<Vec<Curves>> {
    let (page, curves) = (Page::from_context(), RwSignal::new(Vec::new()));
    let newest = StoredValue::new(0_u64);
    platform::effect(move || {
        let (page, reports) = (page.clone(), reports.get());
        let wanted: Vec<_> = compared.get().into_iter().zip(times.get()).collect();
        if !page.feed.is_live() {
            return;
        }
        newest.update_value(|number| *number += 1);
        let number = newest.get_value();
        leptos::task::spawn_local(async move {
            let mut loaded = Vec::new();
            for (one, time) in wanted {
                let report = reports.iter().find(|report| report.job == one.job);
                loaded.push(match report.zip(time) {
                    Some((report, time)) => Curves::load(&page, report, time).await,
                    None => Curves::default(),
                });
                // The compared jobs have changed since, or the view is gone.
                if newest.try_get_value() != Some(number) {
                    return;
                }
            }
            curves.try_set(loaded);
        });
    });
    Memo::new(move |_| curves.get())
}

/// Returns the time that is compared of each job.
fn times(compared: Memo<Vec<Compared>>, reports: Memo<Arc<Vec<Report>>>) -> Memo<Vec<Option<Part>>> {
    let time = |one: &Compared, reports: &[Report]| one.time(run(one.job, reports));
    Memo::new(move |_| {
        reports
            .with(|reports| compared.with(|all| all.iter().map(|one| time(one, reports)).collect::<Vec<_>>()))
    })
}
