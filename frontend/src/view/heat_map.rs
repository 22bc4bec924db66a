//! Every GPU over time, one line each, node by node: the whole job, or the whole cluster, at a glance.

use super::dot::dot;
use super::export::Export;
use super::heat_paint::{Brush, paint};
use super::node_list::health_of;
use super::palette::Palette;
use super::roll::{Entry, Group, pasts, roll};
use super::scope::Scope;
use super::stage::{Hands, Stage};
use super::summary::{legend, metric_menu, summary};
use super::time_bar::{TimeAxis, TimeBar};
use crate::chart::Strips;
use crate::health::{Health, Shape};
use crate::metric::Metric;
use crate::page::{Page, is_stale};
use crate::place::{Place, Tab};
use crate::text;
use crate::time::Time;
use leptos::html::Canvas;
use leptos::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;

/// How many nodes stand above each other before a second column is begun.
const TALLEST: usize = 22;
/// Height that a column should not exceed, in pixels: about half a screen.
const HEIGHT: usize = 440;
/// What a node's name and state take beside its strips, in pixels.
const BESIDE: f64 = 210.0;

/// The heat map of a scope's GPUs.
#[component]
pub fn HeatMap(
    /// The scope.
    scope: Scope,
    /// Whether the scope is seen from afar: then only the past of utilisation is known.
    #[prop(optional)]
    glance: bool,
) -> impl IntoView {
    let (page, time) = (Page::here(), Time::here());
    let groups = Memo::new({
        let scope = scope.clone();
        move |_| roll(&scope)
    });
    let metric = {
        let time = time.clone();
        Memo::new(move |_| if glance { Metric::Util } else { time.metric() })
    };
    let columns = {
        let time = time.clone();
        Memo::new(move |_| {
            let room = ((room(time.width()) / 340.0) as usize).max(1);
            groups.with(Vec::len).div_ceil(TALLEST).clamp(1, room)
        })
    };
    // What is pointed at is read aloud; what changes by itself every second is not.
    let live = {
        let time = time.clone();
        Memo::new(move |_| time.cursor().is_some())
    };
    let label = summary(&page, &time, &scope.scene, groups, metric);
    let gpus =
        Memo::new(move |_| groups.with(|groups| groups.iter().map(|group| group.gpus.len()).sum::<usize>()));
    let export = Export::of(&page, &time, &scope.scene, groups, metric);
    let blocks = {
        let scope = scope.clone();
        move || {
            let (scope, all) = (scope.clone(), columns.get());
            (0..all)
                .map(move |column| {
                    let part = Memo::new(move |_| {
                        let per = groups.with(Vec::len).div_ceil(all).max(1);
                        groups.with(|groups| {
                            groups.iter().skip(column * per).take(per).cloned().collect::<Vec<_>>()
                        })
                    });
                    view! { <Block scope=scope.clone() groups=part metric label columns=all/> }
                })
                .collect_view()
        }
    };
    view! {
        <section class="panel heat-map" aria-label="Every GPU over time">
            <div class="panel__head">
                <h2>"Every GPU" <small>{move || format!("{} · one line each, {}", text::count(gpus.get(), "GPU", "GPUs"), metric.get().title().to_lowercase())}</small></h2>
                {(!glance).then(|| metric_menu(&time))}
                <span class="spring"></span>
                {export.buttons()}
            </div>
            <TimeBar/>
            <div class="heat-map__blocks">{move || blocks()}</div>
            {legend(metric)}
            <p class="read-out" aria-live=move || if live.get() { "polite" } else { "off" }>{move || label.get()}</p>
        </section>
    }
}

/// Width of the page's middle, in pixels.
fn room(width: f64) -> f64 {
    if width > 760.0 { width - 330.0 } else { width - 48.0 }
}

/// Some nodes above each other.
#[component]
fn Block(
    scope: Scope,
    groups: Memo<Vec<Group>>,
    metric: Memo<Metric>,
    label: Signal<String>,
    columns: usize,
) -> impl IntoView {
    let (page, time) = (Page::here(), Time::here());
    let strips = {
        let time = time.clone();
        Memo::new(move |_| {
            let lowest = if time.width() > 760.0 { 16 } else { 13 };
            let counts: Vec<usize> =
                groups.with(|groups| groups.iter().map(|group| group.gpus.len()).collect());
            Strips::within(HEIGHT, &counts, lowest)
        })
    };
    let window = {
        let time = time.clone();
        let width = time.clone();
        time.window(Signal::derive(move || {
            ((room(width.width()) / columns as f64 - BESIDE) as usize).clamp(100, 600)
        }))
    };
    let canvas = NodeRef::<Canvas>::new();
    keep_painted(&page, &scope, groups, metric, strips, window, canvas);
    // Names and states are two columns of one list.
    let beside = |draw: fn(Row) -> AnyView| {
        let (page, scope) = (page.clone(), scope.clone());
        move || {
            let row = |(index, group): (usize, &Group)| {
                let pitch = strips.with(|strips| strips.pitch(index));
                let (page, scope, group) = (page.clone(), scope.clone(), group.clone());
                untrack(|| draw(Row { page, scope, group, metric, pitch }))
            };
            groups.with(|groups| groups.iter().enumerate().map(row).collect_view())
        }
    };
    let (names, states) = (beside(name), beside(state));
    let mark = {
        let time = time.clone();
        move || {
            let pick = time.pick()?;
            let at = groups.with(|groups| line_of(groups, |group, gpu| group.pick(gpu) == pick))?;
            let (top, line) = strips.with(|strips| (strips.tops().nth(at), strips.line()));
            let style = format!("top:{}px;height:{}px", top?, line);
            Some(view! { <i class="heat-map__pick" style=style></i> }.into_any())
        }
    };
    view! {
        <div class="heat-map__block">
            <div class="heat-map__names">{names}</div>
            <Stage label window hands=hands(&page, &time, &scope, groups, strips)>
                <canvas class="heat" node_ref=canvas style:height=move || format!("{}px", strips.with(Strips::height))></canvas>
                {move || mark()}
            </Stage>
            <div class="heat-map__states">{states}</div>
            <span></span>
            <TimeAxis most={if columns > 1 { 3 } else { 5 }}/>
        </div>
    }
}

