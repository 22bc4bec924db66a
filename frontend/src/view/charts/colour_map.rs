//! Colours of heat maps from the style sheet's tokens. Missing values have a pattern and not a colour alone.

use super::gpu_groups::NodeGroup;
use crate::chart::{ColourScale, Point};
use crate::domain::colour_scheme::ColourScheme;
use crate::domain::metric::GraphMetric;
use crate::fleet::TopicStore;
use crate::platform;
use crate::state::page::Page;
use crate::state::time::Time;
use leptos::prelude::*;

/// The colours of the steps, as the style sheet defines them now.
#[derive(Clone, PartialEq)]
pub struct ColourMap {
    scheme: ColourScheme,
    scale: ColourScale,
    steps: [[u8; 3]; 4],
    /// For missing values: hatching, and the line of an unsupported reading.
    faint: [u8; 3],
    /// For a failed reading.
    bad: [u8; 3],
}

impl ColourMap {
    /// Reads the colours from the style sheet.
    pub fn from_tokens(scheme: ColourScheme) -> Self {
        Self::of(scheme, ColourScale::WHOLE, ["--util-0", "--util-1", "--util-2", "--util-3"])
    }

    /// Reads the colours of a metric. A deviation is pale while a GPU is like its peers, and throttling unless it is a
    /// problem: a power cap is not.
    pub fn for_metric(metric: GraphMetric, scheme: ColourScheme, scale: ColourScale) -> Self {
        let steps = match metric {
            GraphMetric::DEVIATION => ["--util-0", "--util-0", "--warn", "--warn"],
            GraphMetric::THROTTLE => ["--util-0", "--util-1", "--util-1", "--warn"],
            _ => return Self { scale, ..Self::from_tokens(scheme_of(metric, scheme)) },
        };
        Self::of(ColourScheme::Ramp, scale, steps)
    }

    fn of(scheme: ColourScheme, scale: ColourScale, steps: [&'static str; 4]) -> Self {
        let colour = |name| rgb(&platform::token(name)).unwrap_or([128; 3]);
        Self { scheme, scale, steps: steps.map(colour), faint: colour("--faint"), bad: colour("--bad") }
    }

    /// Returns the colour of a value; transparent without one. A ramp is interpolated, traffic lights are
    /// not.
    pub fn rgba(&self, value: Option<f32>) -> [u8; 4] {
        let Some(util) = value else { return [0; 4] };
        let [r, g, b] = match self.scheme {
            ColourScheme::Ramp => self.mixed(self.scale.position(util / 100.0) * 100.0),
            _ => self.steps[self.scheme.step(util.round().max(0.0) as u64)],
        };
        [r, g, b, 255]
    }

    /// Returns the colour of a strip's pixel. `x` counts pixels of all time and `y` pixels of the strip, so that
    /// hatching moves with time: a gap is hatched, a failed reading dashed, an unsupported one a line.
    pub fn pixel(&self, point: Point, x: u64, y: usize, line: usize) -> [u8; 4] {
        let [r, g, b] = self.faint;
        let [bad_r, bad_g, bad_b] = self.bad;
        match point {
            Point::Value(share) => self.rgba(Some(share * 100.0)),
            Point::Gap if (x + y as u64).is_multiple_of(5) => [r, g, b, 150],
            Point::Failed if x % 6 < 3 => [bad_r, bad_g, bad_b, 255],
            Point::Unsupported if y == line / 2 => [r, g, b, 90],
            _ => [0; 4],
        }
    }

    /// Interpolates between the colours of the steps, which stand at 0, 35, 72 and 100 %.
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

/// Returns the user's scheme for activity, and the ramp for everything else.
fn scheme_of(metric: GraphMetric, scheme: ColourScheme) -> ColourScheme {
    if matches!(metric, GraphMetric::UTIL | GraphMetric::SM_ACTIVE) { scheme } else { ColourScheme::Ramp }
}

/// Content of a heat map's colours: the metric, the part of its scale, and the maximum of the scale in the metric's
/// unit if all GPUs have the same.
#[derive(Clone, Copy, PartialEq)]
pub struct ShownScale {
    /// The metric.
    pub metric: GraphMetric,
    /// The part of its scale.
    pub scale: ColourScale,
    /// The maximum of the scale.
    pub top: Option<f32>,
}

/// Maximum number of GPUs that determine the scale.
const SAMPLED_GPUS: usize = 64;

/// Returns the scale that fits the values of the shown time, adapted every few seconds. Thresholds of
/// the user's own scheme stay where they are.
pub fn shown_scale(
    page: &Page,
    time: &Time,
    store: &TopicStore,
    groups: Memo<Vec<NodeGroup>>,
    metric: Memo<GraphMetric>,
) -> Memo<ShownScale> {
    let (window, store, settings) = (time.window(Signal::stored(60)), store.clone(), page.settings);
    Memo::new(move |before: Option<&ShownScale>| {
        let metric = metric.get();
        let fixed = |scale| ShownScale { metric, scale, top: Some(100.0) };
        match metric {
            GraphMetric::DEVIATION => return fixed(ColourScale::LOWER_HALF),
            GraphMetric::THROTTLE => return fixed(ColourScale::WHOLE),
            _ if scheme_of(metric, settings.scheme()) != ColourScheme::Ramp => {
                return fixed(ColourScale::WHOLE);
            }
            _ => {}
        }
        let window = window.get();
        let (mut values, mut tops) = (Vec::new(), Vec::new());
        groups.with(|groups| {
            let all = || groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)));
            for (group, gpu) in all().step_by(all().count().div_ceil(SAMPLED_GPUS).max(1)) {
                let (top, points) = group.values(&store, gpu, metric, &window, 0);
                let Some(top) = top.filter(|top| *top > 0.0) else { continue };
                values.extend(points.iter().filter_map(|point| Some(point.value()? / top)));
                tops.push(top);
            }
        });
        let same = before.filter(|before| before.metric == metric);
        let scale = same.map_or(ColourScale::WHOLE, |before| before.scale).adapted(values);
        let first = tops.first().copied();
        ShownScale { metric, scale, top: first.filter(|first| tops.iter().all(|top| top == first)) }
    })
}

