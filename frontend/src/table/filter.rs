//! The filter language of tables, and errors that say what is wrong and where.
//!
//! A filter is a list of terms that must all match: `user:alice sm>50 mem>=10g node:gpu-0*,gpu-1? !docker
//! command:"python train.py"`. A term is text to find anywhere in a row, or a column, a relation and values;
//! of several values, separated by commas, one must match. `!` negates a term, and `none` matches missing
//! values.

use super::column::{self, Column};
use super::value::{CellUnit, Value};

/// A parsed filter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter(Vec<Term>);

#[derive(Clone, Debug, PartialEq)]
struct Term {
    not: bool,
    test: Test,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    /// The text occurs somewhere in the row.
    Anywhere(String),
    /// One of the conditions holds for a column.
    Column(usize, Vec<Condition>),
}

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    /// The value is missing.
    Absent,
    /// The text or one of its tags contains this in lowercase, or matches it as a pattern.
    Like(String),
    /// The text or one of its tags equals this in lowercase.
    Is(String),
    /// Compares the number.
    Number(Relation, u64),
    /// Compares the percentage of the maximum.
    Share(Relation, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Like,
    Is,
    IsNot,
    More,
    AtLeast,
    Less,
    AtMost,
}

impl Relation {
    /// Spellings, the longer ones first.
    const ALL: [(&'static str, Self); 7] = [
        (">=", Self::AtLeast),
        ("<=", Self::AtMost),
        ("!=", Self::IsNot),
        (">", Self::More),
        ("<", Self::Less),
        ("=", Self::Is),
        (":", Self::Like),
    ];

    fn holds(self, number: u64, of: u64) -> bool {
        match self {
            Self::Like | Self::Is | Self::IsNot => number == of,
            Self::More => number > of,
            Self::AtLeast => number >= of,
            Self::Less => number < of,
            Self::AtMost => number <= of,
        }
    }
}

/// Error of parsing a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// Position of the error, in characters from the start.
    pub at: usize,
    /// The problem, one sentence.
    pub message: String,
}

