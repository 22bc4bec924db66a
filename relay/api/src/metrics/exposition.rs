//! Writes Prometheus' text format 0.0.4.
//!
//! A thousand nodes have 400,000 samples, so labels are written once per row and samples go straight into the text:
//! the crates build a structure of every sample first, or write OpenMetrics only, which `promtool check metrics`
//! does not read.

use std::fmt::Write as _;

/// What the values of a family are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A quantity that rises and falls.
    Gauge,
    /// A count that only rises.
    Counter,
}

/// Labels of a sample, as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels(String);

/// The text so far. A family is written with its first sample.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    name: String,
    /// Help and type of the current family, until they are written.
    head: String,
}

impl Labels {
    /// Writes labels. Empty values are left out: for Prometheus, they are the same as no label.
    pub fn new(labels: &[(&str, &str)]) -> Self {
        let mut text = String::new();
        for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
            text.push(if text.is_empty() { '{' } else { ',' });
            text.push_str(name);
            text.push_str("=\"");
            escape(&mut text, value, true);
            text.push('"');
        }
        if !text.is_empty() {
            text.push('}');
        }
        Self(text)
    }
}

impl Exposition {
    /// Starts a family.
    pub fn family(&mut self, name: &str, help: &str, kind: Kind) {
        self.name.clear();
        self.name.push_str(name);
        self.head.clear();
        self.head.push_str("# HELP ");
        self.head.push_str(name);
        self.head.push(' ');
        escape(&mut self.head, help, false);
        let kind = if kind == Kind::Counter { "counter" } else { "gauge" };
        // Writing to a string cannot fail.
        let _ = write!(self.head, "\n# TYPE {name} {kind}\n");
    }

    /// Writes a sample of the current family, if it has a value.
    pub fn sample(&mut self, labels: &Labels, value: Option<f64>) {
        let Some(value) = value else { return };
        self.text.push_str(&self.head);
        self.head.clear();
        self.text.push_str(&self.name);
        self.text.push_str(&labels.0);
        let _ = writeln!(self.text, " {value}");
    }

    /// The text.
    pub fn finish(self) -> String {
        self.text
    }
}

fn escape(text: &mut String, raw: &str, is_label: bool) {
    for letter in raw.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if is_label => text.push_str("\\\""),
            letter => text.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_written_once_and_only_with_a_sample() {
        let mut out = Exposition::default();
        out.family("a_watts", "A \"quoted\"\\ help.", Kind::Gauge);
        out.sample(&Labels::new(&[("node", "n1")]), None);
        out.family("b_total", "B.", Kind::Counter);
        out.sample(&Labels::new(&[("node", "n1")]), Some(1.5));
        out.sample(&Labels::new(&[]), Some(2.0));
        let expected = "# HELP b_total B.\n# TYPE b_total counter\nb_total{node=\"n1\"} 1.5\nb_total 2\n";
        assert_eq!(out.finish(), expected);
    }

    #[test]
    fn label_values_are_escaped_and_empty_ones_left_out() {
        let labels = Labels::new(&[("a", "x\"y\\z\n"), ("b", ""), ("c", "é")]);
        assert_eq!(labels.0, "{a=\"x\\\"y\\\\z\\n\",c=\"é\"}");
        assert_eq!(Labels::new(&[("a", "")]).0, "");
    }
}
