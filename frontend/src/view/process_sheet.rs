//! Everything that is known of one process, in a sheet that the URL names; what takes asking is asked for here.

use super::actions::{Toasts, offers};
use super::chart::Spark;
use super::copy::{commands, copy_button};
use super::fact_list::fact_groups;
use super::sheet::Sheet;
use crate::chart::Series;
use crate::feed::Link;
use crate::fleet::{NodeCell, Scene};
use crate::intent;
use crate::page::Page;
use crate::query::PROCESS;
use crate::tell::{commands as lines, process};
use crate::text;
use leptos::prelude::*;
use nodeglass_protocol::ask::{Answer, Ask, ProcessRef};
use nodeglass_protocol::picture::ProcessPicture;
use nodeglass_protocol::process::ProcessDetail;
use nodeglass_protocol::{NodeName, ProcessField, Reading};
use std::sync::Arc;

/// The fields whose past a sheet gathers while it is open.
const KEPT: [(&str, ProcessField, &str); 4] = [
    ("SM time", ProcessField::Sm, "stroke-util"),
    ("GPU memory", ProcessField::GpuMem, "stroke-mem"),
    ("CPU", ProcessField::Cpu, "stroke-host"),
    ("Memory", ProcessField::Rss, "stroke-host"),
];
/// So many seconds of it.
const SECONDS: usize = 300;
/// The line is drawn over at least so many.
const FEWEST: usize = 60;

/// A process as the URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its node.
    pub node: NodeName,
    /// Itself.
    pub process: ProcessRef,
}

impl Named {
    /// Reads `NODE/PID/STARTED_MS`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let node = parts.next()?.parse().ok()?;
        let process =
            ProcessRef { pid: parts.next()?.parse().ok()?, started_ms: parts.next()?.parse().ok()? };
        parts.next().is_none().then_some(Self { node, process })
    }
}

/// What the node told when it was asked.
#[derive(Clone, Default)]
enum Told {
    #[default]
    Asked,
    Detail(Arc<ProcessDetail>),
    Refused(String),
}

/// The sheet of the process that the URL names, if it names one.
#[component]
pub fn ProcessSheet() -> impl IntoView {
    let page = Page::here();
    let named = {
        let text = page.address.query(PROCESS);
        Memo::new(move |_| Named::parse(&text.get()?))
    };
    move || named.get().map(|named| open(&page, named))
}

fn open(page: &Page, named: Named) -> AnyView {
    let address = page.address.clone();
    let close = Arc::new(move || address.set_query(PROCESS, None));
    let found: Memo<Option<(Scene, NodeCell)>> = {
        let (page, name) = (page.clone(), named.node.clone());
        Memo::new(move |_| {
            let scene = page.fleet.detail()?;
            let node = scene.cell(&name)?;
            Some((scene, node))
        })
    };
    let process: Memo<Option<ProcessPicture>> = {
        let named = named.clone();
        Memo::new(move |_| {
            let (scene, node) = found.get()?;
            node.processes().track();
            scene.node(&node, |node| node.processes.iter().find(|process| is(process, &named)).cloned())?
        })
    };
    let keys = {
        let (page, named) = (page.clone(), named.clone());
        Arc::new(move |key: &str| {
            let Some(process) = process.get_untracked().filter(|process| is_ours(&page, process)) else {
                return;
            };
            let intents = intent::of_process(&process, &named.node);
            if let Some((_, intent)) = intents.into_iter().find(|(its, _)| *its == key) {
                page.intend(intent);
            }
        })
    };
    let title = {
        let named = named.clone();
        let name = move || {
            let process = process.get()?;
            process.facts.command.value().map(|command| text::program(command.as_str()).to_owned())
        };
        move || format!("{} · {}", name().unwrap_or_else(|| "process".to_owned()), named.process.pid)
    };
    let gone = move || {
        process.get().is_none().then_some("It is not among the processes on these GPUs now: it has ended, or this page does not show its node.")
    };
    let label = format!("Process {}", named.process.pid);
    let (actions, sparks) = (actions(page, process, &named), sparks(page, process));
    let (facts, where_) = (facts(page, process), named.node.to_string());
    // Only the owner may ask the node.
    let asked = {
        let page = page.clone();
        move || page.is_owner().then(|| asked(&page, process, named.clone()))
    };
    view! {
        <Sheet class="sheet" label close keys=Some(keys)>
            <h2 class="sheet__title">{move || title()}</h2>
            <p class="sheet__where">{where_}</p>
            <p class="told__note">{move || gone()}</p>
            <Toasts/>
            {actions}
            {sparks}
            <div class="told-columns">{facts}</div>
            {move || asked()}
        </Sheet>
    }
    .into_any()
}