impl Filter {
    /// Parses a filter for a table with these columns.
    ///
    /// # Errors
    /// Returns [`FilterError`] for the first invalid term.
    pub fn parse(text: &str, columns: &[Column]) -> Result<Self, FilterError> {
        let terms = joined(tokens(text)?, columns);
        let term = |token: Token| {
            term(&token.text, columns).map_err(|message| FilterError { at: token.at, message })
        };
        terms.into_iter().map(term).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether it matches every row.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a row matches; `value` reads one of its columns.
    pub fn passes(&self, columns: &[Column], value: &dyn Fn(usize) -> Value) -> bool {
        self.0.iter().all(|term| term.not != passes(&term.test, columns, value))
    }
}

fn passes(test: &Test, columns: &[Column], value: &dyn Fn(usize) -> Value) -> bool {
    match test {
        Test::Anywhere(text) => (0..columns.len()).any(|at| {
            let column = &columns[at];
            let searched = column.has_value() && matches!(column.unit, CellUnit::Text | CellUnit::Id);
            searched && value(at).searched(column.unit).iter().any(|line| matches(text, line))
        }),
        Test::Column(at, conditions) => {
            let (value, unit) = (value(*at), columns[*at].unit);
            conditions.iter().any(|condition| condition.holds(&value, unit))
        }
    }
}

impl Condition {
    fn holds(&self, value: &Value, unit: CellUnit) -> bool {
        if value.why_absent().is_some() {
            return *self == Self::Absent;
        }
        match self {
            Self::Absent => false,
            Self::Like(pattern) => value.searched(unit).iter().any(|line| matches(pattern, line)),
            Self::Is(text) => value.searched(unit).contains(text),
            Self::Number(relation, of) => match value {
                // A list of numbers, such as the ranks that share a GPU: one of them must match. The index of a
                // device may follow its vendor: `AMD 0`.
                Value::Text(list) if unit.is_number() => list
                    .split(", ")
                    .filter_map(|part| part.rsplit(' ').next()?.parse().ok())
                    .any(|part| relation.holds(part, *of)),
                _ => value.as_number().is_some_and(|number| relation.holds(number, *of)),
            },
            Self::Share(relation, of) => {
                let share = value.share(unit).map(|share| (share * 100.0).round() as u64);
                share.is_some_and(|share| relation.holds(share, *of))
            }
        }
    }
}

/// A token and its position.
struct Token {
    at: usize,
    text: String,
}

/// Splits a filter at blanks; quoted text keeps its blanks and its quotes.
fn tokens(text: &str) -> Result<Vec<Token>, FilterError> {
    let (mut tokens, mut open) = (Vec::<Token>::new(), None);
    let mut inside = false;
    for (at, letter) in text.chars().enumerate() {
        if letter == '"' {
            open = if open.is_some() { None } else { Some(at) };
        }
        if letter.is_whitespace() && open.is_none() {
            inside = false;
        } else if let (true, Some(token)) = (inside, tokens.last_mut()) {
            token.text.push(letter);
        } else {
            tokens.push(Token { at, text: letter.into() });
            inside = true;
        }
    }
    match open {
        Some(at) => Err(FilterError { at, message: "The quotation mark is not closed.".to_owned() }),
        None => Ok(tokens),
    }
}

/// Joins a column, a relation and a value that have blanks between them: `util < 10`.
fn joined(tokens: Vec<Token>, columns: &[Column]) -> Vec<Token> {
    let mut joined = Vec::<Token>::new();
    for token in tokens {
        match joined.last_mut() {
            Some(last) if continues(&last.text, &token.text, columns) => last.text.push_str(&token.text),
            _ => joined.push(token),
        }
    }
    joined
}

fn continues(before: &str, next: &str, columns: &[Column]) -> bool {
    let before = before.trim_start_matches(['!', '-']);
    let is_column = |name: &str| column::find(columns, name).is_some_and(|at| columns[at].has_value());
    let begins_with_relation = || Relation::ALL.iter().any(|(relation, _)| next.starts_with(relation));
    let lacks_value = |(name, _, values): (&str, Relation, &str)| values.is_empty() && is_column(name);
    is_column(before) && begins_with_relation() || split(before).is_some_and(lacks_value)
}

fn term(token: &str, columns: &[Column]) -> Result<Term, String> {
    let (negated, rest) = match token.strip_prefix(['!', '-']) {
        // Text may begin with two dashes, as options do.
        Some(rest) if !rest.is_empty() && !token.starts_with("--") => (true, rest),
        _ => (false, token),
    };
    let Some((name, relation, values)) = split(rest) else {
        let text = unquoted(rest).to_lowercase();
        return Ok(Term { not: negated, test: Test::Anywhere(text) });
    };
    let at = column::find(columns, name).filter(|at| columns[*at].has_value());
    let at = at.ok_or_else(|| unknown(name, columns))?;
    if values.is_empty() {
        return Err(format!("Enter a value after “{rest}”."));
    }
    let conditions: Result<Vec<Condition>, String> =
        split_values(values).map(|value| condition(&columns[at], relation, &value)).collect();
    Ok(Term { not: negated != (relation == Relation::IsNot), test: Test::Column(at, conditions?) })
}

/// Splits a term into column, relation and values, if it has that form.
fn split(term: &str) -> Option<(&str, Relation, &str)> {
    let end =
        term.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').filter(|end| *end > 0)?;
    let (name, rest) = term.split_at(end);
    Relation::ALL.iter().find_map(|(sign, relation)| Some((name, *relation, rest.strip_prefix(sign)?)))
}

/// Returns the values between commas outside of quotes, without their quotes.
fn split_values(values: &str) -> impl Iterator<Item = String> {
    let mut quoted = false;
    let parts = values.split(move |letter| {
        quoted ^= letter == '"';
        letter == ',' && !quoted
    });
    parts.map(unquoted).filter(|part| !part.is_empty())
}

fn unquoted(text: &str) -> String {
    text.replace('"', "")
}

fn condition(column: &Column, relation: Relation, value: &str) -> Result<Condition, String> {
    if value == "none" || value == "-" {
        return match relation {
            Relation::Like | Relation::Is | Relation::IsNot => Ok(Condition::Absent),
            _ => Err(format!("“{value}” is a missing value: compare it with : or =.")),
        };
    }
    let small = value.to_lowercase();
    if !column.unit.is_number() {
        return match relation {
            Relation::Like => Ok(Condition::Like(small)),
            Relation::Is | Relation::IsNot => Ok(Condition::Is(small)),
            _ => Err(format!("“{}” is text: compare it with : or =.", column.id)),
        };
    }
    if small.contains(['*', '?']) && relation == Relation::Like {
        return Ok(Condition::Like(small));
    }
    let percent = small.strip_suffix('%').filter(|_| column.unit != CellUnit::Percent);
    if let Some(percent) = percent.and_then(|digits| digits.parse().ok()) {
        return Ok(Condition::Share(relation, percent));
    }
    let number = quantity(&small, column.unit);
    let number = number.ok_or_else(|| format!("“{value}” is not {}.", measure(column.unit)))?;
    Ok(Condition::Number(relation, number))
}

/// Parses a number with a unit into the base of a column's unit; without a unit it is in the displayed unit.
fn quantity(text: &str, unit: CellUnit) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let number = decimal(number)?;
    let scale = scale(suffix.trim_end_matches("ib").trim_end_matches("b"), unit)?;
    Some((number * scale).round() as u64)
}

