//! The readings of one job over its run, and several jobs or parts of them in one graph, aligned at their start or at a
//! note that each has.

use super::curve_plot::CurvePlot;
use super::curves::{Curves, FIELDS};
use super::parts::{Parts, run};
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
    let plot = CurvePlot::new(compared, reports, aligned, alignment.note, curves, field);
    view! {
        <section class="card" aria-label="Readings over time">
            <div class="overlay-head">
                <h2>{move || format!("{}, mean of each job's GPUs", FIELDS[field.get()].1)}</h2>
                {move || alignment.choice()}
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
    let curves = loaded_curves(compared, reports, whole);
    let part = Memo::new(move |_| {
        let time = whole.with(|times| times.first().copied().flatten())?;
        let shown = curves.with(|curves| curves.first().map(|curves| curves.shown_of(time)))?;
        (shown != time).then_some(shown)
    });
    // The readings of the part once more, in shorter slots.
    let details = loaded_curves(compared, reports, Memo::new(move |_| vec![part.get()]));
    let curves = Memo::new(move |_| if part.with(Option::is_some) { details.get() } else { curves.get() });
    let shown = Memo::new(move |_| part.get().map_or_else(|| whole.get(), |part| vec![Some(part)]));
    let late_s = Memo::new(move |_| {
        let start_s = whole.with(|times| times.first().copied().flatten())?.from_s;
        Some((part.get()?.from_s - start_s).unsigned_abs()).filter(|late_s| *late_s > 0)
    });
    let origin = Memo::new(move |_| late_s.get().map(|_| Text::from("first reading")));
    let plot = CurvePlot::new(compared, reports, shown, origin, curves, field);
    let late = |late_s: u64| {
        let text = format!("Readings begin {} after the start of the job.", text::duration(late_s));
        view! { <p class="curves__late">{text}</p> }
    };
    view! {
        <section class="card" aria-label="Readings over the run">
            <div class="overlay-head">
                <h2>{move || format!("{} over the run, mean of the GPUs", FIELDS[field.get()].1)}</h2>
                {move || late_s.get().map(late)}
                <div role="group" aria-label="Metric" class="usage__days">{field_choices(field)}</div>
            </div>
            {plot.view()}
        </section>
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
