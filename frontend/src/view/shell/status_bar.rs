//! The status bar: connection, freshness of the nodes, and cost of the relay.

use crate::domain::health::{Freshness, freshness};
use crate::domain::text;
use crate::net::LinkState;
use crate::platform;
use crate::state::page::Page;
use crate::view::shell::transport::Transport;
use crate::view::widgets::actions;
use leptos::prelude::*;
use nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
use nodeglass_protocol::picture::{JobsHealth, LauncherStatus};
use nodeglass_protocol::replay::ReplayStatus;
use nodeglass_protocol::request::RetryTarget;

/// The status bar.
#[component]
pub fn StatusBar() -> impl IntoView {
    view! {
        <footer class="foot">
            <LinkState/>
            <Transport/>
            <Nodes/>
            <Viewers/>
            <JobsAge/>
            <Launcher/>
            <TimeZone/>
        </footer>
    }
}

/// The state of the connection. Only its changes are announced to screen readers.
#[component]
fn LinkState() -> impl IntoView {
    let page = Page::from_context();
    let (replay, feed) = (page.replay(), page.feed.clone());
    let is_outdated = Memo::new(move |_| {
        let (overview, now_ms) = (page.fleet.overview(), page.now_ms());
        overview.nodes().track();
        overview.read(|picture| is_outdated(picture.nodes.iter().map(|node| freshness(node, now_ms))))
    });
    let state = Memo::new(move |_| match feed.link() {
        LinkState::Live if replay.with(Option::is_some) => {
            ("foot__link", replay.with(|replay| playback_state(replay.as_ref())))
        }
        LinkState::Live if is_outdated.get() => ("foot__link is-bad", "▲ no current readings"),
        LinkState::Live => ("foot__link is-live", "● live"),
        LinkState::Starting | LinkState::Connecting => ("foot__link", "○ connecting"),
        LinkState::NoKey => ("foot__link is-bad", "▲ no key"),
        LinkState::Lost(_) => ("foot__link is-bad", "▲ connection lost, retrying"),
        LinkState::Stopped(_) => ("foot__link is-bad", "▲ disconnected"),
    });
    view! { <span class=move || state.get().0 role="status" aria-live="polite">{move || state.get().1}</span> }
}

/// Returns whether there were readings, and all of them are outdated: a connection alone does not make a view live.
fn is_outdated(nodes: impl Iterator<Item = Freshness>) -> bool {
    let mut read =
        nodes.filter(|freshness| !matches!(freshness, Freshness::Never | Freshness::Last)).peekable();
    read.peek().is_some() && read.all(|freshness| freshness != Freshness::Fresh)
}

/// Returns the state of a recording that is being played.
fn playback_state(replay: Option<&ReplayStatus>) -> &'static str {
    match replay {
        Some(replay) if replay.speed_pct == 0 && replay.at_ms >= replay.to_ms => "◇ end of recording",
        Some(replay) if replay.speed_pct == 0 => "◇ recording, paused",
        _ => "◆ recording",
    }
}

#[component]
fn Nodes() -> impl IntoView {
    let page = Page::from_context();
    let overview = page.fleet.overview().clone();
    let cost = Memo::new({
        let page = page.clone();
        move |_| {
            page.fleet.overview().relay().track();
            cost(&page)
        }
    });
    let sentence = move || {
        let now_ms = page.now_ms();
        overview.nodes().track();
        overview.read(|picture| {
            let fresh =
                picture.nodes.iter().filter(|node| freshness(node, now_ms) == Freshness::Fresh).count();
            let newest = picture.nodes.iter().filter_map(|node| node.sampled_at_ms).max();
            let age = newest.map(|at| format!(", newest sample {}", text::age(now_ms.saturating_sub(at))));
            match picture.nodes.len() {
                0 => String::new(),
                // Without a connection, freshness is unknown.
                all if !page.feed.is_live() => text::count(all, "node", "nodes"),
                all => format!(
                    "{fresh} of {} up to date{}",
                    text::count(all, "node", "nodes"),
                    age.unwrap_or_default()
                ),
            }
        })
    };
    view! { <span class="num-prose" title=cost>{move || sentence()}</span> }
}

#[component]
fn Viewers() -> impl IntoView {
    let overview = Page::from_context().fleet.overview().clone();
    let sentence = move || {
        overview.relay().track();
        match overview.read(|picture| picture.relay.viewers) {
            0 | 1 => String::new(),
            viewers => format!("{} connected", text::count(viewers as usize, "viewer", "viewers")),
        }
    };
    view! { <span class="hide-s">{move || sentence()}</span> }
}

/// The age of a stale job list, and the reason.
#[component]
fn JobsAge() -> impl IntoView {
    let page = Page::from_context();
    let (overview, shown) = (page.fleet.overview().clone(), page.clone());
    let stale = Memo::new(move |_| {
        overview.relay().track();
        match overview.read(|picture| picture.relay.jobs.clone()) {
            JobsHealth::Stale { last_ms, reason, retry_at_ms } => {
                let age = last_ms.map(|at| text::span(page.now_ms().saturating_sub(at) / 1_000));
                let age =
                    age.map_or("SLURM has not responded yet".to_owned(), |age| format!("job list {age} old"));
                Some((age, reason.to_string(), next_try(retry_at_ms, page.now_ms())))
            }
            _ => None,
        }
    });
    move || {
        stale.get().map(|(age, why, next)| {
            let button = actions::retry(&shown, RetryTarget::Jobs, "Retry now");
            view! { <span class="foot__stale" title=why>"◆ " {age} ", " {next} " " {button}</span> }
        })
    }
}

