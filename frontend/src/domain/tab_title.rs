//! Title and icon of the browser tab: a warning sign, a number, a name, and a coloured symbol.

use crate::domain::attention::{self, Entry};
use crate::domain::compared::heading;
use crate::domain::health;
use crate::domain::job_health;
use crate::domain::job_names;
use crate::domain::ownership;
use crate::domain::route::{JobTab, Route};
use crate::domain::severity::Severity;
use crate::domain::totals::Totals;
use nodeglass_protocol::{JobId, Picture};
use std::sync::Arc;

/// Title and icon of the browser tab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TabTitle {
    /// The title: `⚠ 12 % train-llm · nodeglass`.
    pub title: String,
    /// The severity that the icon shows.
    pub severity: Severity,
}

/// Returns the title of a route. Without a connection, the title states that instead of outdated
/// numbers.
pub fn for_route(
    route: &Route,
    picture: &Picture,
    entries: &[Entry],
    has_link: bool,
    now_ms: u64,
) -> TabTitle {
    let (severity, text) = match route {
        Route::Job(id, tab) => {
            let (severity, text) = for_job(*id, picture, entries, now_ms);
            match tab {
                JobTab::Node(node) => (severity, format!("{text} · {node}")),
                _ => (severity, text),
            }
        }
        Route::Node(name) => {
            let node = picture.node(name);
            let severity = node.map_or(Severity::Pending, |node| {
                let own = Arc::new(health::for_node(node, now_ms));
                attention::node_health_in(own, entries, None, name).severity
            });
            (severity, name.to_string())
        }
        Route::Usage => (attention::worst(entries), "usage".to_owned()),
        Route::Audit => (attention::worst(entries), "audit log".to_owned()),
        Route::Compare(all) => {
            let label_of = |id: JobId| {
                let job = picture.jobs.iter().find(|job| job.id == id);
                job.map_or_else(|| id.to_string(), |job| job.label.to_string())
            };
            (attention::worst(entries), heading(all, label_of).to_lowercase())
        }
        Route::Array(id) => (attention::worst(entries), format!("array {id}")),
        Route::AllJobs | Route::JobLabel(..) | Route::CompareLabels(_) | Route::Nowhere => {
            (attention::worst(entries), worst_job(entries).unwrap_or_default())
        }
    };
    let severity = if has_link { severity } else { Severity::Error };
    let mark = match severity {
        Severity::Warning | Severity::Error => "⚠ ",
        Severity::Pending => "○ ",
        Severity::Ended => "– ",
        Severity::Ok => "",
    };
    let lost = if has_link { "" } else { "link lost · " };
    let between = if text.is_empty() { "" } else { " · " };
    TabTitle { title: format!("{mark}{lost}{text}{between}nodeglass"), severity }
}

/// Returns the title of the login page.
pub fn for_login() -> TabTitle {
    TabTitle { title: "⚠ nodeglass".to_owned(), severity: Severity::Error }
}

/// Returns the job, or machine, that needs attention most: `train-llm: looks hung`.
fn worst_job(entries: &[Entry]) -> Option<String> {
    let mut current = entries.iter().filter(|entry| !entry.is_resolved && !entry.item.is_past);
    let first = current.next()?;
    Some(format!("{}: {}", first.item.subject, first.item.reason))
}

fn for_job(id: JobId, picture: &Picture, entries: &[Entry], now_ms: u64) -> (Severity, String) {
    let Some(job) = picture.jobs.iter().find(|job| job.id == id) else {
        return (Severity::Pending, format!("job {id}"));
    };
    let nodes = ownership::job_nodes(job, picture);
    let own = nodes.iter().map(|node| &picture.nodes[*node]);
    let severity = job_health::for_job(job, own, entries, now_ms).severity;
    let mut totals = Totals::default();
    for node in nodes.iter().map(|node| &picture.nodes[*node]) {
        ownership::counting_gpus(node, Some(id)).for_each(|gpu| totals.add(gpu));
    }
    let name = job_names::within(job);
    match totals.util_pct().filter(|_| job.is_active()) {
        Some(util) => (severity, format!("{util} % {name}")),
        None => (severity, name),
    }
}

