//! Prints each figure as soon as it is known, so that an interrupted run keeps its results.

use crate::series::Series;

/// The selected figures, and where they are printed.
#[derive(Debug)]
pub struct Report {
    wanted: Vec<String>,
}

impl Report {
    /// A report of these names; of everything if empty.
    pub fn of(wanted: Vec<String>) -> Self {
        Self { wanted }
    }

    /// The only argument.
    pub fn only(&self) -> Option<&str> {
        self.wanted.first().map(String::as_str)
    }

    /// Returns whether one of these figures is selected.
    pub fn wants(&self, names: &[&str]) -> bool {
        self.wanted.is_empty() || names.iter().any(|name| self.wanted.iter().any(|wanted| wanted == name))
    }

    /// Prints the median and range of a figure, if selected.
    pub fn figure(&self, name: &str, series: &Series) {
        self.noted(name, series, "");
    }

    /// Reports it with a note that is needed to interpret it.
    pub fn noted(&self, name: &str, series: &Series, note: &str) {
        let (low, high) = series.range();
        self.line(name, &format!("{} {low} {high}", series.median()), note);
    }

    /// Prints a figure that was measured once, or is deterministic.
    pub fn value(&self, name: &str, value: f64, note: &str) {
        self.line(name, &value.to_string(), note);
    }

    fn line(&self, name: &str, numbers: &str, note: &str) {
        // A part of a figure (`….some_trace`) is selected with the figure.
        let whole = name.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
        if !self.wants(&[name, &whole]) {
            return;
        }
        match note {
            "" => println!("= {name} {numbers}"),
            note => println!("= {name} {numbers} # {note}"),
        }
    }
}
