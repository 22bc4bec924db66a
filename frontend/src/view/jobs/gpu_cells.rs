//! The cells of a job or node: its GPUs now, or its nodes if it has many GPUs.

use crate::domain::ownership;
use crate::domain::text;
use crate::domain::totals::Totals;
use crate::fleet::{GpuSignals, NodeSignals};
use crate::state::page::{Page, is_stale};
use crate::view::scope::NodeScope;
use leptos::prelude::*;
use nodeglass_protocol::GpuField;

/// Maximum number of GPUs with a cell each; of more, a cell represents a node.
const MAX_CELLS: usize = 64;

/// A cell per GPU of a scope, or per node if there are too many GPUs.
#[component]
pub fn Cells(scope: NodeScope) -> impl IntoView {
    let squares = {
        let scope = scope.clone();
        Memo::new(move |_| squares(&scope))
    };
    let page = Page::from_context();
    let classes = Memo::new(move |_| {
        scope.store.nodes().track();
        page.second.track();
        let scheme = page.settings.scheme();
        let class = |square: &Square| {
            let hue = scheme.class(square.util(&scope));
            let stale = is_stale(&page, &scope.store, square.node());
            if stale { format!("{hue} is-stale") } else { hue.to_owned() }
        };
        squares.with(|squares| squares.iter().map(class).collect::<Vec<_>>())
    });
    let cells = move || {
        let cell = |class: String| view! { <i class=class></i> };
        classes.get().into_iter().map(cell).collect_view()
    };
    let is_per_node = move || squares.with(|squares| matches!(squares.first(), Some(Square::Node(_))));
    let label = move || {
        let (each, is_node) = (squares.with(Vec::len), is_per_node());
        let what = if is_node { ("node", "nodes") } else { ("GPU", "GPUs") };
        (each > 1).then(|| format!("{}, a cell for each", text::count(each, what.0, what.1)))
    };
    // The style sheet hides the cells that do not fit and ends with their number, which only layout knows.
    let count = move || format!("-{}", squares.with(Vec::len));
    view! {
        <span class="cells" class:cells--nodes=is_per_node aria-hidden="true" title=label style:--cells=count>{move || cells()}</span>
    }
}

/// The subject of a cell.
#[derive(Clone, PartialEq)]
enum Square {
    Gpu(NodeSignals, GpuSignals),
    Node(NodeSignals),
}

impl Square {
    fn node(&self) -> &NodeSignals {
        match self {
            Self::Gpu(node, _) | Self::Node(node) => node,
        }
    }

    /// Returns the utilisation in %, of the GPUs that report it.
    fn util(&self, scope: &NodeScope) -> Option<u64> {
        let now = scope.store.node(self.node(), |node| match self {
            Self::Gpu(_, gpu) => {
                let gpu = node.gpus.get(gpu.position()).filter(|gpu| gpu.fault.is_none())?;
                gpu.row.value(GpuField::Util)
            }
            Self::Node(_) => {
                let mut totals = Totals::default();
                ownership::counting_gpus(node, scope.job).for_each(|gpu| totals.add(gpu));
                totals.util_pct()
            }
        });
        now.flatten()
    }
}

fn squares(scope: &NodeScope) -> Vec<Square> {
    let nodes = scope.nodes.get();
    let of_node = |node: &NodeSignals| {
        let node = node.clone();
        scope.job_gpus(&node).into_iter().map(move |gpu| Square::Gpu(node.clone(), gpu))
    };
    let squares: Vec<Square> = nodes.iter().flat_map(of_node).collect();
    if squares.len() > MAX_CELLS {
        return nodes.into_iter().map(Square::Node).collect();
    }
    squares
}
