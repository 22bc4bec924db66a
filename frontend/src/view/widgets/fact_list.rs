//! Renders groups of facts: label, value, note, and a bar for fractions.

use crate::describe::{Emphasis, Fact, FactGroup};
use crate::domain::text;
use leptos::prelude::*;

/// Groups of facts; empty ones are left out.
pub fn fact_groups(groups: Vec<FactGroup>) -> AnyView {
    let shown = groups.into_iter().filter(|group| !group.facts.is_empty() || !group.note.is_empty());
    shown.map(group).collect_view().into_any()
}

fn group(group: FactGroup) -> AnyView {
    let facts = group.facts.into_iter().map(fact).collect_view();
    view! {
        <section class="facts">
            <h2>{group.title}</h2>
            <p class="facts__note">{group.note}</p>
            <dl>{facts}</dl>
        </section>
    }
    .into_any()
}

fn fact(fact: Fact) -> AnyView {
    let (class, mark) = match fact.emphasis {
        Emphasis::Plain => ("fact", ""),
        Emphasis::Absent => ("fact fact--absent", ""),
        Emphasis::Warning => ("fact fact--attention", "◆ "),
        Emphasis::Error => ("fact fact--bad", "▲ "),
    };
    let (share, hue) = fact.bar.unwrap_or((0.0, "fact__none"));
    view! {
        <div class=class>
            <dt>{fact.label}</dt>
            <dd>
                <b>{mark}{fact.value}</b>
                <small>{fact.note}</small>
                <span class=format!("fact__bar {hue}") aria-hidden="true"><i style:--share=text::share(share)></i></span>
            </dd>
        </div>
    }
    .into_any()
}
