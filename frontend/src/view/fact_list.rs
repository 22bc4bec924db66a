//! Groups of facts are drawn one way everywhere: a label, the value, quiet words, a bar where it is a share.

use crate::tell::{Fact, Group, Mood};
use crate::text;
use leptos::prelude::*;

/// Groups of facts; those that say nothing are left out.
pub fn fact_groups(groups: Vec<Group>) -> AnyView {
    let told = groups.into_iter().filter(|group| !group.facts.is_empty() || !group.note.is_empty());
    told.map(group).collect_view().into_any()
}

fn group(group: Group) -> AnyView {
    let facts = group.facts.into_iter().map(fact).collect_view();
    view! {
        <section class="told">
            <h2>{group.title}</h2>
            <p class="told__note">{group.note}</p>
            <dl>{facts}</dl>
        </section>
    }
    .into_any()
}

fn fact(fact: Fact) -> AnyView {
    let (class, mark) = match fact.mood {
        Mood::Plain => ("fact", ""),
        Mood::Absent => ("fact fact--absent", ""),
        Mood::Attention => ("fact fact--attention", "◆ "),
        Mood::Bad => ("fact fact--bad", "▲ "),
    };
    let (share, hue) = fact.bar.unwrap_or((0.0, "fact__none"));
    view! {
        <div class=class>
            <dt>{fact.label}</dt>
            <dd>
                <b>{mark}{fact.value}</b>
                <small>{fact.more}</small>
                <span class=format!("fact__bar {hue}") aria-hidden="true"><i style:--share=text::share(share)></i></span>
            </dd>
        </div>
    }
    .into_any()
}
