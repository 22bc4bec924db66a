//! The query part of the URL: filter, order and open sheets, so that a link shows them to a colleague.

use crate::domain::route::Route;
use std::fmt::Write;

/// The time range of the charts; applies to every route.
pub const RANGE: &str = "r";
/// The metric of heat map and comparison, by name.
pub const METRIC: &str = "m";
/// The GPU that is highlighted in the graphs: `NODE/UUID`.
pub const PIN: &str = "pin";
/// The GPU whose sheet is open, by its UUID.
pub const GPU: &str = "gpu";
/// The process whose sheet is open: `NODE/PID/STARTED`.
pub const PROCESS: &str = "pid";

/// The finding whose evidence a log shows, by its key.
pub const FINDING: &str = "finding";

/// Whether a table shows the rows that it folds otherwise: `all`.
pub const SHOWN: &str = "shown";

/// Kiosk mode: hides the bars and rotates through the jobs; the value is the interval in seconds.
pub const KIOSK: &str = "kiosk";

/// Makes a printed link unique, so that the browser does not serve it from its cache; otherwise unused.
pub const CACHE_BUSTER: &str = "v";

/// Parameters (name and value) in the order of the URL. Unknown parameters keep their position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the part after `?`.
    pub fn parse(text: &str) -> Self {
        let pairs = text.trim_start_matches('?').split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(name), percent_decode(value))
        };
        Self(pairs.map(pair).collect())
    }

    /// Returns the value of a parameter unless it is missing or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns whether a parameter is present, with or without a value.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// Sets the value of a parameter, keeping its position; `None` removes it.
    pub fn set(&mut self, name: &str, value: Option<String>) {
        let value = value.filter(|value| !value.is_empty());
        match (self.0.iter().position(|(known, _)| known == name), value) {
            (Some(at), Some(value)) => self.0[at].1 = value,
            (Some(at), None) => drop(self.0.remove(at)),
            (None, Some(value)) => self.0.push((name.to_owned(), value)),
            (None, None) => {}
        }
    }

    /// Returns the parameters to keep on the way to another route. Sheets close; filter, order, the metric and the
    /// highlighted GPU are kept within one job, array or node; the range and unknown parameters are kept everywhere.
    pub fn retained(&self, from: &Route, to: &Route) -> Self {
        let same_topic = from.topic() == to.topic() && from.array() == to.array();
        let is_kept = |name: &str| match name {
            GPU | PROCESS | FINDING => false,
            PIN | METRIC => same_topic,
            _ => same_topic || !(name.starts_with('f') || name.starts_with('s')),
        };
        Self(self.0.iter().filter(|(name, _)| is_kept(name)).cloned().collect())
    }

    /// Returns the percent-encoded query with its leading `?`, or an empty string.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.0 {
            text.push(if text.is_empty() { '?' } else { '&' });
            percent_encode(name, &mut text);
            if !value.is_empty() {
                text.push('=');
                percent_encode(value, &mut text);
            }
        }
        text
    }
}

/// Escapes characters that are special in a query or break a link in a chat; the rest stays readable.
fn percent_encode(text: &str, to: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => to.push(byte.into()),
            b'-' | b'_' | b'.' | b'~' | b':' | b'*' | b',' | b'/' | b'@' | b'!' => to.push(byte.into()),
            b' ' => to.push('+'),
            _ => drop(write!(to, "%{byte:02X}")),
        }
    }
}

/// Decodes a percent-encoded part; malformed escapes stay as they are.
fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = after.get(..2).filter(|_| *first == b'%').and_then(hex_byte);
        bytes.push(match (first, escaped) {
            (_, Some(byte)) => byte,
            (b'+', None) => b' ',
            (byte, None) => *byte,
        });
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let [high, low] = digits else { return None };
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::route::JobTab;
    use nodeglass_protocol::JobId;

    #[test]
    fn any_text_round_trips_through_the_url() {
        for value in ["user:alice sm>50", "a&b=c#d?e", "100%", "ünïcode ⌘", "gpu+", "%41", "a+b c"] {
            let mut query = Query::default();
            query.set("f", Some(value.to_owned()));
            assert_eq!(Query::parse(&query.text()).get("f"), Some(value));
        }
    }

    #[test]
    fn unknown_names_stay_and_keep_their_order() {
        let mut query = Query::parse("?utm=x&f=old&flag");
        query.set("f", Some("new".into()));
        query.set("s", Some("sm-".into()));
        assert_eq!(query.text(), "?utm=x&f=new&flag&s=sm-");
        query.set("f", None);
        assert_eq!(query.text(), "?utm=x&flag&s=sm-");
    }

    #[test]
    fn an_empty_value_is_none() {
        let mut query = Query::parse("f=&s=a");
        assert_eq!(query.get("f"), None);
        query.set("s", Some(String::new()));
        assert_eq!(query.get("s"), None);
    }

    #[test]
    fn malformed_escapes_are_kept_as_text() {
        assert_eq!(Query::parse("f=50%&s=%zz&r=%e2%82").get("f"), Some("50%"));
        assert_eq!(Query::parse("s=%zz").get("s"), Some("%zz"));
        assert_eq!(Query::parse("r=%ff").get("r"), Some("\u{fffd}"));
    }

    #[test]
    fn a_filter_stays_with_its_job_and_the_range_applies_everywhere() {
        let query = Query::parse("f=sm>50&sg=temp-&r=1h&pid=n1/4/5&pin=n1/G&m=power_w&x=y");
        let (job, other) = (Route::Job(JobId(1), JobTab::Nodes), Route::Job(JobId(2), JobTab::Nodes));
        assert_eq!(
            query.retained(&job, &Route::Job(JobId(1), JobTab::Processes)).text(),
            "?f=sm%3E50&sg=temp-&r=1h&pin=n1/G&m=power_w&x=y"
        );
        assert_eq!(query.retained(&job, &other).text(), "?r=1h&x=y");
        let array = Route::Array(JobId(3));
        assert_eq!(query.retained(&Route::AllJobs, &array).text(), "?r=1h&x=y", "another table of jobs");
    }
}
