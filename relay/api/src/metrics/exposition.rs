//! Writes Prometheus' text format 0.0.4.
//!
//! A thousand nodes have 500,000 samples, so labels are formatted once per row, and samples are written in chunks
//! without an allocation for each: the crates build a structure of every sample first, or write OpenMetrics only, which
//! `promtool check metrics` does not read.

use super::sink::{Kind, Labels, Sink, escape};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Bytes that are passed on at once.
const CHUNK: usize = 64 << 10;
/// Integers below this are exact in a float, and formatted as such several times as fast.
const EXACT: f64 = (1_u64 << 53) as f64;

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
    /// Labels of all samples.
    common: Labels,
}

impl<'a> Exposition<'a> {
    /// Writes to `out`; each sample has the `common` labels as well.
    pub fn new(out: &'a mut dyn Write, common: &Labels) -> Self {
        let chunk = String::with_capacity(CHUNK + (1 << 10));
        let (name, head) = (String::new(), String::new());
        Self { out, chunk, result: Ok(()), name, head, common: common.clone() }
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

impl Sink for Exposition<'_> {
    fn family(&mut self, name: &str, help: &str, kind: Kind) {
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

    fn sample(&mut self, labels: &Labels, value: Option<f64>) {
        let Some(value) = value.filter(|_| self.result.is_ok()) else { return };
        self.chunk.push_str(&self.head);
        self.head.clear();
        self.chunk.push_str(&self.name);
        match (self.common.text().strip_suffix('}'), labels.text().strip_prefix('{')) {
            (Some(common), Some(own)) => self.chunk.extend([common, ",", own]),
            _ => self.chunk.extend([&**self.common.text(), labels.text()]),
        }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_written_once_and_only_with_a_sample() {
        let mut text = Vec::new();
        let mut out = Exposition::new(&mut text, &Labels::default());
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
    fn every_sample_has_the_common_labels() {
        let mut text = Vec::new();
        let mut out = Exposition::new(&mut text, &Labels::new(&[("cluster", "hpc")]));
        out.family("a", "A.", Kind::Gauge);
        out.sample(&Labels::new(&[("job", "7"), ("node", "n1")]), Some(1.0));
        out.sample(&Labels::default(), Some(2.0));
        out.finish().unwrap();
        let text = String::from_utf8(text).unwrap();
        let samples: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(samples, ["a{cluster=\"hpc\",job=\"7\",node=\"n1\"} 1", "a{cluster=\"hpc\"} 2"]);
    }

    #[test]
    fn whole_numbers_are_written_as_floats_would_be() {
        let mut text = Vec::new();
        let mut out = Exposition::new(&mut text, &Labels::default());
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
        let mut out = Exposition::new(&mut client, &Labels::default());
        out.family("a", "A.", Kind::Gauge);
        let labels = Labels::new(&[("node", "n1")]);
        (0..CHUNK).for_each(|_| out.sample(&labels, Some(1.0)));
        assert!(out.finish().is_err());
        assert_eq!(client.0, 2);
    }
}
