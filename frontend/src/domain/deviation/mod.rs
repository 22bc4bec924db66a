//! How far each GPU is from the median of its peers: the GPUs of the same job and model.
//!
//! A deviation counts only if it lasts: it is the median over the last minute in which the job
//! worked. Steps in which all peers pause (a checkpoint) or idle are skipped, so that rank 0, which
//! writes the checkpoint, is no outlier. Memory differs between ranks by design and has the highest
//! limit. Temperature is not compared: recorded jobs have GPUs that are 20 °C hotter than their
//! peers and equally fast. What a straggler costs the others is not stated, because it depends on
//! how much of a step the ranks compute and how much they communicate, which no reading shows.

mod comparison;
mod outliers;
mod peers;

pub use comparison::Comparison;
pub use outliers::{Found, Sentence, sentences};
pub use peers::{Deviation, MIN_PEERS, Outlier, StepDeviation};

use crate::domain::metric::Metric;
use crate::domain::text;

/// A compared metric.
struct Quantity {
    metric: Metric,
    /// Deviation that makes a GPU an outlier, in % of the median, if the others agree.
    limit_pct: i8,
    /// The median counts as at least this, in the metric's unit: small values differ a lot in
    /// relation, and mean little.
    min_median: f32,
}

/// Number of compared metrics.
const COUNT: usize = 5;
/// The compared metrics. Of several in which a GPU is an outlier, the first is the cause: a low
/// clock explains low power, which explains low activity.
const QUANTITIES: [Quantity; COUNT] = [
    // At the power limit, equal cards differ by up to 10 %.
    Quantity { metric: Metric::CLOCK, limit_pct: 12, min_median: 100.0 },
    Quantity { metric: Metric::POWER, limit_pct: 15, min_median: 50.0 },
    Quantity { metric: Metric::SM_ACTIVE, limit_pct: 20, min_median: 25.0 },
    Quantity { metric: Metric::UTIL, limit_pct: 20, min_median: 50.0 },
    Quantity { metric: Metric::MEMORY, limit_pct: 30, min_median: 4.0 },
];
/// Positions in [`QUANTITIES`].
const CLOCK: usize = 0;
const POWER: usize = 1;
const SM_ACTIVE: usize = 2;
const UTIL: usize = 3;
const MEMORY: usize = 4;

impl Deviation {
    /// Returns the metric and the deviation from the median: `SM clock −45 %`.
    pub fn label(&self) -> String {
        let sign = if self.percent < 0 { "−" } else { "+" };
        format!("{} {sign}{} %", self.metric.title(), text::grouped(self.percent.unsigned_abs().into()))
    }
}

impl Outlier {
    /// Returns a sentence about an outlier: `Rank 35 (gpu-h05 GPU 3): SM clock 885 MHz below the
    /// median for 9 min`.
    pub fn sentence(&self, who: &str, metric: Metric) -> String {
        let side = if self.away < 0.0 { "below" } else { "above" };
        let by = match metric {
            _ if metric.is_percent() => format!("{} points", self.away.abs().round() as u32),
            _ => metric.format(self.away.abs()),
        };
        let at_least = if self.or_longer { "at least " } else { "" };
        let lasts = text::span(self.lasts_ms / 1_000);
        format!("{who}: {} {by} {side} the median for {at_least}{lasts}", metric.title())
    }
}

/// Returns the name of a GPU in a sentence: `Rank 35 (gpu-h05 GPU 3)`, or `gpu-h05 GPU 3` if no
/// rank is known.
pub fn gpu_title(node: &str, gpu: &str, ranks: &[u32]) -> String {
    let list = || ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match ranks {
        [] => format!("{node} {gpu}"),
        [rank] => format!("Rank {rank} ({node} {gpu})"),
        _ => format!("Ranks {} ({node} {gpu})", list()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_rank_place_cause_amount_and_duration() {
        let slow = Outlier { away: -885.0, lasts_ms: 560_000, or_longer: false };
        assert_eq!(
            slow.sentence(&gpu_title("gpu-h05", "GPU 3", &[35]), Metric::CLOCK),
            "Rank 35 (gpu-h05 GPU 3): SM clock 885 MHz below the median for 9 min"
        );
        let idle = Outlier { away: -98.4, lasts_ms: 600_000, or_longer: true };
        assert_eq!(
            idle.sentence(&gpu_title("n1", "GPU 0", &[]), Metric::UTIL),
            "n1 GPU 0: Utilisation 98 points below the median for at least 10 min"
        );
        assert_eq!(gpu_title("n1", "GPU 0", &[3, 7]), "Ranks 3, 7 (n1 GPU 0)");
    }

    #[test]
    fn a_label_has_the_metric_and_a_signed_percentage() {
        let label = |percent| Deviation { metric: Metric::CLOCK, percent, outlier: None }.label();
        assert_eq!([label(-45), label(7)], ["SM clock −45 %", "SM clock +7 %"]);
    }
}
