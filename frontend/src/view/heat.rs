//! A heat map shows every GPU of a node over ten minutes, one line a GPU, brighter for busier.

use crate::browser;
use crate::chart::Series;
use crate::lazy::{effect, lazy};
use crate::page::Page;
use crate::scheme::Scheme;
use leptos::html::Canvas;
use leptos::prelude::*;
use wasm_bindgen::{Clamped, JsCast};
use web_sys::{CanvasRenderingContext2d, HtmlCanvasElement, ImageData};

/// The heat map of some GPUs.
#[component]
pub fn Heat(
    /// Utilisation in % of each GPU.
    #[prop(into)]
    rows: Signal<Vec<Series>>,
    /// Whether lines are thin and close, because there are many.
    #[prop(into)]
    dense: Signal<bool>,
    /// What it shows, for a screen reader.
    #[prop(into)]
    label: Signal<String>,
) -> impl IntoView {
    let (page, canvas) = (Page::here(), NodeRef::<Canvas>::new());
    effect(move || {
        let Some(canvas) = canvas.get() else { return };
        // The theme has no signal of its own in the tokens, so it is named here.
        page.settings.theme();
        let palette = Palette::of_tokens(page.settings.scheme());
        rows.with(|rows| paint(&canvas, rows, Thickness::of(dense.get()), &palette));
    });
    let height =
        lazy(move || format!("{}px", rows.with(Vec::len).max(1) * Thickness::of(dense.get()).pitch()));
    view! {
        <canvas
            class="heat"
            node_ref=canvas
            role="img"
            aria-label=lazy(move || label.get())
            style:height=height
        ></canvas>
    }
}

/// The colours of the steps, as the style sheet has them now.
struct Palette {
    scheme: Scheme,
    steps: [[u8; 3]; 4],
}

impl Palette {
    fn of_tokens(scheme: Scheme) -> Self {
        let steps = ["--util-0", "--util-1", "--util-2", "--util-3"];
        Self { scheme, steps: steps.map(|name| rgb(&browser::token(name)).unwrap_or([128; 3])) }
    }

    /// The colour of a value; nothing where there is none. A ramp is smooth, traffic lights are not.
    fn rgba(&self, value: Option<f32>) -> [u8; 4] {
        let Some(util) = value else { return [0; 4] };
        let [r, g, b] = match self.scheme {
            Scheme::Ramp => self.mixed(util),
            _ => self.steps[self.scheme.step(util.round().max(0.0) as u64)],
        };
        [r, g, b, 255]
    }

    /// Between the colours of the steps, which stand at 0, 35, 72 and 100 %.
    fn mixed(&self, util: f32) -> [u8; 3] {
        const STOPS: [f32; 4] = [0.0, 35.0, 72.0, 100.0];
        let right = STOPS.iter().position(|stop| util <= *stop).unwrap_or(3).max(1);
        let (from, to) = (STOPS[right - 1], STOPS[right]);
        let share = ((util - from) / (to - from)).clamp(0.0, 1.0);
        let mix = |a: u8, b: u8| (f32::from(a) + (f32::from(b) - f32::from(a)) * share).round() as u8;
        let (a, b) = (self.steps[right - 1], self.steps[right]);
        [mix(a[0], b[0]), mix(a[1], b[1]), mix(a[2], b[2])]
    }
}

/// How many pixel rows a GPU takes, and how many stay empty below it.
#[derive(Clone, Copy)]
struct Thickness {
    line: usize,
    gap: usize,
}

impl Thickness {
    fn of(dense: bool) -> Self {
        if dense { Self { line: 2, gap: 0 } } else { Self { line: 3, gap: 1 } }
    }

    fn pitch(self) -> usize {
        self.line + self.gap
    }
}

fn paint(canvas: &HtmlCanvasElement, rows: &[Series], thickness: Thickness, palette: &Palette) {
    let (width, height) = (rows.first().map_or(1, Vec::len).max(1), rows.len().max(1) * thickness.pitch());
    let mut pixels = Vec::with_capacity(width * height * 4);
    for row in rows {
        let line: Vec<u8> = row.iter().flat_map(|value| palette.rgba(*value)).collect();
        (0..thickness.line).for_each(|_| pixels.extend_from_slice(&line));
        pixels.resize(pixels.len() + thickness.gap * line.len(), 0);
    }
    pixels.resize(width * height * 4, 0);
    if canvas.width() != width as u32 || canvas.height() != height as u32 {
        canvas.set_width(width as u32);
        canvas.set_height(height as u32);
    }
    let context = canvas.get_context("2d").ok().flatten().map(|context| context.unchecked_into());
    let Some(context): Option<CanvasRenderingContext2d> = context else { return };
    if let Ok(image) = ImageData::new_with_u8_clamped_array(Clamped(&pixels), width as u32) {
        let _ = context.put_image_data(&image, 0.0, 0.0);
    }
}

/// The parts of `#rrggbb`.
fn rgb(token: &str) -> Option<[u8; 3]> {
    let digits = token.strip_prefix('#').filter(|digits| digits.len() == 6)?;
    let part = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    Some([part(0)?, part(2)?, part(4)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_read_from_tokens() {
        assert_eq!(rgb("#2f6f73"), Some([0x2f, 0x6f, 0x73]));
        assert_eq!(rgb("red"), None);
        assert_eq!(rgb("#12345é"), None);
    }

    #[test]
    fn a_gap_is_transparent_and_idle_is_not() {
        let palette = Palette { scheme: Scheme::Ramp, steps: [[1; 3], [2; 3], [3; 3], [4; 3]] };
        assert_eq!(palette.rgba(None), [0; 4]);
        assert_eq!(palette.rgba(Some(0.0)), [1, 1, 1, 255]);
        assert_eq!(palette.rgba(Some(100.0)), [4, 4, 4, 255]);
    }

    #[test]
    fn a_ramp_is_smooth_and_traffic_lights_jump() {
        let steps = [[0; 3], [100; 3], [150; 3], [200; 3]];
        let colour = |scheme, util| Palette { scheme, steps }.rgba(Some(util))[0];
        assert_eq!([0.0, 17.5, 35.0, 100.0].map(|util| colour(Scheme::Ramp, util)), [0, 50, 100, 200]);
        assert_eq!([59.4, 60.0, 84.0].map(|util| colour(Scheme::NvNodeTop, util)), [100, 150, 150]);
    }
}
