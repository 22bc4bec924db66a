//! A heat map is painted once and then shifted: of what was painted only the newest steps are painted again.

use super::palette::Palette;
use super::roll::Group;
use crate::chart::{Strips, Window};
use crate::fleet::Scene;
use crate::metric::Metric;
use wasm_bindgen::{Clamped, JsCast};
use web_sys::{CanvasRenderingContext2d, HtmlCanvasElement, ImageData};

/// All that decides how a heat map looks, but for its values.
#[derive(Clone, PartialEq)]
pub struct Brush {
    /// The steps.
    pub window: Window,
    /// Where the lines lie.
    pub strips: Strips,
    /// The colours.
    pub palette: Palette,
    /// What is shown.
    pub metric: Metric,
    /// Grows when a past is another one.
    pub pasts: u64,
}

impl Brush {
    /// By how many steps it is later than one that paints all else alike.
    fn ahead_of(&self, older: &Self) -> Option<usize> {
        let alike = self.pasts == older.pasts
            && self.metric == older.metric
            && self.strips == older.strips
            && self.palette == older.palette;
        self.window.ahead_of(&older.window).filter(|_| alike)
    }
}

/// Steps that are painted again after a shift, for nodes do not tell at the same moment.
const LATE: usize = 3;

/// Paints what is new since `last`.
pub fn paint(
    canvas: &HtmlCanvasElement,
    scene: &Scene,
    groups: &[Group],
    last: &mut Option<Brush>,
    brush: Brush,
) {
    let (width, height) = (brush.window.steps(), brush.strips.height().max(1));
    let context = canvas.get_context("2d").ok().flatten().map(|context| context.unchecked_into());
    let Some(context): Option<CanvasRenderingContext2d> = context else { return };
    let ahead =
        last.as_ref().and_then(|last| brush.ahead_of(last)).filter(|_| canvas.width() == width as u32);
    let first = match ahead {
        Some(ahead) => {
            let _ = context.set_global_composite_operation("copy");
            let _ = context.draw_image_with_html_canvas_element(canvas, -(ahead as f64), 0.0);
            width.saturating_sub(ahead + LATE)
        }
        None => {
            canvas.set_width(width as u32);
            canvas.set_height(height as u32);
            0
        }
    };
    let pixels = pixels(scene, groups, &brush, first);
    if let Ok(image) = ImageData::new_with_u8_clamped_array(Clamped(&pixels), (width - first) as u32) {
        let _ = context.put_image_data(&image, first as f64, 0.0);
    }
    *last = Some(brush);
}

/// The pixels of the steps from the `first` on, row by row.
fn pixels(scene: &Scene, groups: &[Group], brush: &Brush, first: usize) -> Vec<u8> {
    let (width, height) = (brush.window.steps() - first, brush.strips.height().max(1));
    let mut pixels = vec![0; width * height * 4];
    let oldest = brush.window.at_ms(first) / brush.window.step_ms();
    let line = brush.strips.line();
    let gpus = groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)));
    for ((group, gpu), top) in gpus.zip(brush.strips.tops()) {
        let marks = group.marks(scene, gpu, brush.metric, &brush.window, first);
        for y in 0..line {
            let row = (top + y) * width * 4;
            for (step, mark) in marks.iter().enumerate() {
                let pixel = brush.palette.pixel(*mark, oldest + step as u64, y, line);
                pixels[row + step * 4..row + step * 4 + 4].copy_from_slice(&pixel);
            }
        }
    }
    pixels
}