/// Parses an unsigned decimal. The standard library's parser accepts more forms and needs a table of 10 kB,
/// which the page would have to load.
fn decimal(text: &str) -> Option<f64> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{rest}");
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.len() <= 15;
    let value: u64 = digits.parse().ok().filter(|_| is_number)?;
    Some(value as f64 / 10f64.powi(rest.len() as i32))
}

fn scale(suffix: &str, unit: CellUnit) -> Option<f64> {
    const KIB: f64 = 1_024.0;
    Some(match (unit, suffix) {
        (CellUnit::Gib, "") | (CellUnit::Gib | CellUnit::MibPerSecond, "g") => KIB * KIB * KIB,
        (CellUnit::MibPerSecond, "") | (CellUnit::Gib | CellUnit::MibPerSecond, "m") => KIB * KIB,
        (CellUnit::Gib | CellUnit::MibPerSecond, "k") => KIB,
        (CellUnit::Gib, "t") => KIB * KIB * KIB * KIB,
        (CellUnit::Span, "" | "s") => 1.0,
        (CellUnit::Span, "m" | "min") => 60.0,
        (CellUnit::Span, "h") => 3_600.0,
        (CellUnit::Span, "d") => 86_400.0,
        (CellUnit::WattHour, "" | "kwh") => 1_000.0,
        (CellUnit::WattHour, "wh") => 1.0,
        (CellUnit::Hundredth, "") => 100.0,
        (CellUnit::Watt, "kw") => 1_000.0,
        (CellUnit::Percent, "" | "%") | (CellUnit::Watt, "" | "w") | (CellUnit::Celsius, "" | "c") => 1.0,
        (CellUnit::Count | CellUnit::Id | CellUnit::Megahertz, "") | (CellUnit::Megahertz, "mhz") => 1.0,
        (CellUnit::Count | CellUnit::Watt, "k") => 1_000.0,
        _ => return None,
    })
}

/// Describes what is expected where a number of a unit should stand.
fn measure(unit: CellUnit) -> &'static str {
    match unit {
        CellUnit::Gib => "an amount of memory (try 10g, 512m or 80%)",
        CellUnit::MibPerSecond => "a rate (try 100m or 2g)",
        CellUnit::Span => "a duration (try 90s, 10m, 6h or 2d)",
        CellUnit::Percent => "a percentage (try 50)",
        _ => "a number",
    }
}

fn unknown(name: &str, columns: &[Column]) -> String {
    let names = || columns.iter().filter(|column| column.has_value()).map(|column| column.id);
    let small = name.to_lowercase();
    let near = |id: &&str| id.starts_with(&small) || small.starts_with(*id) || distance(id, &small) <= 1;
    let near: Vec<&str> = names().filter(near).collect();
    if near.is_empty() {
        return format!(
            "No column is named “{name}”. The columns are {}.",
            names().collect::<Vec<_>>().join(", ")
        );
    }
    format!("No column is named “{name}”. Did you mean {}?", near.join(" or "))
}

/// Returns the edit distance of two words, at most 2.
fn distance(one: &str, other: &str) -> usize {
    let (a, b) = (one.as_bytes(), other.as_bytes());
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[same..], &b[same..]);
    let tail = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    (a.len() - tail).max(b.len() - tail).min(2)
}

