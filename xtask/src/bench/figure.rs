//! A figure: median and spread of a measured quantity in the catalogue.

use super::catalogue::{self, Entry};
use anyhow::{Context, Result};
use std::fmt;

/// Prefix of output lines that contain a figure; others are for the user.
const MARK: &str = "= ";

/// A measured quantity.
#[derive(Debug)]
pub(crate) struct Figure {
    /// Its key in `summary.json`.
    pub(crate) key: String,
    /// Its catalogue entry.
    pub(crate) entry: &'static Entry,
    /// The median.
    pub(crate) value: f64,
    /// Minimum and maximum, if measured more than once.
    pub(crate) spread: Option<(f64, f64)>,
    /// A remark needed to interpret it.
    pub(crate) note: String,
}

impl Figure {
    /// Parses `= KEY VALUE [LOWEST HIGHEST] [# NOTE]`; `None` for a line that is for the user.
    ///
    /// # Errors
    /// The catalogue does not contain the figure, or its value is not a number.
    pub(crate) fn read(line: &str) -> Result<Option<Self>> {
        let Some(line) = line.strip_prefix(MARK) else { return Ok(None) };
        let (numbers, note) = line.split_once(" # ").unwrap_or((line, ""));
        let mut fields = numbers.split(' ');
        let key = fields.next().unwrap_or_default();
        let entry = catalogue::find(key).with_context(|| format!("{key} is not in the catalogue"))?;
        let mut number =
            || fields.next().map(|field| field.parse().with_context(|| format!("read {line:?}")));
        let value = number().with_context(|| format!("{key} has no value"))??;
        let spread = match (number(), number()) {
            (Some(lowest), Some(highest)) => Some((lowest?, highest?)),
            _ => None,
        };
        Ok(Some(Self { key: key.to_owned(), entry, value, spread, note: note.to_owned() }))
    }

    /// `✓` or `✗` if there is a target.
    pub(crate) fn verdict(&self) -> &'static str {
        match self.entry.goal.map(|goal| goal.is_met(self.value)) {
            Some(true) => "✓",
            Some(false) => "✗",
            None => "",
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.key, number(self.value), self.entry.unit)
    }
}

/// Formats with three significant digits.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        small if small < 1.0 => (2.0 - small.log10().floor()).min(6.0) as usize,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_with_its_spread_and_its_note() {
        let figure = Figure::read("= probe.tick_us 312.5 300 350.25 # of 8 GPUs").unwrap().unwrap();
        assert_eq!((figure.key.as_str(), figure.value), ("probe.tick_us", 312.5));
        assert_eq!((figure.spread, figure.note.as_str()), (Some((300.0, 350.25)), "of 8 GPUs"));
        let figure = Figure::read("= probe.rss_mb 5").unwrap().unwrap();
        assert_eq!((figure.spread, figure.note.as_str(), figure.verdict()), (None, "", "✓"));
    }

    #[test]
    fn text_is_no_figure_and_an_unknown_figure_is_an_error() {
        assert!(Figure::read("warming up").unwrap().is_none());
        assert!(Figure::read("= no.such 1").is_err());
        assert!(Figure::read("= probe.rss_mb five").is_err());
    }

    #[test]
    fn three_digits_count() {
        let shown = [0.0, 0.0123456, 0.5, 4.2, 42.42, 4242.0].map(number);
        assert_eq!(shown, ["0", "0.0123", "0.500", "4.20", "42.4", "4242"]);
    }
}
