//! The browser's tab says how the job fares without being looked at: a mark, a number, a name, and a coloured shape.

use crate::health::{self, Shape};
use crate::place::{Place, Tab as JobTab};
use crate::roster;
use crate::totals::Totals;
use nodeglass_protocol::{JobId, Picture};

/// What a tab shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tab {
    /// The title: `⚠ 12 % train-llm · nodeglass`.
    pub title: String,
    /// The shape of the icon.
    pub shape: Shape,
}

/// The tab of a place. Without a link to the relay every number is old, which is what it says then.
pub fn of(place: &Place, picture: &Picture, has_link: bool, now_ms: u64) -> Tab {
    let (shape, words) = match place {
        Place::Job(id, tab) => {
            let (shape, words) = of_job(*id, picture, now_ms);
            match tab {
                JobTab::Node(node) => (shape, format!("{words} · {node}")),
                _ => (shape, words),
            }
        }
        Place::Node(name) => {
            let node = picture.node(name);
            let shape = node.map_or(Shape::Waiting, |node| health::of_node(node, now_ms).shape);
            (shape, name.to_string())
        }
        Place::AllJobs | Place::Nowhere => (of_all(picture, now_ms), String::new()),
    };
    let shape = if has_link { shape } else { Shape::Bad };
    let mark = match shape {
        Shape::Attention | Shape::Bad => "⚠ ",
        Shape::Waiting => "○ ",
        Shape::Ended => "– ",
        Shape::Well => "",
    };
    let lost = if has_link { "" } else { "link lost · " };
    let between = if words.is_empty() { "" } else { " · " };
    Tab { title: format!("{mark}{lost}{words}{between}nodeglass"), shape }
}

/// The tab of a page that shows nothing any more, and will not by itself.
pub fn shut() -> Tab {
    Tab { title: "⚠ nodeglass".to_owned(), shape: Shape::Bad }
}

fn of_job(id: JobId, picture: &Picture, now_ms: u64) -> (Shape, String) {
    let Some(job) = picture.jobs.iter().find(|job| job.id == id) else {
        return (Shape::Waiting, format!("job {id}"));
    };
    let nodes = roster::nodes_of(job, picture);
    let shape = health::of_job(job, nodes.iter().map(|node| &picture.nodes[*node]), now_ms).shape;
    let mut totals = Totals::default();
    for node in nodes.iter().map(|node| &picture.nodes[*node]) {
        roster::counted(node, Some(id)).for_each(|gpu| totals.add(gpu));
    }
    let name = if job.name.is_empty() { format!("job {id}") } else { job.name.to_string() };
    match totals.util_pct().filter(|_| job.is_active()) {
        Some(util) => (shape, format!("{util} % {name}")),
        None => (shape, name),
    }
}

/// The worst of the jobs that run.
fn of_all(picture: &Picture, now_ms: u64) -> Shape {
    let active = picture.jobs.iter().filter(|job| job.is_active());
    let shapes = active.map(|job| {
        let nodes = roster::nodes_of(job, picture);
        health::of_job(job, nodes.into_iter().map(|node| &picture.nodes[node]), now_ms).shape
    });
    shapes.max().unwrap_or(Shape::Well)
}

/// The icon of a shape, as the address of a drawing. The colours are bright enough for dark and light tab bars.
pub fn icon(shape: Shape) -> String {
    let (colour, mark) = match shape {
        Shape::Well => ("%233fae6d", "<circle cx='8' cy='8' r='5'/>"),
        Shape::Attention => ("%23d9a02b", "<path d='M8 2l6 6-6 6-6-6z'/>"),
        Shape::Bad => ("%23e5604d", "<path d='M8 2l6.5 12h-13z'/>"),
        Shape::Waiting => ("none", "<circle cx='8' cy='8' r='5' stroke='%23808c9e' stroke-width='2.5'/>"),
        Shape::Ended => ("%23808c9e", "<path d='M2 6.5h12v3H2z'/>"),
    };
    format!(
        "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16' fill='{colour}'>{mark}</svg>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::job::{Job, JobState};
    use nodeglass_protocol::picture::{GpuPicture, Link, NodePicture};
    use nodeglass_protocol::{Cell, GpuField, NodeName};

    fn picture(util: u32, throttle: u32) -> Picture {
        let name = NodeName::new("n1").unwrap();
        let mut node = NodePicture::new(name.clone());
        node.gpus = vec![GpuPicture::default()];
        node.gpus[0].row.set(GpuField::Util, Cell::steps(util));
        node.gpus[0].row.set(GpuField::Throttle, Cell::steps(throttle));
        node.head.link = Link::Live;
        node.sampled_at_ms = Some(1_000);
        let mut job = Job::new(JobId(7), "alice".into(), JobState::Running);
        job.name = "train-llm".into();
        job.nodes = vec![name];
        Picture { at_ms: 1_000, jobs: vec![job], nodes: vec![node], ..Picture::default() }
    }

    fn title(place: &Place, picture: &Picture, has_link: bool) -> String {
        of(place, picture, has_link, 1_000).title
    }

    #[test]
    fn a_job_says_how_busy_it_is_and_warns_before_its_name() {
        let place = Place::Job(JobId(7), JobTab::Nodes);
        assert_eq!(title(&place, &picture(97, 0), true), "97 % train-llm · nodeglass");
        assert_eq!(title(&place, &picture(12, 0x40), true), "⚠ 12 % train-llm · nodeglass");
        assert_eq!(title(&place, &picture(12, 0), false), "⚠ link lost · 12 % train-llm · nodeglass");
    }

    #[test]
    fn all_jobs_are_as_well_as_the_worst_of_them() {
        assert_eq!(of(&Place::AllJobs, &picture(5, 0), true, 1_000).shape, Shape::Well);
        assert_eq!(of(&Place::AllJobs, &picture(5, 0x80), true, 1_000).shape, Shape::Attention);
        assert_eq!(title(&Place::AllJobs, &Picture::default(), true), "nodeglass");
    }

    #[test]
    fn every_shape_has_an_icon_of_its_own() {
        let shapes = [Shape::Well, Shape::Attention, Shape::Bad, Shape::Waiting, Shape::Ended];
        let icons: std::collections::BTreeSet<_> = shapes.map(icon).into_iter().collect();
        assert_eq!(icons.len(), shapes.len());
    }
}