/// Returns whether a text contains the pattern; with `*` or `?`, whether it matches from end to end.
fn matches(pattern: &str, text: &str) -> bool {
    if !pattern.contains(['*', '?']) {
        return text.contains(pattern);
    }
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut here) = (0, 0);
    // Position of the last star, and how much of the text it matches.
    let mut star = None;
    while here < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, here));
                at += 1;
            }
            Some(letter) if *letter == '?' || *letter == text[here] => (at, here) = (at + 1, here + 1),
            _ => {
                let Some((from, taken)) = star else { return false };
                star = Some((from, taken + 1));
                (at, here) = (from + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|letter| *letter == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::column::CellStyle;

    const COLUMNS: [Column; 8] = [
        Column::new("user", "User", CellUnit::Text, 80, ""),
        Column::new("sm", "SM", CellUnit::Percent, 50, ""),
        Column::new("mem", "Memory", CellUnit::Gib, 80, ""),
        Column::new("node", "Node", CellUnit::Text, 80, ""),
        Column::new("rank", "Rank", CellUnit::Id, 40, ""),
        Column::new("time", "Run time", CellUnit::Span, 80, "").aliases(&["runtime"]),
        Column::new("command", "Command", CellUnit::Text, 80, ""),
        Column::new("spark", "Last 10 min", CellUnit::Text, 80, "").style(CellStyle::Graphic),
    ];

    fn row(at: usize) -> Value {
        match at {
            0 => Value::text("alice"),
            1 => Value::Number(60),
            2 => Value::Part(20 << 30, 80 << 30),
            3 => Value::text("gpu-07"),
            4 => Value::NONE,
            5 => Value::Number(7_200),
            6 => Value::text("python train.py --Docker"),
            _ => Value::NONE,
        }
    }

    fn passes(text: &str) -> bool {
        Filter::parse(text, &COLUMNS).unwrap().passes(&COLUMNS, &row)
    }

    fn error(text: &str) -> FilterError {
        Filter::parse(text, &COLUMNS).unwrap_err()
    }

    #[test]
    fn all_terms_must_match_and_one_of_several_values() {
        assert!(passes("user:alice sm>50 mem>10g node:gpu-0*"));
        assert!(!passes("user:alice sm>60"));
        assert!(passes("user:bob,ali rank:none"));
        assert!(passes(""));
    }

    #[test]
    fn relations_compare_as_written() {
        for text in ["sm>=60", "sm<=60", "sm=60", "sm:60", "sm!=61", "sm<61", "user!=bob", "user=ALICE"] {
            assert!(passes(text), "{text}");
        }
        for text in ["sm>60", "sm<60", "sm!=60", "user!=alice", "user=ali"] {
            assert!(!passes(text), "{text}");
        }
        for text in ["sm >= 60", "sm> 59", "sm <61 user:alice", "user != bob", "!user : bob", "alice sm = 60"]
        {
            assert!(passes(text), "{text}");
        }
        assert!(!passes("sm < 60") && !passes("user = bob"));
        assert_eq!(error("sm >").message, "Enter a value after “sm>”.");
    }

    #[test]
    fn numbers_use_the_columns_unit() {
        for text in ["mem>19", "mem<21g", "mem>19.5gib", "mem<21000m", "mem<1t", "mem=25%", "mem<30%"] {
            assert!(passes(text), "{text}");
        }
        for text in ["time>119m", "time>1.9h", "runtime<3h", "time<1d", "time=7200", "sm>59%"] {
            assert!(passes(text), "{text}");
        }
    }

    #[test]
    fn a_decimal_is_digits_with_at_most_one_point() {
        let numbers =
            ["0", "19.5", ".5", "7.", "1024", "0.001", "1.2.3", ".", "", "1e3", "-1", "9999999999999999"];
        let read = numbers.map(decimal);
        assert_eq!(read[..6], [Some(0.0), Some(19.5), Some(0.5), Some(7.0), Some(1_024.0), Some(0.001)]);
        assert!(read[6..].iter().all(Option::is_none), "{read:?}");
    }

    #[test]
    fn text_is_found_anywhere_and_a_mark_negates_a_term() {
        assert!(passes("docker"));
        assert!(!passes("!docker"));
        assert!(passes("-torch \"python train\""));
        assert!(passes("command:\"train.py --docker\""));
        assert!(!passes("!user:al*"));
    }

    #[test]
    fn a_pattern_matches_from_end_to_end() {
        assert!(passes("node:gpu-0?"));
        assert!(passes("node:*7"));
        assert!(!passes("node:gpu-?"));
        assert!(passes("node:gpu"));
        assert!(matches("a*b*c", "axxbyybzc"));
        assert!(!matches("a*b*c", "axxbyybz"));
        assert!(matches("*", ""));
    }

    #[test]
    fn a_missing_value_is_neither_small_nor_large() {
        assert!(!passes("rank<5"));
        assert!(!passes("rank>5"));
        assert!(!passes("rank=0"));
        assert!(passes("rank:none"));
        assert!(!passes("sm:none"));
    }

    #[test]
    fn errors_have_a_position_and_a_reason() {
        let unknown = error("user:alice usr:bob");
        assert_eq!(
            (unknown.at, unknown.message.as_str()),
            (11, "No column is named “usr”. Did you mean user?")
        );
        assert!(
            error("foo:1").message.ends_with("The columns are user, sm, mem, node, rank, time, command.")
        );
        assert_eq!(error("sm>fast").message, "“fast” is not a percentage (try 50).");
        assert_eq!(error("user>alice").message, "“user” is text: compare it with : or =.");
        assert_eq!(error("x sm>").message, "Enter a value after “sm>”.");
        assert_eq!(error("sm>none").message, "“none” is a missing value: compare it with : or =.");
        assert_eq!(error("ü \"open").at, 2);
        assert!(error("spark:1").message.starts_with("No column is named"));
    }

    #[test]
    fn operators_that_begin_no_term_are_text() {
        assert!(passes("--docker"));
        assert!(!passes("\"http://x\""), "quoted text is not a term, and it does not occur in this row");
        assert!(error("http://x").message.starts_with("No column is named “http”."));
    }
}
