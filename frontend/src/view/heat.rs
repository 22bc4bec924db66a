//! A heat map shows every GPU of a node over ten minutes, one line a GPU, brighter for busier.

use super::palette::Palette;
use crate::chart::Series;
use crate::lazy::{effect, lazy};
use crate::markup::view;
use crate::page::Page;
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