/// Returns the icon of a severity as a data URL. Its colours suit dark and light tab bars.
pub fn icon(severity: Severity) -> String {
    let (colour, mark) = match severity {
        Severity::Ok => ("%233fae6d", "<circle cx='8' cy='8' r='5'/>"),
        Severity::Warning => ("%23d9a02b", "<path d='M8 2l6 6-6 6-6-6z'/>"),
        Severity::Error => ("%23e5604d", "<path d='M8 2l6.5 12h-13z'/>"),
        Severity::Pending => ("none", "<circle cx='8' cy='8' r='5' stroke='%23808c9e' stroke-width='2.5'/>"),
        Severity::Ended => ("%23808c9e", "<path d='M2 6.5h12v3H2z'/>"),
    };
    format!(
        "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16' fill='{colour}'>{mark}</svg>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::finding::FindingKind;
    use nodeglass_protocol::job::{Job, JobState};
    use nodeglass_protocol::picture::{GpuPicture, Link, NodePicture};
    use nodeglass_protocol::{Cell, GpuField, NodeName};

    fn picture(util: u32, problem: Option<FindingKind>) -> Picture {
        let name = NodeName::new("n1").unwrap();
        let mut node = NodePicture::new(name.clone());
        node.gpus = vec![GpuPicture::default()];
        node.gpus[0].row.set(GpuField::Util, Cell::steps(util));
        node.head.link = Link::Live;
        node.sampled_at_ms = Some(1_000);
        let mut job = Job::new(JobId(7), "alice".into(), JobState::Running);
        job.name = "train-llm".into();
        job.nodes = vec![name];
        let findings = problem.map(|kind| attention::tests::finding(kind, 7, "n1")).into_iter().collect();
        Picture { at_ms: 1_000, jobs: vec![job], nodes: vec![node], findings, ..Picture::default() }
    }

    fn title(route: &Route, picture: &Picture, has_link: bool) -> String {
        show(route, picture, has_link).title
    }

    fn show(route: &Route, picture: &Picture, has_link: bool) -> TabTitle {
        let mut tracker = attention::Tracker::default();
        tracker.update(attention::all(&picture.jobs, picture), false);
        for_route(route, picture, tracker.entries(), has_link, 1_000)
    }

    #[test]
    fn a_job_shows_its_utilisation_and_a_warning_before_its_name() {
        let route = Route::Job(JobId(7), JobTab::Nodes);
        assert_eq!(title(&route, &picture(97, None), true), "97 % train-llm · nodeglass");
        assert_eq!(
            title(&route, &picture(12, Some(FindingKind::Thermal)), true),
            "⚠ 12 % train-llm · nodeglass"
        );
        assert_eq!(title(&route, &picture(12, None), false), "⚠ link lost · 12 % train-llm · nodeglass");
    }

    #[test]
    fn all_jobs_show_the_severity_of_the_worst() {
        assert_eq!(show(&Route::AllJobs, &picture(5, None), true).severity, Severity::Ok);
        assert_eq!(
            show(&Route::AllJobs, &picture(5, Some(FindingKind::PowerBrake)), true).severity,
            Severity::Warning
        );
        assert_eq!(title(&Route::AllJobs, &Picture::default(), true), "nodeglass");
        let brake = picture(5, Some(FindingKind::PowerBrake));
        let named = title(&Route::AllJobs, &brake, true);
        assert!(named.starts_with("⚠ train-llm: ") && named.ends_with(" · nodeglass"), "{named}");
        assert!(title(&Route::AllJobs, &brake, false).starts_with("⚠ link lost · train-llm: "));
    }

    #[test]
    fn every_severity_has_its_own_icon() {
        let shapes = [Severity::Ok, Severity::Warning, Severity::Error, Severity::Pending, Severity::Ended];
        let icons: std::collections::BTreeSet<_> = shapes.map(icon).into_iter().collect();
        assert_eq!(icons.len(), shapes.len());
    }
}
