//! Receives the series of the metrics: families, their samples, and the labels of these.

use super::Timestamp;
use nodeglass_protocol::field::ValueKind;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// The type of a family's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A quantity that rises and falls.
    Gauge,
    /// A count that only rises.
    Counter,
}

impl From<ValueKind> for Kind {
    fn from(kind: ValueKind) -> Self {
        if kind == ValueKind::Counter { Self::Counter } else { Self::Gauge }
    }
}

/// Receives families in order, each followed by its samples.
pub trait Sink {
    /// Starts a family.
    fn family(&mut self, name: &str, help: &str, kind: Kind);

    /// Adds a sample of the current family, if it has a value.
    fn sample(&mut self, labels: &Labels, value: Option<f64>);
}

/// Labels of the samples of a row, without those whose value is empty: for Prometheus, they are the same as no label.
/// Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// As the text format has them.
    text: Arc<str>,
    /// Names, and the place of each value in the text.
    values: Arc<[(&'static str, Range<usize>)]>,
    taken_at: Option<Timestamp>,
}

impl Labels {
    /// Labels by name and value.
    pub fn new(labels: &[(&'static str, &str)]) -> Self {
        let len = labels.iter().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>();
        let mut text = String::with_capacity(len);
        let mut values = Vec::with_capacity(labels.len());
        for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
            text.push(if text.is_empty() { '{' } else { ',' });
            text.push_str(name);
            text.push_str("=\"");
            let begin = text.len();
            escape(&mut text, value, true);
            values.push((*name, begin..text.len()));
            text.push('"');
        }
        if !text.is_empty() {
            text.push('}');
        }
        Self { text: text.into(), values: values.into(), taken_at: None }
    }

    /// States when the readings of the row were taken.
    #[must_use]
    pub fn taken_at(self, taken_at: Option<Timestamp>) -> Self {
        Self { taken_at, ..self }
    }

    /// Labels in the text format, with braces.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Names and values.
    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, Cow<'_, str>)> {
        self.values.iter().map(|(name, value)| (*name, unescape(&self.text[value.clone()])))
    }

    /// When the readings of the row were taken; `None` if its values are those of now.
    pub fn time(&self) -> Option<Timestamp> {
        self.taken_at
    }
}

/// Appends a help text or a label's value as the text format has it.
pub(super) fn escape(text: &mut String, raw: &str, is_label: bool) {
    for letter in raw.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if is_label => text.push_str("\\\""),
            letter => text.push(letter),
        }
    }
}

/// Returns the label's value that [`escape`] wrote.
fn unescape(value: &str) -> Cow<'_, str> {
    if !value.contains('\\') {
        return Cow::Borrowed(value);
    }
    let (mut raw, mut letters) = (String::with_capacity(value.len()), value.chars());
    while let Some(letter) = letters.next() {
        raw.extend(match letter {
            '\\' => letters.next().map(|escaped| if escaped == 'n' { '\n' } else { escaped }),
            letter => Some(letter),
        });
    }
    Cow::Owned(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped_and_empty_ones_left_out() {
        let labels = Labels::new(&[("a", "x\"y\\z\n"), ("b", ""), ("c", "é")]);
        assert_eq!(&**labels.text(), "{a=\"x\\\"y\\\\z\\n\",c=\"é\"}");
        assert_eq!(labels.pairs().collect::<Vec<_>>(), [("a", "x\"y\\z\n".into()), ("c", "é".into())]);
        assert_eq!(Labels::new(&[("a", "")]).text().len(), 0);
    }
}