fn is(process: &ProcessPicture, named: &Named) -> bool {
    let started = process.facts.started_ms.value();
    process.facts.pid == named.process.pid
        && started.is_none_or(|started| *started == named.process.started_ms)
}

/// Signals are for one's own processes, where the relay lets act at all.
fn is_ours(page: &Page, process: &ProcessPicture) -> bool {
    let user = page.fleet.welcome().map(|welcome| welcome.user.clone());
    page.may_act() && user.as_ref() == process.facts.user.value()
}

fn actions(page: &Page, process: Memo<Option<ProcessPicture>>, named: &Named) -> AnyView {
    let (page, node) = (page.clone(), named.node.clone());
    // Buttons are drawn anew only when they would be others.
    let offered = {
        let page = page.clone();
        Memo::new(move |_| {
            let process = process.get().filter(|process| is_ours(&page, process));
            process.map(|process| intent::of_process(&process, &node)).unwrap_or_default()
        })
    };
    (move || offers(&page, offered.get())).into_any()
}

/// Lines of the readings since the sheet was opened, each on its own scale.
fn sparks(page: &Page, process: Memo<Option<ProcessPicture>>) -> AnyView {
    let past: RwSignal<Vec<[Option<f32>; KEPT.len()]>> = RwSignal::new(Vec::new());
    let second = page.second;
    Effect::new(move || {
        second.track();
        let process = process.get_untracked();
        let value =
            |field| process.as_ref().and_then(|process| process.row.value(field)).map(|value| value as f32);
        let now = KEPT.map(|(_, field, _)| value(field));
        past.update(|past| {
            past.push(now);
            let surplus = past.len().saturating_sub(SECONDS);
            past.drain(..surplus);
        });
    });
    let one = |(index, (title, field, hue)): (usize, (&'static str, ProcessField, &'static str))| {
        let series = Memo::new(move |_| past.with(|past| series(past, index, field)));
        view! { <div class="mini"><span>{title}</span><Spark series hue/></div> }
    };
    view! { <div class="minis" aria-hidden="true">{KEPT.into_iter().enumerate().map(one).collect_view()}</div> }.into_any()
}

/// One column of what was gathered, ending at now, as shares of 100 % or of its own largest value.
fn series(past: &[[Option<f32>; KEPT.len()]], index: usize, field: ProcessField) -> Series {
    let values = past.iter().map(|row| row[index]);
    let largest = values.clone().flatten().fold(0.0f32, f32::max);
    let whole = if field == ProcessField::Sm { 100.0 } else { (largest * 1.1).max(1.0) };
    let empty = std::iter::repeat_n(None, FEWEST.saturating_sub(past.len()));
    empty.chain(values.map(|value| value.map(|value| value / whole))).collect()
}

fn facts(page: &Page, process: Memo<Option<ProcessPicture>>) -> AnyView {
    let page = page.clone();
    let groups = move || {
        let process = process.get()?;
        let started_s = process.facts.started_ms.value().map(|ms| (ms / 1_000).cast_signed());
        let ran = started_s.map(|started| page.wall_s().saturating_sub(started).max(0).cast_unsigned());
        Some(fact_groups(process::groups(&process, ran)))
    };
    groups.into_any()
}