/// Formats when something is retried.
fn next_try(retry_at_ms: u64, now_ms: u64) -> String {
    match retry_at_ms.saturating_sub(now_ms).div_ceil(1_000) {
        0 => "retrying now".to_owned(),
        wait => format!("next attempt in {}", text::span(wait)),
    }
}

/// The launcher of probes, if it is not the one that is tried first, and the reason.
#[component]
fn Launcher() -> impl IntoView {
    let overview = Page::from_context().fleet.overview().clone();
    let selected = Memo::new(move |_| {
        overview.relay().track();
        overview.read(|picture| picture.relay.launcher.clone())
    });
    move || {
        let launcher = launcher_text(&selected.get()?)?;
        let title = launcher.clone();
        Some(view! { <span class="hide-s foot__launcher" title=title>{launcher}</span> })
    }
}

/// The time zone of the page and, if it differs, that of the login node, which log lines and SLURM's output use.
#[component]
fn TimeZone() -> impl IntoView {
    let page = Page::from_context();
    // It changes with daylight saving time, and with a laptop that travels.
    let zone = Memo::new(move |_| {
        page.step.track();
        let of_cluster = page.fleet.welcome().map(|welcome| welcome.utc_offset_min);
        zone_text(platform::utc_offset_min(), of_cluster)
    });
    view! {
        <span class="hide-s foot__zone" title="This page shows times in the time zone of this browser. Logs, SLURM's commands and notices have that of the cluster.">
            {move || zone.get()}
        </span>
    }
}

/// Formats the offsets of browser and cluster from UTC in minutes: `times in UTC+5:30`, `times in UTC+9, logs in UTC+1`.
fn zone_text(offset_min: i32, of_cluster_min: Option<i32>) -> String {
    let zone = platform::utc_text(offset_min);
    match of_cluster_min.filter(|of_cluster_min| *of_cluster_min != offset_min) {
        Some(of_cluster_min) => format!("times in {zone}, logs in {}", platform::utc_text(of_cluster_min)),
        None => format!("times in {zone}"),
    }
}

/// Returns how probes are started; `None` for the built-in SSH, and where there is nothing to choose.
fn launcher_text(launcher: &LauncherStatus) -> Option<String> {
    let LauncherStatus { name, reason } = launcher;
    match (reason, name.as_str()) {
        (Some(reason), _) => Some(format!("probes started with {name}: {reason}")),
        // The user who started the relay chose it.
        (None, "openssh" | "srun") => Some(format!("probes started with {name}")),
        (None, _) => None,
    }
}

/// The relay's CPU use so far: `relay: 11 s CPU in 37 min`.
fn cost(page: &Page) -> Option<String> {
    let cpu_ms = page.fleet.overview().read(|picture| picture.relay.cpu_ms);
    let up_s = page.fleet.relay_ms(platform::now_ms()).saturating_sub(CLOCK_STARTS_AT_MS) / 1_000;
    (cpu_ms > 0).then(|| format!("relay: {} CPU in {}", text::age(cpu_ms), text::span(up_s)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_without_a_current_node_is_not_live() {
        let is_outdated = |all: &[Freshness]| is_outdated(all.iter().copied());
        assert!(is_outdated(&[Freshness::Stale(9_100), Freshness::Stale(9_100), Freshness::Last]));
        assert!(!is_outdated(&[Freshness::Stale(9_100), Freshness::Fresh]));
        // Nothing was read yet, or all jobs have ended.
        assert!(!is_outdated(&[]) && !is_outdated(&[Freshness::Never, Freshness::Last]));
    }

    #[test]
    fn a_recording_says_whether_it_is_paused_or_over() {
        let status = |speed_pct, at_ms| ReplayStatus { to_ms: 9_000, at_ms, speed_pct, ..Default::default() };
        let states = [status(100, 5_000), status(0, 5_000), status(0, 9_000)];
        assert_eq!(
            states.map(|status| playback_state(Some(&status))),
            ["◆ recording", "◇ recording, paused", "◇ end of recording"]
        );
    }

    #[test]
    fn a_stale_job_list_shows_when_it_is_polled_again() {
        assert_eq!(next_try(90_000, 50_000), "next attempt in 40 s");
        assert_eq!([next_try(50_000, 50_000), next_try(1, 50_000)], ["retrying now"; 2]);
    }

    #[test]
    fn the_time_zone_is_stated_by_its_offset() {
        let shown = [0, 60, 540, 330, -210].map(|offset_min| zone_text(offset_min, None));
        let expected = ["", "+1", "+9", "+5:30", "−3:30"].map(|offset| format!("times in UTC{offset}"));
        assert_eq!(shown, expected);
        assert_eq!(zone_text(540, Some(540)), "times in UTC+9");
        assert_eq!(zone_text(540, Some(-210)), "times in UTC+9, logs in UTC−3:30");
    }

    #[test]
    fn the_launcher_is_stated_unless_it_is_the_built_in_ssh() {
        let text = |name: &str, reason: Option<&str>| {
            launcher_text(&LauncherStatus { name: name.into(), reason: reason.map(Into::into) })
        };
        let jump = "n1 is reached through gate, which the built-in SSH cannot do";
        let expected = format!("probes started with openssh: {jump}");
        assert_eq!(text("openssh", Some(jump)), Some(expected));
        assert_eq!(text("srun", None).as_deref(), Some("probes started with srun"));
        for name in ["ssh2", "local", "scripted"] {
            assert_eq!(text(name, None), None);
        }
    }
}
