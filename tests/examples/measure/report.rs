//! Prints each figure as soon as it is known, so that an interrupted run keeps its results.

use crate::series::Series;

/// The selected figures, and where they are printed.
#[derive(Debug)]
pub struct Report {
    wanted: Vec<String>,
}

impl Report {
    /// A report of these names; of everything without any.
    pub fn of(wanted: Vec<String>) -> Self {
        Self { wanted }
    }

    /// The one word that is asked for.
    pub fn only(&self) -> Option<&str> {
        self.wanted.first().map(String::as_str)
    }

    /// Whether one of these figures is asked for.
    pub fn wants(&self, names: &[&str]) -> bool {
        self.wanted.is_empty() || names.iter().any(|name| self.wanted.iter().any(|wanted| wanted == name))
    }

    /// Says the median and the spread of a figure, if it is asked for.
    pub fn figure(&self, name: &str, series: &Series) {
        self.noted(name, series, "");
    }

    /// The same with what must be known to read it rightly.
    pub fn noted(&self, name: &str, series: &Series, note: &str) {
        let (low, high) = series.range();
        self.line(name, &format!("{} {low} {high}", series.median()), note);
    }

    /// Says a figure that was taken once, or that no other run would change.
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
