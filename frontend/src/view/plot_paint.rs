//! A plot is drawn with the style sheet's colours: the band below, the lines above it, what stands out on top.

use super::plot::Plot;
use crate::browser;
use crate::chart::value_ticks;
use crate::time::Pick;
use wasm_bindgen::JsCast;
use web_sys::{CanvasRenderingContext2d, HtmlCanvasElement};

/// Draws a plot as large as its canvas is shown, as fine as the screen is.
pub fn paint(canvas: &HtmlCanvasElement, size: (i32, i32), plot: &Plot, pick: Option<&Pick>, hue: &str) {
    let fine = browser::fineness();
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
    sheet.lines(hue);
    sheet.standing_out(pick);
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

    /// A pixel and a half stay free above and below, so that no stroke is cut.
    fn y(&self, value: f32) -> f64 {
        let share = f64::from((value / self.plot.top.max(f32::MIN_POSITIVE)).clamp(0.0, 1.0));
        self.height - 1.5 - share * (self.height - 3.0)
    }

    fn grid(&self) {
        self.context.set_fill_style_str(&browser::token("--line-soft"));
        for tick in value_ticks(self.plot.top) {
            self.context.fill_rect(0.0, self.y(tick).round(), self.width, 1.0);
        }
    }

    /// Where nobody told anything, the ground is hatched.
    fn gaps(&self) {
        let steps = self.plot.window.steps();
        let told = |step: usize| {
            self.plot.lines.iter().any(|line| line.values.get(step).is_some_and(Option::is_some))
        };
        let context = &self.context;
        context.set_stroke_style_str(&browser::token("--line"));
        context.set_line_width(1.0);
        let wide = self.width / steps as f64;
        let first = self.plot.window.start_ms() / self.plot.window.step_ms();
        context.begin_path();
        for step in (0..steps).filter(|step| !told(*step)) {
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
        context.set_fill_style_str(&browser::token(hue));
        let wide = self.width / self.plot.window.steps() as f64;
        for (step, (low, high)) in band.low.iter().zip(&band.high).enumerate() {
            if let (Some(low), Some(high)) = (low, high) {
                let (top, bottom) = (self.y(*high), self.y(*low));
                context.fill_rect(step as f64 * wide, top, wide + 0.3, (bottom - top).max(1.0));
            }
        }
        context.set_global_alpha(1.0);
    }

    fn lines(&self, hue: &str) {
        let colour = browser::token(hue);
        if self.plot.shows_every_line() {
            let alpha = if self.plot.lines.len() > 4 { 0.55 } else { 0.9 };
            self.plot.lines.iter().for_each(|line| self.line(&line.values, &colour, 1.1, alpha));
        } else if let Some(band) = &self.plot.band {
            self.line(&band.mid, &colour, 1.8, 1.0);
        }
    }

    fn standing_out(&self, pick: Option<&Pick>) {
        let dashes = js_sys::Array::of2(&6.0.into(), &3.0.into());
        let _ = self.context.set_line_dash(&dashes);
        for (far, _) in &self.plot.far {
            self.line(&self.plot.lines[*far].values, &browser::token("--warn"), 1.5, 1.0);
        }
        let _ = self.context.set_line_dash(&js_sys::Array::new());
        if let Some((_, line)) = pick.and_then(|pick| self.plot.line_of(pick)) {
            self.line(&line.values, &browser::token("--accent"), 2.4, 1.0);
        }
    }

    /// A line that is lifted over gaps; a lonely point is a dash.
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
