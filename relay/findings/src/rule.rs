//! Rules of the settings on metrics of the catalogue, such as `hot=gpu.temp_c > 80 for 5m`.

use nodeglass_protocol::field::{Field, Unit, ValueKind};
use nodeglass_protocol::finding::FindingSeverity;
use nodeglass_protocol::{GpuField, HostField, JobField};
use std::fmt;
use std::str::FromStr;

/// Maximum number of rules.
pub const MAX_RULES: usize = 32;
/// Maximum length of the name of a rule and of its text, in bytes.
const MAX_NAME: usize = 40;
const MAX_TEXT: usize = 200;
/// Shortest and longest time for which a rule must hold, in s.
const MIN_S: u64 = 10;
const MAX_S: u64 = 86_400;

/// A rule: `NAME=METRIC OP NUMBER for TIME[, SEVERITY][, TEXT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name in findings: lower-case letters, digits, `_` and `-`.
    pub name: String,
    /// The metric that is compared.
    pub metric: RuleMetric,
    /// The comparison.
    pub comparison: Comparison,
    /// The value to compare with, in the unit of the metric.
    pub limit: u64,
    /// For how long it must hold, in ms.
    pub for_ms: u64,
    /// Severity of what it finds.
    pub severity: FindingSeverity,
    /// The advice, if the rule states it.
    pub text: Option<String>,
}

/// A metric of a kind of row that rules support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleMetric {
    /// A metric of a GPU or MIG instance: `gpu.temp_c`.
    Gpu(GpuField),
    /// A metric of a node: `host.mem_used_bytes`.
    Host(HostField),
    /// A metric of a job on a node: `job.cpu_pct`.
    Job(JobField),
}

/// A comparison of a reading with the limit of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `>`
    Above,
    /// `>=`
    AtLeast,
    /// `<`
    Below,
    /// `<=`
    AtMost,
}

/// Error of parsing a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// It does not have the form of a rule.
    #[error("write NAME=METRIC OP NUMBER for TIME[, SEVERITY][, TEXT], such as 'hot=gpu.temp_c > 80 for 5m'")]
    Syntax,
    /// The name is invalid.
    #[error("{0:?} is not a valid name: use lower-case letters, digits, - and _, {MAX_NAME} at most")]
    Name(String),
    /// The kind of row does not exist.
    #[error("{0:?} is not a metric: its name begins with gpu., host. or job., such as gpu.temp_c")]
    Kind(String),
    /// The metric does not exist.
    #[error("there is no metric {kind}.{name}; those of {kind} are {}", names(kind))]
    Metric {
        /// The kind of row.
        kind: &'static str,
        /// The name without it.
        name: String,
    },
    /// The values of the metric are not quantities.
    #[error("{0} is a set of flags or a state, which cannot be compared with a number")]
    NotAQuantity(String),
    /// The limit is not a number.
    #[error("{value:?} is not a limit for {metric}: use a whole number{}", units(*unit))]
    Limit {
        /// The metric.
        metric: String,
        /// Its unit.
        unit: Unit,
        /// The text of the setting.
        value: String,
    },
    /// The time is invalid.
    #[error("{0:?} is not a time for a rule: use {MIN_S}s to 24h, such as 30s, 5m or 2h")]
    Time(String),
    /// The text is too long.
    #[error("the text of a rule has at most {MAX_TEXT} bytes")]
    Text,
}

/// Error of combining rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// There are too many.
    #[error("there are {0} rules, but at most {MAX_RULES} are supported")]
    TooMany(usize),
    /// Two have one name: a finding would not tell which of them holds.
    #[error("two rules are called {0}; rename one")]
    SameName(String),
}

/// Checks rules that apply together.
///
/// # Errors
/// [`RulesError`].
pub fn check(rules: &[Rule]) -> Result<(), RulesError> {
    if rules.len() > MAX_RULES {
        return Err(RulesError::TooMany(rules.len()));
    }
    let repeated = |(at, rule): &(usize, &Rule)| rules[..*at].iter().any(|earlier| earlier.name == rule.name);
    match rules.iter().enumerate().find(repeated) {
        Some((_, rule)) => Err(RulesError::SameName(rule.name.clone())),
        None => Ok(()),
    }
}

/// Returns the names of the metrics of a kind of row that rules compare.
pub fn metrics(kind: &str) -> Vec<&'static str> {
    match kind {
        "gpu" => comparable(GpuField::ALL),
        "host" => comparable(HostField::ALL),
        _ => comparable(JobField::ALL),
    }
}

fn names(kind: &str) -> String {
    metrics(kind).join(", ")
}

