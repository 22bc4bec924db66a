//! Sentences about the outliers of a job, the largest deviation first.

use super::{Deviation, gpu_title};
use crate::domain::metric::Metric;

/// An outlier, with the names of its GPU.
pub struct Found {
    /// Its position among all GPUs.
    pub at: usize,
    /// The node's name.
    pub node: String,
    /// The GPU's name on it: `GPU 3`.
    pub gpu: String,
    /// The ranks on it.
    pub ranks: Vec<u32>,
    /// How many GPUs of the node are shown.
    pub on_node: usize,
    /// Its deviation.
    pub deviation: Deviation,
}

/// One sentence.
#[derive(Clone, Debug, PartialEq)]
pub struct Sentence {
    /// The position of the GPU that it names.
    pub at: usize,
    /// The metric that it names.
    pub metric: Metric,
    /// `Rank 35 (gpu-h05 GPU 3): SM clock 885 MHz below the median for 9 min`.
    pub text: String,
}

/// Returns at most `most` sentences, and how many GPUs have none. A node of which all GPUs deviate
/// in the same metric has one.
pub fn sentences(mut found: Vec<Found>, most: usize) -> (Vec<Sentence>, usize) {
    let mut sentences = Vec::new();
    // There are few, and another sort would be code that the page has to load.
    while sentences.len() < most
        && let Some(one) = largest(&found)
    {
        let (at, metric) = (one.at, one.deviation.metric);
        let is_alike = |other: &Found| other.node == one.node && other.deviation.metric == metric;
        let alike = found.iter().filter(|other| is_alike(other)).count();
        let is_whole_node = alike > 1 && alike == one.on_node;
        let name = if is_whole_node {
            format!("{} (all {alike} GPUs)", one.node)
        } else {
            gpu_title(&one.node, &one.gpu, &one.ranks)
        };
        let text = one.deviation.outlier.as_ref().map(|outlier| outlier.sentence(&name, metric));
        sentences.extend(text.map(|text| Sentence { at, metric, text }));
        let is_said: Vec<bool> =
            found.iter().map(|other| other.at == at || is_whole_node && is_alike(other)).collect();
        let mut is_said = is_said.into_iter();
        found.retain(|_| is_said.next() == Some(false));
    }
    (sentences, found.len())
}

fn largest(found: &[Found]) -> Option<&Found> {
    let size = |found: &Found| found.deviation.percent.unsigned_abs();
    found.iter().reduce(|largest, one| if size(one) > size(largest) { one } else { largest })
}

#[cfg(test)]
mod tests {
    use super::super::Outlier;
    use super::*;

    fn found(at: usize, percent: i32) -> Found {
        let outlier = Some(Outlier { away: -885.0, lasts_ms: 60_000, or_longer: false });
        Found {
            at,
            node: format!("n{}", at / 4),
            gpu: format!("GPU {}", at % 4),
            ranks: vec![at as u32],
            on_node: 4,
            deviation: Deviation { metric: Metric::CLOCK, percent, outlier },
        }
    }

    #[test]
    fn the_largest_deviation_comes_first_and_the_rest_is_counted() {
        let (sentences, more) = sentences(vec![found(1, -20), found(6, -45), found(9, -12)], 2);
        let texts: Vec<&str> = sentences.iter().map(|sentence| sentence.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "Rank 6 (n1 GPU 2): SM clock 885 MHz below the median for 1 min",
                "Rank 1 (n0 GPU 1): SM clock 885 MHz below the median for 1 min"
            ]
        );
        assert_eq!((sentences[0].at, sentences[0].metric, more), (6, Metric::CLOCK, 1));
    }

    #[test]
    fn a_slow_node_has_one_sentence() {
        let all = (4..8).map(|at| found(at, -30)).chain([found(0, -40)]).collect();
        let (sentences, more) = sentences(all, 3);
        assert_eq!((sentences.len(), more), (2, 0));
        assert_eq!(sentences[1].text, "n1 (all 4 GPUs): SM clock 885 MHz below the median for 1 min");
    }
}
