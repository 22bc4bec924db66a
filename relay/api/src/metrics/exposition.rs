//! Writes Prometheus' text format 0.0.4.
//!
//! A thousand nodes have 500,000 samples, so labels are formatted once per row, and samples are written in chunks
//! without an allocation for each: the crates build a structure of every sample first, or write OpenMetrics only, which
//! `promtool check metrics` does not read.

use std::fmt::Write as _;
use std::io::{self, Write};

/// Bytes that are passed on at once.
const CHUNK: usize = 64 << 10;
/// Integers below this are exact in a float, and formatted as such several times as fast.
const EXACT: f64 = (1_u64 << 53) as f64;

/// The type of a family's values.
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

/// Writes families, each with its first sample.
pub struct Exposition<'a> {
    out: &'a mut dyn Write,
    /// Text that has not been passed on yet.
    chunk: String,
    /// Whether writing failed: the rest is skipped.
    result: io::Result<()>,
    name: String,
    /// Help and type of the current family, until they are written.
    head: String,
}

impl Labels {
    /// Writes labels. Empty values are left out: for Prometheus, they are the same as no label.
    pub fn new(labels: &[(&str, &str)]) -> Self {
        let len = labels.iter().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>();
        let mut text = String::with_capacity(len);
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

impl<'a> Exposition<'a> {
    /// Writes to `out`.
    pub fn new(out: &'a mut dyn Write) -> Self {
        let chunk = String::with_capacity(CHUNK + (1 << 10));
        Self { out, chunk, result: Ok(()), name: String::new(), head: String::new() }
    }

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
        let Some(value) = value.filter(|_| self.result.is_ok()) else { return };
        self.chunk.push_str(&self.head);
        self.head.clear();
        self.chunk.push_str(&self.name);
        self.chunk.push_str(&labels.0);
        // Writing to a string cannot fail.
        let _ = match value {
            whole if (0.0..EXACT).contains(&whole) && whole.fract() == 0.0 => {
                writeln!(self.chunk, " {}", whole as u64)
            }
            value => writeln!(self.chunk, " {value}"),
        };
        if self.chunk.len() >= CHUNK {
            self.pass_on();
        }
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// Writing failed.
    pub fn finish(mut self) -> io::Result<()> {
        self.pass_on();
        self.result
    }

    fn pass_on(&mut self) {
        if self.result.is_ok() {
            self.result = self.out.write_all(self.chunk.as_bytes());
        }
        self.chunk.clear();
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
        let mut text = Vec::new();
        let mut out = Exposition::new(&mut text);
        out.family("a_watts", "A \"quoted\"\\ help.", Kind::Gauge);
        out.sample(&Labels::new(&[("node", "n1")]), None);
        out.family("b_total", "B.", Kind::Counter);
        out.sample(&Labels::new(&[("node", "n1")]), Some(1.5));
        out.sample(&Labels::new(&[]), Some(2.0));
        out.finish().unwrap();
        let expected = "# HELP b_total B.\n# TYPE b_total counter\nb_total{node=\"n1\"} 1.5\nb_total 2\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn whole_numbers_are_written_as_floats_would_be() {
        let mut text = Vec::new();
        let mut out = Exposition::new(&mut text);
        out.family("a", "A.", Kind::Gauge);
        let values = [0.0, -0.0, -3.0, 0.1, 4e9, EXACT, 1e300, f64::INFINITY];
        values.iter().for_each(|value| out.sample(&Labels::new(&[]), Some(*value)));
        out.finish().unwrap();
        let text = String::from_utf8(text).unwrap();
        let written: Vec<f64> = text.lines().skip(2).map(|line| line[2..].parse().unwrap()).collect();
        assert_eq!(written, values);
    }

    /// Fails after the first chunk, as a client that has gone.
    struct Gone(usize);

    impl Write for Gone {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += 1;
            if self.0 == 1 { Ok(bytes.len()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_is_written_to_a_client_that_has_gone() {
        let mut client = Gone(0);
        let mut out = Exposition::new(&mut client);
        out.family("a", "A.", Kind::Gauge);
        let labels = Labels::new(&[("node", "n1")]);
        (0..CHUNK).for_each(|_| out.sample(&labels, Some(1.0)));
        assert!(out.finish().is_err());
        assert_eq!(client.0, 2);
    }

    #[test]
    fn label_values_are_escaped_and_empty_ones_left_out() {
        let labels = Labels::new(&[("a", "x\"y\\z\n"), ("b", ""), ("c", "é")]);
        assert_eq!(labels.0, "{a=\"x\\\"y\\\\z\\n\",c=\"é\"}");
        assert_eq!(Labels::new(&[("a", "")]).0, "");
    }
}
