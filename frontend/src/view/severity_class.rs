//! CSS classes of a severity.

use crate::domain::severity::Severity;

/// The CSS classes in which the page shows a severity.
pub trait SeverityClass {
    /// Returns the CSS class of its symbol.
    fn class(self) -> &'static str;

    /// Returns the CSS class of a tag, such as a flag in a GPU's row.
    fn tag_class(self) -> &'static str;

    /// Returns the CSS class of text in its colour; empty where text stays as it is.
    fn text_class(self) -> &'static str;
}

impl SeverityClass for Severity {
    fn class(self) -> &'static str {
        match self {
            Self::Ok => "dot dot--well",
            Self::Ended => "dot dot--ended",
            Self::Pending => "dot dot--waiting",
            Self::Warning => "dot dot--attention",
            Self::Error => "dot dot--bad",
        }
    }

    fn tag_class(self) -> &'static str {
        match self {
            Self::Error => "flag flag--alarm",
            Self::Warning => "flag",
            Self::Ok | Self::Ended | Self::Pending => "flag flag--quiet",
        }
    }

    fn text_class(self) -> &'static str {
        match self {
            Self::Error => "is-bad",
            Self::Warning => "is-warning",
            Self::Ok | Self::Ended | Self::Pending => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_severity_has_its_own_class_and_only_problems_a_colour() {
        let all = [Severity::Ok, Severity::Ended, Severity::Pending, Severity::Warning, Severity::Error];
        assert_eq!(all.map(SeverityClass::class).into_iter().collect::<BTreeSet<_>>().len(), all.len());
        for severity in all {
            assert_eq!(severity.needs_attention(), !severity.text_class().is_empty(), "{severity:?}");
            assert_eq!(severity.needs_attention(), !severity.tag_class().contains("quiet"), "{severity:?}");
        }
    }
}
