//! The picture of a node's topology: its GPUs above the PCIe switches and NUMA nodes that they are attached to, and the
//! NVLinks between them.

use nodeglass_protocol::picture::GpuPath;

/// Width of a GPU's box, the space between two, and the height of a box.
const GPU_WIDTH: f64 = 54.0;
const GAP: f64 = 14.0;
const BOX_HEIGHT: f64 = 26.0;
/// Vertical space between two levels.
const LEVEL: f64 = 18.0;
/// Height of an arc per GPU that it spans.
const ARC_STEP: f64 = 15.0;
/// Margin of the picture.
const MARGIN: f64 = 6.0;
/// Stroke width of an NVLink, and of the most links between two GPUs.
const STROKE: f64 = 1.2;
const MAX_STROKE: f64 = 4.0;

/// A GPU of the picture.
#[derive(Clone, Debug, PartialEq)]
pub struct TopologyGpu {
    /// Its label.
    pub label: String,
    /// Its NUMA node, if the driver states it.
    pub numa: Option<u32>,
    /// Its paths to all GPUs, itself included.
    pub paths: Vec<GpuPath>,
}

/// A box with a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
    /// Text in the middle.
    pub text: String,
}

/// NVLinks between two GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct NvLinks {
    /// Path data of the arc.
    pub path: String,
    /// Stroke width, which grows with the number of links.
    pub stroke: f64,
    /// The connection.
    pub text: String,
}

/// The picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopologyPicture {
    /// Width of the picture.
    pub width: f64,
    /// Height of the picture.
    pub height: f64,
    /// The GPUs.
    pub gpus: Vec<Block>,
    /// PCIe switches that several GPUs share.
    pub switches: Vec<Block>,
    /// NUMA nodes.
    pub numa: Vec<Block>,
    /// The connection of all pairs of GPUs, if all have the same number of NVLinks.
    pub fabric: Option<Block>,
    /// NVLinks between single pairs.
    pub nvlinks: Vec<NvLinks>,
    /// Vertical and horizontal lines as path data: attachments, and the link between NUMA nodes.
    pub wires: String,
}

/// Draws a topology; `None` if there are fewer than two GPUs or paths are missing.
pub fn topology_picture(gpus: &[TopologyGpu]) -> Option<TopologyPicture> {
    if gpus.len() < 2 || gpus.iter().any(|gpu| gpu.paths.len() != gpus.len()) {
        return None;
    }
    let mut order: Vec<usize> = (0..gpus.len()).collect();
    order.sort_by_key(|at| (gpus[*at].numa.is_none(), gpus[*at].numa, *at));
    let uniform = uniform_links(gpus);
    let pairs = if uniform.is_some() { Vec::new() } else { linked_pairs(gpus, &order) };
    let span = pairs.iter().map(|(from, to, _)| to - from).max().unwrap_or(0);
    let top = MARGIN + if uniform.is_some() { BOX_HEIGHT + LEVEL } else { span as f64 * ARC_STEP };
    let x = |place: usize| MARGIN + place as f64 * (GPU_WIDTH + GAP);
    let bar = |first: usize, last: usize, y: f64, text: String| Block {
        x: x(first),
        y,
        width: x(last) + GPU_WIDTH - x(first),
        height: BOX_HEIGHT,
        text,
    };
    let last = order.len() - 1;
    let mut picture = TopologyPicture { width: x(last) + GPU_WIDTH + MARGIN, ..TopologyPicture::default() };
    picture.fabric = uniform.map(|links| bar(0, last, MARGIN, format!("NVLink: {links} between any two")));
    picture.gpus =
        order.iter().enumerate().map(|(place, at)| bar(place, place, top, gpus[*at].label.clone())).collect();
    let runs = |same: &dyn Fn(usize, usize) -> bool| runs(&order, same);
    let switch_top = top + BOX_HEIGHT + LEVEL;
    let is_switched = |a: usize, b: usize| {
        gpus[a].numa == gpus[b].numa && matches!(gpus[a].paths[b], GpuPath::PciSwitch | GpuPath::PciSwitches)
    };
    let switches = runs(&is_switched).into_iter().filter(|(first, last)| first < last);
    picture.switches =
        switches.map(|(first, last)| bar(first, last, switch_top, "PCIe switch".to_owned())).collect();
    let numa_top = if picture.switches.is_empty() { switch_top } else { switch_top + BOX_HEIGHT + LEVEL };
    let name = |(first, last): (usize, usize)| {
        let text = gpus[order[first]].numa.map_or_else(|| "NUMA ?".to_owned(), |numa| format!("NUMA {numa}"));
        bar(first, last, numa_top, text)
    };
    picture.numa = runs(&|a, b| gpus[a].numa == gpus[b].numa).into_iter().map(name).collect();
    picture.nvlinks = pairs
        .iter()
        .map(|(from, to, links)| arc(&picture.gpus[*from], &picture.gpus[*to], *links, to - from))
        .collect();
    picture.height = numa_top + BOX_HEIGHT + MARGIN;
    picture.wires = wires(&picture);
    Some(picture)
}

