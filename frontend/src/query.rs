//! The part of the URL after `?`: what is filtered, sorted and opened, as a colleague would be sent it.

use crate::place::Place;
use std::fmt::Write;

/// The length of time that charts show: stays wherever one goes.
pub const RANGE: &str = "r";
/// The GPU whose panel is open, by its UUID.
pub const GPU: &str = "gpu";
/// The process whose sheet is open: `NODE/PID/STARTED`.
pub const PROCESS: &str = "pid";

/// Wall mode: no bars, and the places go by; with a value, every so many seconds.
pub const KIOSK: &str = "kiosk";

/// Makes the URL of a link new to the browser's cache; of no further use.
pub const CACHE_BUSTER: &str = "v";

/// Names and values in the order of the URL. Unknown names stay where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads what comes after `?`.
    pub fn parse(text: &str) -> Self {
        let pairs = text.trim_start_matches('?').split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        };
        Self(pairs.map(pair).collect())
    }

    /// The value of a name, if it is there and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Whether a name is there, with or without a value: a switch.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// Gives a name another value, in its place; without a value it goes.
    pub fn set(&mut self, name: &str, value: Option<String>) {
        let value = value.filter(|value| !value.is_empty());
        match (self.0.iter().position(|(known, _)| known == name), value) {
            (Some(at), Some(value)) => self.0[at].1 = value,
            (Some(at), None) => drop(self.0.remove(at)),
            (None, Some(value)) => self.0.push((name.to_owned(), value)),
            (None, None) => {}
        }
    }

    /// What of it still holds elsewhere. What is open closes; filters and sorting hold for one job or node;
    /// the range, and what is not known here, hold everywhere.
    pub fn carried(&self, from: &Place, to: &Place) -> Self {
        let same = from.topic() == to.topic();
        let holds = |name: &str| match name {
            GPU | PROCESS => false,
            _ => same || !(name.starts_with('f') || name.starts_with('s')),
        };
        Self(self.0.iter().filter(|(name, _)| holds(name)).cloned().collect())
    }

    /// As it stands in the URL: empty, or from `?` on.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.0 {
            text.push(if text.is_empty() { '?' } else { '&' });
            encode(name, &mut text);
            if !value.is_empty() {
                text.push('=');
                encode(value, &mut text);
            }
        }
        text
    }
}

/// Escapes what has a meaning in a query or breaks a link in a chat; the rest stays readable.
fn encode(text: &str, to: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => to.push(byte.into()),
            b'-' | b'_' | b'.' | b'~' | b':' | b'*' | b',' | b'/' | b'@' | b'!' => to.push(byte.into()),
            b' ' => to.push('+'),
            _ => drop(write!(to, "%{byte:02X}")),
        }
    }
}

/// The text of an escaped part; what is no escape stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = after.get(..2).filter(|_| *first == b'%').and_then(hex);
        bytes.push(match (first, escaped) {
            (_, Some(byte)) => byte,
            (b'+', None) => b' ',
            (byte, None) => *byte,
        });
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let [high, low] = digits else { return None };
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Tab;
    use nodeglass_protocol::JobId;

    #[test]
    fn whatever_is_typed_comes_back_from_the_url() {
        for value in ["user:alice sm>50", "a&b=c#d?e", "100%", "ünïcode ⌘", "gpu+", "%41", "a+b c"] {
            let mut query = Query::default();
            query.set("f", Some(value.to_owned()));
            assert_eq!(Query::parse(&query.text()).get("f"), Some(value));
        }
    }

    #[test]
    fn names_of_others_stay_and_keep_their_order() {
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
    fn what_is_no_escape_is_a_text_and_no_reason_to_stop() {
        assert_eq!(Query::parse("f=50%&s=%zz&r=%e2%82").get("f"), Some("50%"));
        assert_eq!(Query::parse("s=%zz").get("s"), Some("%zz"));
        assert_eq!(Query::parse("r=%ff").get("r"), Some("\u{fffd}"));
    }

    #[test]
    fn a_filter_stays_with_its_job_and_the_range_goes_along() {
        let query = Query::parse("f=sm>50&sg=temp-&r=1h&pid=n1/4/5&x=y");
        let (job, other) = (Place::Job(JobId(1), Tab::Nodes), Place::Job(JobId(2), Tab::Nodes));
        assert_eq!(
            query.carried(&job, &Place::Job(JobId(1), Tab::Processes)).text(),
            "?f=sm%3E50&sg=temp-&r=1h&x=y"
        );
        assert_eq!(query.carried(&job, &other).text(), "?r=1h&x=y");
    }
}
