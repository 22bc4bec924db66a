//! The topology of a node: a picture of it, the paths between its GPUs, and the CPUs near each.

use crate::chart::{Block, TopologyGpu, TopologyPicture, topology_picture};
use crate::domain::text;
use crate::fleet::{NodeSignals, TopicStore};
use leptos::prelude::*;
use nodeglass_protocol::Reading;
use nodeglass_protocol::picture::{GpuPath, NodePicture};

/// A row of the table: a GPU, its paths to the others, its NUMA node and its CPUs.
#[derive(Clone, PartialEq)]
struct Row {
    gpu: String,
    paths: Vec<GpuPath>,
    numa: Option<u32>,
    cpus: String,
}

/// The table of a node with several GPUs, collapsed initially.
#[component]
pub fn Topology(
    /// The store.
    store: TopicStore,
    /// The node.
    node: NodeSignals,
) -> impl IntoView {
    let rows = Memo::new(move |_| {
        node.head().track();
        node.gpus().track();
        store.node(&node, rows).unwrap_or_default()
    });
    move || {
        let rows = rows.get();
        (!rows.is_empty()).then(|| {
            view! {
                <details class="panel links-panel">
                    <summary><b>"GPU topology"</b> " · " {summary(&rows)}</summary>
                    <div class="links__scroll">{picture(&rows)}</div>
                    <div class="links__scroll">{table(&rows)}</div>
                    <dl class="links__legend">{legend(&rows)}</dl>
                </details>
            }
            .into_any()
        })
    }
}

fn rows(node: &NodePicture) -> Vec<Row> {
    let Some(facts) = &node.head.facts else { return Vec::new() };
    let gpus = node.gpus.iter().filter(|gpu| gpu.facts.mig_parent.is_none());
    let row = |(at, gpu): (usize, &nodeglass_protocol::picture::GpuPicture)| Row {
        gpu: gpu.facts.label(),
        paths: facts.topology.get(at).cloned().unwrap_or_default(),
        numa: gpu.facts.numa_node.value().copied(),
        cpus: reading_text(&gpu.facts.cpu_affinity),
    };
    if facts.topology.is_empty() { Vec::new() } else { gpus.enumerate().map(row).collect() }
}

fn reading_text<T: ToString>(reading: &Reading<T>) -> String {
    text::or_absent(reading.value().map(ToString::to_string))
}

/// Returns the name of a path, as `nvidia-smi topo -m` prints it.
fn label(path: GpuPath) -> String {
    if path == GpuPath::Same { "·".to_owned() } else { text::or_absent(path.name().map(Into::into)) }
}

/// Describes a path.
fn meaning(path: GpuPath) -> String {
    match path {
        GpuPath::Same => "the same GPU".to_owned(),
        GpuPath::NvLink(links) => {
            format!("{} NVLinks, directly or through switches: the fastest path", links)
        }
        GpuPath::Internal => "on one board".to_owned(),
        GpuPath::PciSwitch => "through one PCIe switch".to_owned(),
        GpuPath::PciSwitches => "through several PCIe switches".to_owned(),
        GpuPath::HostBridge => "through the PCIe bridge of a CPU".to_owned(),
        GpuPath::NumaNode => "between PCIe bridges of one NUMA node".to_owned(),
        GpuPath::System => "between NUMA nodes, over the link of the CPUs: the slowest path".to_owned(),
        GpuPath::Unknown => "not reported by the driver".to_owned(),
    }
}

/// Returns the distinct paths between different GPUs.
fn distinct_paths(rows: &[Row]) -> Vec<GpuPath> {
    let mut distinct_paths: Vec<GpuPath> = Vec::new();
    for path in rows.iter().flat_map(|row| &row.paths).filter(|path| **path != GpuPath::Same) {
        if !distinct_paths.contains(path) {
            distinct_paths.push(*path);
        }
    }
    distinct_paths
}

/// Summarises the table in one sentence.
fn summary(rows: &[Row]) -> String {
    match distinct_paths(rows).as_slice() {
        [] => "one GPU".to_owned(),
        [one] => format!("all pairs: {}", meaning(*one)),
        several => several.iter().map(|path| label(*path)).collect::<Vec<_>>().join(", "),
    }
}