/// What only the node can tell: the whole command line, files, family, and the environment if it is wanted.
fn asked(page: &Page, process: Memo<Option<ProcessPicture>>, named: Named) -> AnyView {
    let told = RwSignal::new(Told::default());
    let ask = {
        let (page, named) = (page.clone(), named.clone());
        move |environment: bool| {
            let page = page.clone();
            let ask = Ask::Process { node: named.node.clone(), process: named.process, environment };
            leptos::task::spawn_local(async move {
                let answer = match page.ask(ask).await {
                    Answer::Process(detail) => Told::Detail(Arc::from(detail)),
                    Answer::Refused(why) => Told::Refused(why.to_string()),
                    Answer::Done(_) | Answer::Tail(_) | Answer::Share(_) => {
                        Told::Refused("The relay answered something else.".to_owned())
                    }
                };
                // The sheet may be closed by now.
                told.try_set(answer);
            });
        }
    };
    // By a link one may be here before the relay is.
    let (first, feed) = (ask.clone(), page.feed.clone());
    let was_asked = StoredValue::new(false);
    Effect::new(move || {
        if feed.link() == Link::Live && !was_asked.get_value() {
            was_asked.set_value(true);
            first(false);
        }
    });
    let job = Memo::new(move |_| process.get().and_then(|process| process.facts.job));
    let pid = named.process.pid;
    let detail = move || match told.get() {
        Told::Asked => view! { <p class="told__note">"Asking the node …"</p> }.into_any(),
        Told::Refused(why) => {
            let again = ask.clone();
            view! {
                <div class="notice notice--attention"><span>"◆"</span><div>{why}</div></div>
                <button class="btn" on:click=move |_| again(false)>"Ask again"</button>
            }
            .into_any()
        }
        Told::Detail(detail) => drawn(&detail, pid, ask.clone()),
    };
    let tools = move || commands(lines::of_process(pid, &named.node, job.get()));
    view! {
        {move || detail()}
        <h2 class="told__head">"Look into it"</h2>
        {move || tools()}
    }
    .into_any()
}

fn drawn(detail: &ProcessDetail, pid: u32, ask: impl Fn(bool) + Clone + Send + 'static) -> AnyView {
    let branch = |branch: process::Branch| {
        view! {
            <li class:tree__self=branch.is_self style:--depth=branch.depth.to_string()>
                <span class="num">{branch.pid.to_string()}</span> " " <code>{branch.command}</code>
            </li>
        }
    };
    let tree = process::family(detail, pid).into_iter().map(branch).collect_view();
    let copy = detail
        .args
        .value()
        .map(|args| view! { <p class="told__note">"The command line: " {copy_button(args.to_string())}</p> });
    let environment = match &detail.environment {
        Reading::Value(variables) => {
            let variable = |variable: &nodeglass_protocol::process::Variable| {
                view! { <li><b>{variable.name.to_string()}</b> "=" {variable.value.to_string()}</li> }
            };
            view! { <ul class="env">{variables.iter().map(variable).collect_view()}</ul> }.into_any()
        }
        Reading::Failed(why) if why.is_hidden() => {
            view! { <p class="told__note">{why.to_string()}</p> }.into_any()
        }
        Reading::Failed(why) => view! { <p class="told__note">{format!("failed: {why}")}</p> }.into_any(),
        Reading::Unsupported => view! { <p class="told__note">"not offered"</p> }.into_any(),
        Reading::NotYet => view! {
            <button class="btn" on:click=move |_| ask(true)>"Show its environment"</button>
            " " <small class="told__note">"values that look like secrets are masked"</small>
        }
        .into_any(),
    };
    view! {
        <div class="told-columns told-columns--one">{fact_groups(vec![process::detail(detail)])}</div>
        {copy}
        <h2 class="told__head">"Family"</h2>
        <ul class="tree">{tree}</ul>
        <h2 class="told__head">"Environment"</h2>
        {environment}
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_in_the_url_is_node_pid_and_start() {
        let named = Named::parse("gpu-01/4711/1760000000000").unwrap();
        assert_eq!((named.node.as_str(), named.process.pid), ("gpu-01", 4711));
        for text in ["", "n1", "n1/4711", "n1/x/1", "-o/1/2", "n1/1/2/3"] {
            assert_eq!(Named::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_was_gathered_ends_at_now_and_leaves_gaps() {
        let past = [[Some(50.0), Some(10.0), None, None], [None, Some(20.0), None, None]];
        let sm = series(&past, 0, ProcessField::Sm);
        assert_eq!((sm.len(), sm[FEWEST - 2], sm[FEWEST - 1]), (FEWEST, Some(0.5), None));
        assert!(series(&past, 1, ProcessField::GpuMem)[FEWEST - 1].is_some_and(|share| share > 0.9));
    }
}
