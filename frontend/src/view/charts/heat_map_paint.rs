//! Paints a heat map incrementally: shifts the canvas and paints only the newest steps.

use super::colour_map::ColourMap;
use super::gpu_groups::NodeGroup;
use crate::chart::{Strips, Window};
use crate::domain::metric::GraphMetric;
use crate::fleet::TopicStore;
use wasm_bindgen::{Clamped, JsCast};
use web_sys::{CanvasRenderingContext2d, HtmlCanvasElement, ImageData};

/// Everything that determines a heat map besides its values.
#[derive(Clone, PartialEq)]
pub struct Brush {
    /// The steps.
    pub window: Window,
    /// The layout.
    pub strips: Strips,
    /// The colours.
    pub palette: ColourMap,
    /// The metric.
    pub metric: GraphMetric,
    /// Grows when a history is replaced.
    pub history_revision: u64,
}

impl Brush {
    /// Returns by how many steps it is later than an otherwise equal one.
    fn ahead_of(&self, older: &Self) -> Option<usize> {
        let alike = self.history_revision == older.history_revision
            && self.metric == older.metric
            && self.strips == older.strips
            && self.palette == older.palette;
        self.window.ahead_of(&older.window).filter(|_| alike)
    }
}

/// Steps that are painted again after a shift, because samples of different nodes arrive at different times.
const REPAINTED_STEPS: usize = 3;

/// Width of a line in pixels of the canvas, at least: hatching would be coarse in the few cells of a short time.
const MIN_WIDTH: usize = 500;

/// Paints what is new since `last`.
pub fn paint(
    canvas: &HtmlCanvasElement,
    store: &TopicStore,
    groups: &[NodeGroup],
    last: &mut Option<Brush>,
    brush: Brush,
) {
    let (steps, height) = (brush.window.steps(), brush.strips.height().max(1));
    let cell = cell_width(steps);
    let width = steps * cell;
    let context = canvas.get_context("2d").ok().flatten().map(|context| context.unchecked_into());
    let Some(context): Option<CanvasRenderingContext2d> = context else { return };
    let ahead =
        last.as_ref().and_then(|last| brush.ahead_of(last)).filter(|_| canvas.width() == width as u32);
    let first = match ahead {
        Some(ahead) => {
            let _ = context.set_global_composite_operation("copy");
            let _ = context.draw_image_with_html_canvas_element(canvas, -((ahead * cell) as f64), 0.0);
            steps.saturating_sub(ahead + REPAINTED_STEPS)
        }
        None => {
            canvas.set_width(width as u32);
            canvas.set_height(height as u32);
            0
        }
    };
    let pixels = pixels(store, groups, &brush, first);
    if let Ok(image) = ImageData::new_with_u8_clamped_array(Clamped(&pixels), (width - first * cell) as u32) {
        let _ = context.put_image_data(&image, (first * cell) as f64, 0.0);
    }
    *last = Some(brush);
}

/// Returns the width of a cell, in pixels of the canvas.
fn cell_width(steps: usize) -> usize {
    MIN_WIDTH.div_ceil(steps.max(1))
}

/// Returns the pixels of the steps from `first` on, row by row.
fn pixels(store: &TopicStore, groups: &[NodeGroup], brush: &Brush, first: usize) -> Vec<u8> {
    let (steps, height) = (brush.window.steps() - first, brush.strips.height().max(1));
    let cell = cell_width(brush.window.steps());
    let width = steps * cell;
    let mut pixels = vec![0; width * height * 4];
    // Hatching counts pixels of the canvas.
    let oldest = brush.window.at_ms(first) / brush.window.step_ms() * cell as u64;
    let line = brush.strips.thickness();
    let gpus = groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)));
    for ((group, gpu), top) in gpus.zip(brush.strips.tops()) {
        let points = group.points(store, gpu, brush.metric, &brush.window, first);
        for y in 0..line {
            let row = (top + y) * width;
            for x in 0..points.len().min(steps) * cell {
                let pixel = brush.palette.pixel(points[x / cell], oldest + x as u64, y, line);
                pixels[(row + x) * 4..(row + x + 1) * 4].copy_from_slice(&pixel);
            }
        }
    }
    pixels
}
