//! Draws a plot with the style sheet's colours: the band, the lines above it, and the outliers on top.

use super::plot::Plot;
use crate::chart::value_ticks;
use crate::platform;
use crate::state::time::GpuRef;
use wasm_bindgen::JsCast;
use web_sys::{CanvasRenderingContext2d, HtmlCanvasElement};

/// Draws a plot at the displayed size of its canvas and the resolution of the screen.
pub fn paint(canvas: &HtmlCanvasElement, size: (i32, i32), plot: &Plot, gpu_ref: Option<&GpuRef>, hue: &str) {
    let fine = platform::device_pixel_ratio();
    let (width, height) = (f64::from(size.0), f64::from(size.1));
    canvas.set_width((width * fine) as u32);
    canvas.set_height((height * fine) as u32);
    let context = canvas.get_context("2d").ok().flatten().map(|context| context.unchecked_into());
    let Some(context): Option<CanvasRenderingContext2d> = context else { return };
    let _ = context.scale(fine, fine);
    let sheet = Sheet { context, width, height, plot };
    sheet.grid();
    sheet.gaps();
    sheet.band(hue);
    sheet.extremes(hue);
    sheet.lines(hue);
    sheet.outliers(gpu_ref);
}

struct Sheet<'a> {
    context: CanvasRenderingContext2d,
    width: f64,
    height: f64,
    plot: &'a Plot,
}

impl Sheet<'_> {
    fn x(&self, step: usize) -> f64 {
        (step as f64 + 0.5) / self.plot.window.steps() as f64 * self.width
    }

    /// Leaves 1.5 pixels free above and below, so that no stroke is cut.
    fn y(&self, value: f32) -> f64 {
        let share = f64::from((value / self.plot.top.max(f32::MIN_POSITIVE)).clamp(0.0, 1.0));
        self.height - 1.5 - share * (self.height - 3.0)
    }

    fn grid(&self) {
        self.context.set_fill_style_str(&platform::token("--line-soft"));
        for tick in value_ticks(self.plot.top) {
            self.context.fill_rect(0.0, self.y(tick).round(), self.width, 1.0);
        }
    }

    /// Hatches the steps without any value, unless there cannot be any.
    fn gaps(&self) {
        if self.plot.is_unsupported {
            return;
        }
        let steps = self.plot.window.steps();
        let has_value = |step: usize| {
            self.plot.lines.iter().any(|line| line.values.get(step).is_some_and(Option::is_some))
        };
        let context = &self.context;
        context.set_stroke_style_str(&platform::token("--line"));
        context.set_line_width(1.0);
        let wide = self.width / steps as f64;
        let first = self.plot.window.start_ms() / self.plot.window.step_ms();
        context.begin_path();
        for step in (0..steps).filter(|step| !has_value(*step)) {
            // Every third step by the clock, so that the hatching moves with time.
            if (first + step as u64).is_multiple_of(3) {
                let x = step as f64 * wide;
                context.move_to(x, self.height);
                context.line_to(x + 8.0, 0.0);
            }
        }
        context.stroke();
    }

    fn band(&self, hue: &str) {
        let Some(band) = &self.plot.band else { return };
        let context = &self.context;
        context.set_global_alpha(if self.plot.shows_every_line() { 0.10 } else { 0.22 });
        context.set_fill_style_str(&platform::token(hue));
        let wide = self.width / self.plot.window.steps() as f64;
        for (step, (low, high)) in band.low.iter().zip(&band.high).enumerate() {
            if let (Some(low), Some(high)) = (low, high) {
                let (top, bottom) = (self.y(*high), self.y(*low));
                context.fill_rect(step as f64 * wide, top, wide + 0.3, (bottom - top).max(1.0));
            }
        }
        context.set_global_alpha(1.0);
    }

    /// The range of each line's values within a step.
    fn extremes(&self, hue: &str) {
        if self.plot.lines.len() > 2 {
            return;
        }
        let (context, wide) = (&self.context, self.width / self.plot.window.steps() as f64);
        context.set_global_alpha(0.25);
        context.set_fill_style_str(&platform::token(hue));
        for line in &self.plot.lines {
            for (step, (low, high)) in line.extremes.0.iter().zip(&line.extremes.1).enumerate() {
                if let (Some(low), Some(high)) = (low, high) {
                    let (top, bottom) = (self.y(*high), self.y(*low));
                    context.fill_rect(step as f64 * wide, top, wide + 0.3, (bottom - top).max(1.0));
                }
            }
        }
        context.set_global_alpha(1.0);
    }

    fn lines(&self, hue: &str) {
        let colour = platform::token(hue);
        if self.plot.shows_every_line() {
            let alpha = if self.plot.lines.len() > 4 { 0.55 } else { 0.9 };
            self.plot.lines.iter().for_each(|line| self.line(&line.values, &colour, 1.1, alpha));
        } else if let Some(band) = &self.plot.band {
            self.line(&band.mid, &colour, 1.8, 1.0);
        }
    }

    fn outliers(&self, gpu_ref: Option<&GpuRef>) {
        let dashes = js_sys::Array::of2(&6.0.into(), &3.0.into());
        let _ = self.context.set_line_dash(&dashes);
        for (far, _) in &self.plot.outliers {
            self.line(&self.plot.lines[*far].values, &platform::token("--warn"), 1.5, 1.0);
        }
        let _ = self.context.set_line_dash(&js_sys::Array::new());
        // A single line needs no highlight.
        let gpu_ref = gpu_ref.filter(|_| self.plot.lines.len() > 1);
        if let Some((_, line)) = gpu_ref.and_then(|gpu_ref| self.plot.line_for(gpu_ref)) {
            self.line(&line.values, &platform::token("--accent"), 2.4, 1.0);
        }
    }

    /// Draws a line that is interrupted by gaps; a single point is a dash.
    fn line(&self, values: &[Option<f32>], colour: &str, thick: f64, alpha: f64) {
        let context = &self.context;
        context.set_stroke_style_str(colour);
        context.set_line_width(thick);
        context.set_line_join("round");
        context.set_global_alpha(alpha);
        context.begin_path();
        let mut down = false;
        for (step, value) in values.iter().enumerate() {
            let Some(value) = value else {
                down = false;
                continue;
            };
            let (x, y) = (self.x(step), self.y(*value));
            if down {
                context.line_to(x, y);
            } else {
                context.move_to(x - 0.5, y);
                context.line_to(x + 0.5, y);
            }
            down = true;
        }
        context.stroke();
        context.set_global_alpha(1.0);
    }
}