fn comparable<F: Field>(fields: &'static [F]) -> Vec<&'static str> {
    fields.iter().filter(|field| is_quantity(**field)).map(|field| field.name()).collect()
}

fn is_quantity<F: Field>(field: F) -> bool {
    !matches!(field.metric().kind, ValueKind::BitMask | ValueKind::State)
}

fn units(unit: Unit) -> String {
    match unit {
        Unit::Byte | Unit::BytePerSecond => {
            format!(" of {}, or one with KiB, MiB, GiB or TiB", unit.symbol())
        }
        Unit::Hundredth => " of hundredths".to_owned(),
        unit if unit.symbol().is_empty() => String::new(),
        unit => format!(" of {}", unit.symbol()),
    }
}

impl RuleMetric {
    fn parse(raw: &str) -> Result<Self, RuleError> {
        let (kind, name) = raw.split_once('.').ok_or_else(|| RuleError::Kind(raw.to_owned()))?;
        fn field<F: Field>(name: &str) -> Result<F, RuleError> {
            let unknown = || RuleError::Metric { kind: F::ROW_KIND, name: name.to_owned() };
            let field = F::from_name(name).ok_or_else(unknown)?;
            let refuse = || RuleError::NotAQuantity(format!("{}.{name}", F::ROW_KIND));
            is_quantity(field).then_some(field).ok_or_else(refuse)
        }
        match kind {
            "gpu" => field(name).map(Self::Gpu),
            "host" => field(name).map(Self::Host),
            "job" => field(name).map(Self::Job),
            _ => Err(RuleError::Kind(raw.to_owned())),
        }
    }

    /// Returns its name with the kind of row: `gpu.temp_c`.
    pub fn name(self) -> String {
        fn full<F: Field>(field: F) -> String {
            format!("{}.{}", F::ROW_KIND, field.name())
        }
        match self {
            Self::Gpu(field) => full(field),
            Self::Host(field) => full(field),
            Self::Job(field) => full(field),
        }
    }

    /// Returns its title: `Temperature`.
    pub fn title(self) -> &'static str {
        match self {
            Self::Gpu(field) => field.metric().title,
            Self::Host(field) => field.metric().title,
            Self::Job(field) => field.metric().title,
        }
    }

    /// Returns the unit of its values.
    pub fn unit(self) -> Unit {
        match self {
            Self::Gpu(field) => field.metric().unit,
            Self::Host(field) => field.metric().unit,
            Self::Job(field) => field.metric().unit,
        }
    }
}

impl Comparison {
    pub(crate) fn holds(self, value: u64, limit: u64) -> bool {
        match self {
            Self::Above => value > limit,
            Self::AtLeast => value >= limit,
            Self::Below => value < limit,
            Self::AtMost => value <= limit,
        }
    }

    /// Returns its words before a number: `above`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Above => "above",
            Self::AtLeast => "at least",
            Self::Below => "below",
            Self::AtMost => "at most",
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            Self::Above => ">",
            Self::AtLeast => ">=",
            Self::Below => "<",
            Self::AtMost => "<=",
        }
    }
}

/// Parses `5m`, `30s` or `2h` to s.
fn seconds(raw: &str) -> Option<u64> {
    let seconds = humantime::parse_duration(raw).ok()?.as_secs();
    (MIN_S..=MAX_S).contains(&seconds).then_some(seconds)
}

