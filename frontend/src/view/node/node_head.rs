//! The head of a node's page outside a job: its state, and the jobs that run there.

use crate::domain::health::Health;
use crate::domain::route::{JobTab, Route};
use crate::domain::severity::Severity;
use crate::domain::text;
use crate::fleet::{NodeSignals, TopicStore};
use crate::state::page::{Page, node_health};
use crate::view::widgets::dot::Dot;
use leptos::prelude::*;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::{JobId, NodeName};

/// The head of a node's page.
#[component]
pub fn NodeHead(
    /// The store.
    store: TopicStore,
    /// The node.
    name: NodeName,
) -> impl IntoView {
    let page = Page::from_context();
    let health = {
        let (page, name) = (page.clone(), name.clone());
        Memo::new(move |_| {
            let Some(cell) = store.cell(&name) else {
                return Health { severity: Severity::Pending, label: "no data yet".to_owned() };
            };
            page.assessment.track();
            cell.head().track();
            Health::clone(&node_health(&page, &store, &cell))
        })
    };
    let state = move || health.with(|health| health.label.clone());
    let overview = {
        let page = page.clone();
        move || if page.has_jobs() { "All jobs" } else { "Machines" }
    };
    let (title, all_jobs) = (name.to_string(), page.href(&Route::AllJobs));
    let job_links = move || job_links(&page, &name);
    view! {
        <div class="head">
            <div class="head__what">
                <div class="head__title">
                    <a class="link" href=all_jobs>{move || overview()}</a> <span class="absent" aria-hidden="true">"›"</span> <h1>{title}</h1>
                </div>
                <p class="meta">
                    <span class="meta__state"><Dot health/> <b>{state}</b></span>
                    <span class="meta__jobs">{job_links}</span>
                </p>
            </div>
        </div>
    }
}

/// Links to the jobs that run on a node.
fn job_links(page: &Page, name: &NodeName) -> AnyView {
    let link = |id: JobId, job_name: String| {
        let href = page.href(&Route::Job(id, JobTab::Node(name.clone())));
        view! { <a class="link" href=href>{job_name}</a> }.into_any()
    };
    let has_jobs = page.has_jobs();
    let jobs: Vec<AnyView> = page.jobs.with(|jobs| {
        let here = jobs.iter().filter(|job| job.is_active() && job.nodes.contains(name));
        let here: Vec<&Job> = here.collect();
        // Tasks of an array have the same name.
        let is_unique = |job: &Job| here.iter().filter(|other| other.name == job.name).count() == 1;
        let name = |job: &Job| {
            if is_unique(job) { job.name.to_string() } else { format!("{} {}", job.name, job.label) }
        };
        here.iter().map(|job| link(job.id, name(job))).collect()
    });
    match jobs.len() {
        0 if !has_jobs => ().into_any(),
        0 => "no job of yours".into_any(),
        count => view! { <span>{text::count(count, "job", "jobs")}":"</span> {jobs} }.into_any(),
    }
}

/// Says which GPUs are not shown, and why the utilisation of divided ones is missing; nothing if neither applies.
#[component]
pub fn GpuNotes(
    /// The store.
    store: TopicStore,
    /// The node.
    node: NodeSignals,
) -> impl IntoView {
    let notes = Memo::new(move |_| {
        node.gpus().track();
        node.head().track();
        store.node(&node, |node| [confinement_note(node), mig_note(node)]).unwrap_or_default()
    });
    let shown = |note: String| view! { <p class="facts__note">{note}</p> }.into_any();
    move || notes.get().map(|note| note.map(shown)).into_iter().flatten().collect_view()
}

/// Returns which GPUs the node's probes see, if SLURM confines them.
fn confinement_note(node: &NodePicture) -> Option<String> {
    let visible = node.head.facts.as_ref()?.confinement().filter(|_| node.head.no_gpu.is_none())?;
    Some(format!("{visible}. The node's device cgroups deny the others."))
}

fn mig_note(node: &NodePicture) -> Option<String> {
    let instances = node.gpus.iter().filter(|gpu| gpu.facts.mig_parent.is_some()).count();
    let is_divided = |uuid| node.gpus.iter().any(|part| part.facts.mig_parent.as_ref() == Some(uuid));
    let divided = node.gpus.iter().filter(|gpu| is_divided(&gpu.facts.uuid)).count();
    (instances > 0).then(|| {
        format!(
            "MIG: {} divided into {}. Utilisation is “–” because the driver does not report it for divided GPUs \
             and their instances.",
            text::count(divided, "GPU is", "GPUs are"),
            text::count(instances, "instance", "instances"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::GpuUuid;
    use nodeglass_protocol::picture::{GpuPicture, NodeFacts, SourceState};

    #[test]
    fn a_node_that_confines_jobs_says_how_many_gpus_are_shown() {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        node.head.facts = Some(NodeFacts::default());
        assert_eq!(confinement_note(&node), None);
        let confined = SourceState::confined("2 of 4 GPUs visible: those of jobs 1, 2".into());
        node.head.facts = Some(NodeFacts { sources: vec![confined], ..NodeFacts::default() });
        let note = confinement_note(&node).unwrap();
        assert!(note.starts_with("2 of 4 GPUs visible: those of jobs 1, 2. The node's"), "{note}");
        node.head.no_gpu = Some("no GPU is visible".into());
        assert_eq!(confinement_note(&node), None, "that is stated instead of the GPUs");
    }

    #[test]
    fn a_divided_gpu_explains_its_missing_utilisation() {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        let mut whole = GpuPicture::default();
        whole.facts.uuid = GpuUuid::new("whole");
        node.gpus = vec![whole.clone()];
        assert_eq!(mig_note(&node), None);
        for part in 0..3 {
            let mut instance = GpuPicture::default();
            instance.facts.uuid = GpuUuid::new(format!("part-{part}"));
            instance.facts.mig_parent = Some(whole.facts.uuid.clone());
            node.gpus.push(instance);
        }
        let note = mig_note(&node).unwrap();
        assert!(note.starts_with("MIG: 1 GPU is divided into 3 instances."), "{note}");
    }
}