/// The picture; the table below it says the same.
fn picture(rows: &[Row]) -> Option<AnyView> {
    let gpu = |row: &Row| TopologyGpu { label: row.gpu.clone(), numa: row.numa, paths: row.paths.clone() };
    let TopologyPicture { width, height, gpus, switches, numa, fabric, nvlinks, wires } =
        topology_picture(&rows.iter().map(gpu).collect::<Vec<_>>())?;
    let arcs = nvlinks
        .into_iter()
        .map(|links| view! { <path class="topology__nvlink" d=links.path stroke-width=links.stroke><title>{links.text}</title></path> })
        .collect_view();
    let blocks = |blocks: Vec<Block>, class: &'static str| {
        blocks.into_iter().map(|block| drawn_block(block, class)).collect_view()
    };
    Some(
        view! {
            <svg class="topology" viewBox=format!("0 0 {width} {height}") width=width height=height role="img"
                aria-label=format!("GPU topology: {}; the table below lists all paths", summary(rows))>
                <path class="topology__wire" d=wires></path>
                {arcs}
                {fabric.map(|fabric| drawn_block(fabric, "topology__fabric"))}
                {blocks(gpus, "topology__gpu")}
                {blocks(switches, "topology__switch")}
                {blocks(numa, "topology__numa")}
            </svg>
        }
        .into_any(),
    )
}

fn drawn_block(block: Block, class: &'static str) -> impl IntoView {
    let (x, y) = (block.middle(), block.y + block.height / 2.0);
    view! {
        <g class=class>
            <rect x=block.x y=block.y width=block.width height=block.height rx="3"></rect>
            <text x=x y=y>{block.text}</text>
        </g>
    }
}

fn table(rows: &[Row]) -> AnyView {
    let heads = rows.iter().map(|row| view! { <th scope="col">{row.gpu.clone()}</th> }).collect_view();
    let line = |row: &Row| {
        let cell = |path: &GpuPath| {
            let class = match path {
                GpuPath::NvLink(_) => "num is-near",
                GpuPath::System | GpuPath::Unknown | GpuPath::Same => "num is-far",
                _ => "num",
            };
            view! { <td class=class title=meaning(*path)>{label(*path)}</td> }
        };
        view! {
            <tr>
                <th scope="row">{row.gpu.clone()}</th>
                {row.paths.iter().map(cell).collect_view()}
                <td class="num">{text::or_absent(row.numa.map(|numa| numa.to_string()))}</td>
                <td class="num">{row.cpus.clone()}</td>
            </tr>
        }
    };
    view! {
        <table class="table links" aria-label="GPU topology">
            <thead><tr><th></th> {heads} <th scope="col">"NUMA node"</th> <th scope="col">"nearest CPUs"</th></tr></thead>
            <tbody>{rows.iter().map(line).collect_view()}</tbody>
        </table>
    }
    .into_any()
}

fn legend(rows: &[Row]) -> AnyView {
    distinct_paths(rows)
        .into_iter()
        .map(|path| view! { <dt>{label(path)}</dt> <dd>{meaning(path)}</dd> })
        .collect_view()
        .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(paths: &[GpuPath]) -> Row {
        Row { gpu: "0".to_owned(), paths: paths.to_vec(), numa: None, cpus: String::new() }
    }

    #[test]
    fn a_node_with_uniform_paths_is_described_in_one_sentence() {
        let rows = [row(&[GpuPath::Same, GpuPath::NvLink(18)]), row(&[GpuPath::NvLink(18), GpuPath::Same])];
        assert_eq!(summary(&rows), "all pairs: 18 NVLinks, directly or through switches: the fastest path");
        assert_eq!(summary(&[row(&[GpuPath::Same])]), "one GPU");
    }

    #[test]
    fn every_path_that_occurs_is_explained_once() {
        let rows = [row(&[GpuPath::Same, GpuPath::HostBridge, GpuPath::System, GpuPath::HostBridge])];
        assert_eq!(distinct_paths(&rows), [GpuPath::HostBridge, GpuPath::System]);
        assert_eq!(summary(&rows), "PHB, SYS");
    }

    #[test]
    fn a_node_without_data_has_no_table() {
        let node = NodePicture::new(nodeglass_protocol::NodeName::new("n1").unwrap());
        assert!(rows(&node).is_empty());
    }
}
