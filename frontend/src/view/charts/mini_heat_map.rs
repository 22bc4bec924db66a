//! A small heat map of a node's GPUs over ten minutes, one line per GPU, for a table cell.

use super::colour_map::ColourMap;
use crate::chart::{Point, WindowCache};
use crate::domain::colour_scheme::ColourScheme;
use crate::fleet::NodeSignals;
use crate::state::page::Page;
use crate::state::settings::Theme;
use crate::state::time::Time;
use crate::view::scope::NodeScope;
use leptos::html::Canvas;
use leptos::prelude::*;
use std::cell::RefCell;
use wasm_bindgen::{Clamped, JsCast};
use web_sys::{CanvasRenderingContext2d, HtmlCanvasElement, ImageData};

/// Height of a GPU's line in pixels.
const ROW_PX: usize = 2;

/// State of the last painting.
#[derive(Default)]
struct PaintState {
    cache: WindowCache,
    colours: Option<(Theme, ColourScheme, u64)>,
    palette: Option<ColourMap>,
    lines: usize,
    context: Option<CanvasRenderingContext2d>,
}

/// Creates the heat map of a node's GPUs, and the function that repaints what is new.
pub fn mini_heat_map(
    page: &Page,
    scope: &NodeScope,
    node: &NodeSignals,
    label: String,
) -> (AnyView, impl Fn() + use<>) {
    let (page, time, scope, node) = (page.clone(), Time::from_context(), scope.clone(), node.clone());
    let canvas = NodeRef::<Canvas>::new();
    let lines = untrack(|| scope.count(&node)).max(1);
    let height = format!("{}px", lines * ROW_PX);
    let drawn = view! { <canvas class="heat" node_ref=canvas role="img" aria-label=label style:height=height></canvas> };
    let painted = RefCell::new(PaintState::default());
    let repaint = move || {
        let Some(canvas) = canvas.get_untracked() else { return };
        let colours = (page.settings.theme(), page.settings.scheme(), time.track_colours());
        paint(&canvas, &mut painted.borrow_mut(), &page, &scope, &node, colours);
    };
    (drawn.into_any(), repaint)
}

fn paint(
    canvas: &HtmlCanvasElement,
    painted: &mut PaintState,
    page: &Page,
    scope: &NodeScope,
    node: &NodeSignals,
    colours: (Theme, ColourScheme, u64),
) {
    let window = page.window();
    let lines = scope.count(node);
    let same = painted.colours == Some(colours) && painted.lines == lines;
    if !same {
        painted.cache = WindowCache::default();
    }
    let Some((gone, first)) = painted.cache.advance(window, node.history().count()) else { return };
    if painted.context.is_none() {
        painted.context = canvas.get_context("2d").ok().flatten().map(|context| context.unchecked_into());
    }
    let palette = match &painted.palette {
        Some(palette) if same => palette,
        _ => painted.palette.insert(ColourMap::from_tokens(colours.1)),
    };
    let Some(context) = &painted.context else { return };
    let (width, height) = (window.steps(), lines.max(1) * ROW_PX);
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
    for points in scope.utilisation(node, &window, first) {
        let line: Vec<u8> = points.into_iter().flat_map(|point: Point| palette.rgba(point.value())).collect();
        (0..ROW_PX).for_each(|_| pixels.extend_from_slice(&line));
    }
    pixels.resize((width - first) * height * 4, 0);
    if let Ok(image) = ImageData::new_with_u8_clamped_array(Clamped(&pixels), (width - first) as u32) {
        let _ = context.put_image_data(&image, first as f64, 0.0);
    }
    (painted.colours, painted.lines) = (Some(colours), lines);
}