/// The number of NVLinks between any two GPUs, if it is the same for all.
fn uniform_links(gpus: &[TopologyGpu]) -> Option<u32> {
    let paths = gpus.iter().enumerate().flat_map(|(at, gpu)| {
        gpu.paths.iter().enumerate().filter(move |(other, _)| *other != at).map(|(_, path)| *path)
    });
    let mut distinct: Vec<GpuPath> = paths.collect();
    distinct.dedup();
    match distinct.as_slice() {
        // Two GPUs have one pair, which an arc shows.
        [GpuPath::NvLink(links)] if gpus.len() > 2 => Some(*links),
        _ => None,
    }
}

/// Places of GPUs with NVLinks between them, and how many.
fn linked_pairs(gpus: &[TopologyGpu], order: &[usize]) -> Vec<(usize, usize, u32)> {
    let places = (0..order.len()).flat_map(|from| (from + 1..order.len()).map(move |to| (from, to)));
    let links = |(from, to): (usize, usize)| match gpus[order[from]].paths[order[to]] {
        GpuPath::NvLink(links) => Some((from, to, links)),
        _ => None,
    };
    places.filter_map(links).collect()
}

/// First and last places of neighbours that belong together.
fn runs(order: &[usize], same: &dyn Fn(usize, usize) -> bool) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (place, at) in order.iter().enumerate() {
        match runs.last_mut().filter(|(_, last)| same(order[*last], *at)) {
            Some((_, last)) => *last = place,
            None => runs.push((place, place)),
        }
    }
    runs
}

/// An arc above the GPUs.
fn arc(from: &Block, to: &Block, links: u32, span: usize) -> NvLinks {
    let (left, right, y) = (from.middle(), to.middle(), from.y);
    // The curve reaches half the height of its control points.
    let control = y - span as f64 * ARC_STEP * 4.0 / 3.0;
    NvLinks {
        path: format!("M{left} {y}C{left} {control} {right} {control} {right} {y}"),
        stroke: (STROKE * f64::from(links).sqrt()).min(MAX_STROKE),
        text: format!("{} – {}: {links} NVLinks", from.text, to.text),
    }
}

/// Attaches each GPU to the level below, and connects NUMA nodes.
fn wires(picture: &TopologyPicture) -> String {
    let holds = |outer: &&Block, x: f64| outer.x <= x && x <= outer.x + outer.width;
    let down = |block: &Block, to: f64| format!("M{} {}V{to}", block.middle(), block.y + block.height);
    let mut wires = String::new();
    for gpu in &picture.gpus {
        let below = picture.switches.iter().find(|switch| holds(switch, gpu.middle()));
        let below = below.or_else(|| picture.numa.iter().find(|numa| holds(numa, gpu.middle())));
        wires.extend(below.map(|below| down(gpu, below.y)));
        wires.extend(
            picture
                .fabric
                .as_ref()
                .map(|fabric| format!("M{} {}V{}", gpu.middle(), fabric.y + fabric.height, gpu.y)),
        );
    }
    for switch in &picture.switches {
        wires.extend(picture.numa.first().map(|numa| down(switch, numa.y)));
    }
    for pair in picture.numa.windows(2) {
        let y = pair[0].y + pair[0].height / 2.0;
        wires += &format!("M{} {y}H{}", pair[0].x + pair[0].width, pair[1].x);
    }
    wires
}