/// Parses `#rrggbb`.
fn rgb(token: &str) -> Option<[u8; 3]> {
    let digits = token.strip_prefix('#').filter(|digits| digits.len() == 6)?;
    let part = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    Some([part(0)?, part(2)?, part(4)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn palette(scheme: ColourScheme, steps: [[u8; 3]; 4]) -> ColourMap {
        ColourMap { scheme, scale: ColourScale::WHOLE, steps, faint: [9; 3], bad: [8; 3] }
    }

    #[test]
    fn colours_are_read_from_tokens() {
        assert_eq!(rgb("#2f6f73"), Some([0x2f, 0x6f, 0x73]));
        assert_eq!(rgb("red"), None);
        assert_eq!(rgb("#12345é"), None);
    }

    #[test]
    fn a_gap_is_transparent_and_idle_is_not() {
        let palette = palette(ColourScheme::Ramp, [[1; 3], [2; 3], [3; 3], [4; 3]]);
        assert_eq!(palette.rgba(None), [0; 4]);
        assert_eq!(palette.rgba(Some(0.0)), [1, 1, 1, 255]);
        assert_eq!(palette.rgba(Some(100.0)), [4, 4, 4, 255]);
    }

    #[test]
    fn a_ramp_is_interpolated_and_traffic_lights_are_not() {
        let steps = [[0; 3], [100; 3], [150; 3], [200; 3]];
        let colour = |scheme, util| palette(scheme, steps).rgba(Some(util))[0];
        assert_eq!([0.0, 17.5, 35.0, 100.0].map(|util| colour(ColourScheme::Ramp, util)), [0, 50, 100, 200]);
        assert_eq!([59.4, 60.0, 84.0].map(|util| colour(ColourScheme::NvNodeTop, util)), [100, 150, 150]);
    }

    #[test]
    fn gap_failed_and_unsupported_differ_in_pattern_from_idle_and_each_other() {
        let palette = palette(ColourScheme::Ramp, [[1; 3], [2; 3], [3; 3], [4; 3]]);
        let shape = |point| {
            let pixels = (0..3).flat_map(|y| (0..30).map(move |step| (step, y)));
            pixels.map(|(step, y)| palette.pixel(point, step, y, 3)[3] > 0).collect::<Vec<_>>()
        };
        let shapes = [Point::Value(0.0), Point::Gap, Point::Failed, Point::Unsupported].map(shape);
        for (index, one) in shapes.iter().enumerate() {
            assert!(shapes[index + 1..].iter().all(|other| other != one), "{index}");
            assert!(one.iter().any(|painted| *painted), "{index}");
        }
    }
}