/// Parses a limit in a unit; sizes may have a suffix: `70GiB`.
fn limit(raw: &str, unit: Unit) -> Option<u64> {
    let digits = raw.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let suffix = raw[digits.len()..].trim();
    let number: u64 = digits.parse().ok()?;
    let shift = match (suffix, unit) {
        ("", _) => 0,
        ("KiB", Unit::Byte | Unit::BytePerSecond) => 10,
        ("MiB", Unit::Byte | Unit::BytePerSecond) => 20,
        ("GiB", Unit::Byte | Unit::BytePerSecond) => 30,
        ("TiB", Unit::Byte | Unit::BytePerSecond) => 40,
        (symbol, unit) if symbol == unit.symbol() => 0,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(raw: &str) -> Result<Self, RuleError> {
        let (name, rest) = raw.split_once('=').ok_or(RuleError::Syntax)?;
        let name = name.trim();
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_name) {
            return Err(RuleError::Name(name.to_owned()));
        }
        let (condition, more) = rest.split_once(',').map_or((rest, ""), |(head, more)| (head, more.trim()));
        let (condition, time) = condition.rsplit_once(" for ").ok_or(RuleError::Syntax)?;
        let at = condition.find(['<', '>']).ok_or(RuleError::Syntax)?;
        let (metric, right) = condition.split_at(at);
        let metric = RuleMetric::parse(metric.trim())?;
        let (comparison, value) =
            [Comparison::AtLeast, Comparison::AtMost, Comparison::Above, Comparison::Below]
                .into_iter()
                .find_map(|comparison| Some((comparison, right.strip_prefix(comparison.symbol())?.trim())))
                .ok_or(RuleError::Syntax)?;
        let unit = metric.unit();
        let refuse = || RuleError::Limit { metric: metric.name(), unit, value: value.to_owned() };
        let limit = limit(value, unit).ok_or_else(refuse)?;
        let for_s = seconds(time.trim()).ok_or_else(|| RuleError::Time(time.trim().to_owned()))?;
        let (first, rest) = more.split_once(',').unwrap_or((more, ""));
        let severity = match first.trim() {
            "info" => Some(FindingSeverity::Info),
            "warning" => Some(FindingSeverity::Warning),
            "error" => Some(FindingSeverity::Error),
            _ => None,
        };
        // What is not a severity is the text.
        let text = if severity.is_some() { rest.trim() } else { more };
        if text.len() > MAX_TEXT {
            return Err(RuleError::Text);
        }
        Ok(Self {
            name: name.to_owned(),
            metric,
            comparison,
            limit,
            for_ms: for_s * 1_000,
            severity: severity.unwrap_or(FindingSeverity::Warning),
            text: Some(text.to_owned()).filter(|text| !text.is_empty()),
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (metric, symbol, limit) = (self.metric.name(), self.comparison.symbol(), self.limit);
        let (for_s, severity) = (self.for_ms / 1_000, self.severity.name());
        write!(f, "{}={metric} {symbol} {limit} for {for_s}s, {severity}", self.name)?;
        self.text.iter().try_for_each(|text| write!(f, ", {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(raw: &str) -> String {
        raw.parse::<Rule>().expect_err(raw).to_string()
    }

    #[test]
    fn a_rule_states_metric_limit_time_severity_and_text() {
        let hot: Rule = "hot=gpu.temp_c > 80 for 5m, error, Ask about cooling, soon".parse().unwrap();
        assert_eq!(
            (hot.metric, hot.comparison, hot.limit),
            (RuleMetric::Gpu(GpuField::Temp), Comparison::Above, 80)
        );
        assert_eq!((hot.for_ms, hot.severity), (300_000, FindingSeverity::Error));
        assert_eq!(hot.text.as_deref(), Some("Ask about cooling, soon"));
        let full: Rule = "full = host.mem_used_bytes >= 70GiB for 30s, Close something".parse().unwrap();
        assert_eq!((full.limit, full.severity), (70 << 30, FindingSeverity::Warning));
        assert_eq!(full.text.as_deref(), Some("Close something"));
        for rule in [hot, full] {
            assert_eq!(rule.to_string().parse(), Ok(rule.clone()), "as it is displayed");
        }
    }

    #[test]
    fn what_is_wrong_with_a_rule_is_stated_with_what_is_right() {
        assert!(error("gpu.temp_c > 80 for 5m").contains("NAME=METRIC"), "no name");
        assert!(error("hot=gpu.temp_c 80 for 5m").contains("NAME=METRIC"), "no comparison");
        assert!(error("hot=gpu.temp_c > 80").contains("NAME=METRIC"), "no time");
        assert!(error("Hot!=gpu.temp_c > 80 for 5m").contains("lower-case"));
        let unknown = error("hot=gpu.temperature_c > 80 for 5m");
        assert!(
            unknown.starts_with("there is no metric gpu.temperature_c; those of gpu are util_pct, "),
            "{unknown}"
        );
        assert!(unknown.contains("temp_c") && !unknown.contains("throttle"), "{unknown}");
        assert!(error("x=disk.temp_c > 8 for 5m").contains("gpu., host. or job."));
        assert!(error("x=gpu.temp_c > warm for 5m").contains("whole number of °C"));
        assert!(error("x=gpu.temp_c > 80GiB for 5m").contains("whole number of °C"));
        assert!(error("x=gpu.temp_c > 80 for 5 parsecs").contains("10s to 24h"));
        assert!(error("x=gpu.temp_c > 80 for 1s").contains("10s to 24h"));
        assert_eq!(
            error(&format!("x=gpu.temp_c > 8 for 5m, {}", "a".repeat(201))),
            RuleError::Text.to_string()
        );
    }

    #[test]
    fn rules_have_different_names_and_are_not_too_many() {
        let rule = |name: &str| format!("{name}=gpu.temp_c > 8 for 5m").parse::<Rule>().unwrap();
        assert_eq!(check(&[rule("a"), rule("b")]), Ok(()));
        assert_eq!(check(&[rule("a"), rule("b"), rule("a")]), Err(RulesError::SameName("a".to_owned())));
        let many: Vec<Rule> = (0..33).map(|number| rule(&format!("r{number}"))).collect();
        assert_eq!(check(&many), Err(RulesError::TooMany(33)));
    }
}
