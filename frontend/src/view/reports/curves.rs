//! The readings of a job over the time that is compared, loaded from the relay's history.

use crate::chart::{Extreme, Window};
use crate::describe::bytes;
use crate::describe::report::precise;
use crate::domain::compared::Part;
use crate::platform;
use crate::state::page::Page;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::range::{RangeQuery, Summaries};
use nodeglass_protocol::report::Report;
use nodeglass_protocol::{Field as _, GpuField};

/// The fields that can be compared; the first one is shown first.
pub const FIELDS: [(GpuField, &str); 4] = [
    (GpuField::Util, "Utilisation"),
    (GpuField::Power, "Power"),
    (GpuField::SmClock, "SM clock"),
    (GpuField::MemUsed, "Memory"),
];
/// Maximum number of steps of a line.
const STEPS: usize = 300;

/// The readings of a job over a time, by the fields in [`FIELDS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// The mean over its GPUs in each step; empty if nothing is kept.
    pub lines: [Vec<Option<f32>>; FIELDS.len()],
    /// The same as figures.
    pub summaries: [Option<FieldSummary>; FIELDS.len()],
}

/// A field over the whole time that is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FieldSummary {
    /// Mean over time and GPUs.
    pub mean: f32,
    /// The lowest value of any GPU.
    pub low: f32,
    /// The highest value of any GPU.
    pub high: f32,
}

impl Curves {
    /// Loads the curves of a job's GPUs over `time`, on a scale of `span_ms`.
    pub async fn load(page: &Page, report: &Report, time: Part, span_ms: u64) -> Self {
        let page_ms = platform::now_ms();
        let relay_ms = page.fleet.relay_ms(page_ms).cast_signed();
        let wall_ms = page.fleet.wall_s(page_ms) * 1_000;
        let from_ms = time.from_s.saturating_mul(1_000).saturating_sub(wall_ms).saturating_add(relay_ms);
        let to_ms = u64::try_from(from_ms).unwrap_or(0).saturating_add(span_ms);
        let window = Window::over(to_ms, span_ms, STEPS).of_long_history(to_ms);
        let query = RangeQuery {
            topic: Topic::Job(report.job),
            from_ms: window.start_ms(),
            to_ms: window.end_ms(),
            step_ms: window.step_ms(),
            gpu_fields: FIELDS.iter().map(|(field, _)| field.name().into()).collect(),
            host_fields: Vec::new(),
        };
        let Some(range) = page.feed.range(query).await else { return Self::default() };
        let gpus = range.nodes.iter().flat_map(|node| &node.gpus);
        // The nodes may have run other jobs at other times.
        let own: Vec<_> = gpus.filter(|gpu| report.gpus.iter().any(|own| own.uuid == gpu.uuid)).collect();
        let kept = (time.length_s().saturating_mul(1_000)).div_ceil(window.step_ms()) as usize;
        let mut curves = Self::default();
        for (at, (field, _)) in FIELDS.iter().enumerate() {
            let summaries: Vec<_> = own.iter().filter_map(|gpu| gpu.fields.get(at)).collect();
            let reader = Reader { window, slot_ms: range.step_ms.max(1), kept, field: *field };
            curves.lines[at] = reader.line(&summaries);
            curves.summaries[at] = reader.summary(&summaries, &curves.lines[at]);
        }
        curves
    }
}

/// Reads summaries of a field in the steps of a window.
struct Reader {
    window: Window,
    slot_ms: u64,
    /// Number of steps that are compared: later ones belong to what followed.
    kept: usize,
    field: GpuField,
}

impl Reader {
    fn values(&self, summaries: &Summaries, extreme: Extreme) -> impl Iterator<Item = (usize, f32)> {
        let measure = |steps: u32| self.field.scale().value(u64::from(steps)) as f32;
        let points = self.window.long_points(summaries, self.slot_ms, 0, extreme, measure);
        let values = points.into_iter().take(self.kept).enumerate();
        values.filter_map(|(step, point)| Some((step, point.value()?)))
    }

    /// The mean of all GPUs in each step.
    fn line(&self, gpus: &[&Summaries]) -> Vec<Option<f32>> {
        let mut sums = vec![(0.0_f32, 0_u32); self.window.steps()];
        for (step, value) in gpus.iter().flat_map(|gpu| self.values(gpu, Extreme::Mean)) {
            let (sum, count) = sums[step];
            sums[step] = (sum + value, count + 1);
        }
        sums.into_iter().map(|(sum, count)| (count > 0).then(|| sum / count as f32)).collect()
    }

    fn summary(&self, gpus: &[&Summaries], line: &[Option<f32>]) -> Option<FieldSummary> {
        let known: Vec<f32> = line.iter().copied().flatten().collect();
        let all =
            |extreme| gpus.iter().flat_map(move |gpu| self.values(gpu, extreme)).map(|(_, value)| value);
        Some(FieldSummary {
            mean: (!known.is_empty()).then(|| known.iter().sum::<f32>() / known.len() as f32)?,
            low: all(Extreme::Low).reduce(f32::min)?,
            high: all(Extreme::High).reduce(f32::max)?,
        })
    }
}

/// Formats a value of the field at a position in [`FIELDS`].
pub fn format_value(field: usize, value: f32) -> String {
    let field = FIELDS[field].0;
    match field {
        GpuField::MemUsed => bytes(f64::from(value) as u64),
        _ => format!("{} {}", precise(f64::from(value)), field.metric().unit.symbol()),
    }
}