impl Block {
    /// Its horizontal middle.
    pub fn middle(&self) -> f64 {
        self.x + self.width / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GPUs of these NUMA nodes with the path that a function states.
    fn gpus(numa: &[u32], path: impl Fn(usize, usize) -> GpuPath) -> Vec<TopologyGpu> {
        let count = numa.len();
        let paths =
            |from| (0..count).map(|to| if from == to { GpuPath::Same } else { path(from, to) }).collect();
        let gpu = |(at, numa): (usize, &u32)| TopologyGpu {
            label: format!("GPU {at}"),
            numa: Some(*numa),
            paths: paths(at),
        };
        numa.iter().enumerate().map(gpu).collect()
    }

    #[test]
    fn all_gpus_behind_nvswitches_share_one_bar() {
        let picture = topology_picture(&gpus(&[0, 0, 1, 1], |_, _| GpuPath::NvLink(18))).unwrap();
        assert_eq!(picture.fabric.unwrap().text, "NVLink: 18 between any two");
        assert!(picture.nvlinks.is_empty() && picture.switches.is_empty());
        assert_eq!(
            picture.numa.iter().map(|numa| numa.text.as_str()).collect::<Vec<_>>(),
            ["NUMA 0", "NUMA 1"]
        );
    }

    #[test]
    fn pairs_with_nvlinks_have_arcs_and_gpus_stand_at_their_numa_node() {
        let bridged = |from: usize, to: usize| match from / 2 == to / 2 {
            true => GpuPath::NvLink(4),
            false => GpuPath::System,
        };
        let picture = topology_picture(&gpus(&[1, 1, 0, 0], bridged)).unwrap();
        let labels: Vec<_> = picture.gpus.iter().map(|gpu| gpu.text.as_str()).collect();
        assert_eq!(labels, ["GPU 2", "GPU 3", "GPU 0", "GPU 1"]);
        let links: Vec<_> = picture.nvlinks.iter().map(|links| links.text.as_str()).collect();
        assert_eq!(links, ["GPU 2 – GPU 3: 4 NVLinks", "GPU 0 – GPU 1: 4 NVLinks"]);
        assert_eq!(picture.wires.matches('H').count(), 1, "one link between the NUMA nodes");
    }

    #[test]
    fn gpus_below_one_switch_are_attached_to_it() {
        let switched = |from: usize, to: usize| match from / 2 == to / 2 {
            true => GpuPath::PciSwitch,
            false => GpuPath::HostBridge,
        };
        let picture = topology_picture(&gpus(&[0; 4], switched)).unwrap();
        assert_eq!((picture.switches.len(), picture.numa.len()), (2, 1));
        assert!(picture.switches[0].width > GPU_WIDTH && picture.numa[0].y > picture.switches[0].y);
        // Four GPUs and two switches.
        assert_eq!(picture.wires.matches('V').count(), 6);
        assert!(picture.gpus.iter().all(|gpu| gpu.x + gpu.width <= picture.width));
    }

    #[test]
    fn paths_that_are_missing_are_not_guessed() {
        let mut two = gpus(&[0, 0], |_, _| GpuPath::System);
        two[1].paths.pop();
        assert_eq!(topology_picture(&two), None);
        assert_eq!(topology_picture(&gpus(&[0], |_, _| GpuPath::System)), None);
    }
}
