//! A small heat map shows every GPU of a node over ten minutes, one line a GPU, brighter for busier.

use super::palette::Palette;
use super::scope::Scope;
use crate::chart::{Kept, Mark};
use crate::fleet::NodeCell;
use crate::page::Page;
use crate::scheme::Scheme;
use crate::settings::Theme;
use crate::time::Time;
use leptos::html::Canvas;
use leptos::prelude::*;
use std::cell::RefCell;
use wasm_bindgen::{Clamped, JsCast};
use web_sys::{CanvasRenderingContext2d, HtmlCanvasElement, ImageData};

/// How many pixel rows a GPU takes.
const LINE: usize = 2;

/// What was painted last: how, with which colours, by how many GPUs.
#[derive(Default)]
struct Painted {
    kept: Kept,
    looks: Option<(Theme, Scheme, u64)>,
    palette: Option<Palette>,
    lines: usize,
    context: Option<CanvasRenderingContext2d>,
}

/// The heat map of a node's GPUs, and what paints what is new in it.
pub fn heat(page: &Page, scope: &Scope, node: &NodeCell, label: String) -> (AnyView, impl Fn() + use<>) {
    let (page, time, scope, node) = (page.clone(), Time::here(), scope.clone(), node.clone());
    let canvas = NodeRef::<Canvas>::new();
    let lines = untrack(|| scope.count(&node)).max(1);
    let height = format!("{}px", lines * LINE);
    let drawn = view! { <canvas class="heat" node_ref=canvas role="img" aria-label=label style:height=height></canvas> };
    let painted = RefCell::new(Painted::default());
    let write = move || {
        let Some(canvas) = canvas.get_untracked() else { return };
        let looks = (page.settings.theme(), page.settings.scheme(), time.follow_looks());
        paint(&canvas, &mut painted.borrow_mut(), &page, &scope, &node, looks);
    };
    (drawn.into_any(), write)
}

fn paint(
    canvas: &HtmlCanvasElement,
    painted: &mut Painted,
    page: &Page,
    scope: &Scope,
    node: &NodeCell,
    looks: (Theme, Scheme, u64),
) {
    let window = page.window();
    let lines = scope.count(node);
    let same = painted.looks == Some(looks) && painted.lines == lines;
    if !same {
        painted.kept = Kept::default();
    }
    let Some((gone, first)) = painted.kept.go_on(window, node.past().count()) else { return };
    if painted.context.is_none() {
        painted.context = canvas.get_context("2d").ok().flatten().map(|context| context.unchecked_into());
    }
    let palette = match &painted.palette {
        Some(palette) if same => palette,
        _ => painted.palette.insert(Palette::of_tokens(looks.1)),
    };
    let Some(context) = &painted.context else { return };
    let (width, height) = (window.steps(), lines.max(1) * LINE);
    if first > 0 {
        let _ = context.set_global_composite_operation("copy");
        let _ = context.draw_image_with_html_canvas_element(canvas, -(gone as f64), 0.0);
    } else {
        canvas.set_width(width as u32);
        canvas.set_height(height as u32);
        let style = canvas.unchecked_ref::<web_sys::HtmlElement>().style();
        let _ = style.set_property("height", &format!("{height}px"));
    }
    let mut pixels = Vec::with_capacity((width - first) * height * 4);
    for marks in scope.heat(node, &window, first) {
        let line: Vec<u8> = marks.into_iter().flat_map(|mark: Mark| palette.rgba(mark.value())).collect();
        (0..LINE).for_each(|_| pixels.extend_from_slice(&line));
    }
    pixels.resize((width - first) * height * 4, 0);
    if let Ok(image) = ImageData::new_with_u8_clamped_array(Clamped(&pixels), (width - first) as u32) {
        let _ = context.put_image_data(&image, first as f64, 0.0);
    }
    (painted.looks, painted.lines) = (Some(looks), lines);
}