/// Paints when a step passes, and anew when anything else is another one.
fn keep_painted(
    page: &Page,
    scope: &Scope,
    groups: Memo<Vec<Group>>,
    metric: Memo<Metric>,
    strips: Memo<Strips>,
    window: Memo<crate::chart::Window>,
    canvas: NodeRef<Canvas>,
) {
    let (page, time, scene) = (page.clone(), Time::here(), scope.scene.clone());
    let pasts = pasts(groups);
    let last = RefCell::new(None);
    Effect::new(move || {
        let Some(canvas) = canvas.get() else { return };
        page.settings.theme();
        time.follow_looks();
        let metric = metric.get();
        let scheme = if matches!(metric, Metric::Util | Metric::SmActive) {
            page.settings.scheme()
        } else {
            Default::default()
        };
        let brush = Brush {
            window: window.get(),
            strips: strips.get(),
            palette: Palette::of_tokens(scheme),
            metric,
            pasts: pasts.get(),
        };
        groups.with(|groups| paint(&canvas, &scene, groups, &mut last.borrow_mut(), brush));
    });
}

/// The position of a GPU among the lines.
fn line_of(groups: &[Group], is: impl Fn(&Group, &Entry) -> bool) -> Option<usize> {
    groups
        .iter()
        .flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)))
        .position(|(group, gpu)| is(group, gpu))
}

fn hands(page: &Page, time: &Time, scope: &Scope, groups: Memo<Vec<Group>>, strips: Memo<Strips>) -> Hands {
    let at = move |line: usize| {
        groups.with_untracked(|groups| {
            let mut all = groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)));
            all.nth(line).map(|(group, gpu)| group.pick(gpu))
        })
    };
    let here = {
        let time = time.clone();
        move || {
            let pick = untrack(|| time.pick())?;
            groups.with_untracked(|groups| line_of(groups, |group, gpu| group.pick(gpu) == pick))
        }
    };
    let (over, left, down) = (time.clone(), time.clone(), time.clone());
    let (page, time, job) = (page.clone(), time.clone(), scope.job);
    Hands {
        over: Arc::new(move |_, y| {
            over.point_at_gpu(strips.with_untracked(|strips| strips.at(y)).and_then(at))
        }),
        left: Arc::new(move || left.point_at_gpu(None)),
        down: Arc::new(move |by| {
            let last = strips.with_untracked(Strips::len).saturating_sub(1);
            let line = here().map_or(0, |line| line.saturating_add_signed(by).min(last));
            down.point_at_gpu(at(line));
        }),
        open: Arc::new(move || {
            if let Some(pick) = untrack(|| time.pick()) {
                page.address.go(match job {
                    Some(job) => Place::Job(job, Tab::Node(pick.node)),
                    None => Place::Node(pick.node),
                });
            }
        }),
    }
}

/// A node's lines, as what stands beside them is drawn.
struct Row {
    page: Page,
    scope: Scope,
    group: Group,
    metric: Memo<Metric>,
    pitch: usize,
}

impl Row {
    /// The state of the node, renewed once a second.
    fn health(&self) -> Memo<Arc<Health>> {
        let (page, scene, node) = (self.page.clone(), self.scope.scene.clone(), self.group.node.clone());
        Memo::new(move |_| {
            scene.nodes().track();
            page.second.track();
            health_of(&page, &scene, &node)
        })
    }
}

/// A node's name, once for all its lines; with its shape when it is not well.
fn name(row: Row) -> AnyView {
    let name = row.group.node.name();
    let place = match row.scope.job {
        Some(job) => Place::Job(job, Tab::Node(name.clone())),
        None => Place::Node(name.clone()),
    };
    let (href, words, height) = (row.page.href(&place), name.to_string(), format!("{}px", row.pitch));
    let health = row.health();
    let unwell = move || health.with(|health| (health.shape != Shape::Well).then(|| dot(health)));
    view! { <a href=href style:height=height>{move || unwell()} <span>{words}</span></a> }.into_any()
}

/// What a node is like now: its mean, or the word for what is wrong.
fn state(row: Row) -> AnyView {
    let health = row.health();
    let Row { page, scope, group, metric, pitch } = row;
    let sentence = move || {
        page.second.track();
        let health = health.get();
        // What is worth a look of a card does not stand in the way of the mean; that it is of before does.
        if !matches!(health.shape, Shape::Well | Shape::Attention)
            || is_stale(&page, &scope.scene, &group.node)
        {
            return health.word.clone();
        }
        let metric = metric.get();
        let told: Vec<f32> =
            group.gpus.iter().filter_map(|gpu| group.now(&scope.scene, gpu, metric)).collect();
        text::or_absent(
            (!told.is_empty()).then(|| metric.words(told.iter().sum::<f32>() / told.len() as f32)),
        )
    };
    view! { <span class="num" style:line-height=format!("{pitch}px")>{move || sentence()}</span> }.into_any()
}
