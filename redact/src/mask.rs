//! Redaction of secrets in command lines and environments.
//!
//! A secret is recognized by the name before it ([`names`]), by the program that takes it
//! ([`programs`]) or by its own format ([`shapes`]). Masking happens at the source and is
//! irreversible: no later stage sees the secret.

mod names;
mod programs;
mod shapes;

use names::NameClass;
use programs::Program;

/// Replacement for a secret.
pub const MASK: &str = "•••";
/// Maximum length of a command line that is examined; far less is displayed.
const MAX_BYTES: usize = 16 << 10;

/// Masks a NUL-separated command line and joins its words with spaces.
pub fn command_line(raw: &[u8]) -> String {
    let raw = raw.strip_suffix(b"\0").unwrap_or(raw);
    let mut reader = Reader::default();
    let beginning = beginning(raw);
    let arguments = beginning.split(|byte| *byte == 0);
    let shown = arguments.filter_map(|argument| reader.argument(&String::from_utf8_lossy(argument)));
    let mut shown = shown.collect::<Vec<_>>().join(" ");
    if beginning.len() < raw.len() {
        shown.push_str(" …");
    }
    shown
}

/// Masks a command in one string, as written in a shell or by SLURM.
pub fn command(text: &str) -> String {
    let text = String::from_utf8_lossy(beginning(text.as_bytes()));
    Reader { of_script: true, ..Reader::default() }.argument(&text).unwrap_or_default()
}

/// Masks the value of a variable, by its name and by its own format.
pub fn value(name: &str, value: &str) -> String {
    // Every shell sets these two, and they contain no secrets.
    let plain = value.is_empty() || matches!(name, "PWD" | "OLDPWD");
    if !plain && names::hides(name, value) {
        return MASK.to_owned();
    }
    command(value)
}

/// Returns the examined prefix. A truncated word might not be recognized, so it is dropped.
fn beginning(raw: &[u8]) -> &[u8] {
    let Some(start) = raw.get(..MAX_BYTES).filter(|start| start.len() < raw.len()) else { return raw };
    let end = start.iter().rposition(|byte| *byte == 0 || byte.is_ascii_whitespace());
    &start[..end.unwrap_or(0)]
}

/// Parses arguments in order, because one may announce that the next is a secret.
#[derive(Default)]
struct Reader {
    expects: Expects,
    program: Program,
    /// Whether this argument is a script, such as the one after `-c`.
    of_script: bool,
}

/// Announcement of the previous word about the next one.
#[derive(Clone, Default, PartialEq)]
enum Expects {
    #[default]
    Nothing,
    /// The value of a name.
    Value(String),
    /// A secret of any format.
    Secret,
    /// `user:password`, with any separator.
    Login(char),
    /// Continuation of a secret up to this quote or the end of the argument; the first word may be
    /// a scheme.
    Rest { until: Option<char>, scheme: bool },
    /// Continuation of a private key up to its end.
    PrivateKey,
}

impl Reader {
    /// Masks one argument; `None` if no text is left.
    fn argument(&mut self, argument: &str) -> Option<String> {
        let of_script = std::mem::replace(&mut self.of_script, programs::next_is_script(argument));
        if !argument.contains(char::is_whitespace) {
            let shown = self.word(argument);
            self.end_argument();
            return shown;
        }
        if let Some(shown) = self.whole(argument, of_script) {
            return Some(shown);
        }
        let words = argument.split(char::is_whitespace).filter_map(|word| self.word(word));
        let shown = words.collect::<Vec<_>>().join(" ");
        self.end_argument();
        Some(shown)
    }

    /// Ends what was open within an argument.
    fn end_argument(&mut self) {
        if matches!(self.expects, Expects::Rest { .. } | Expects::PrivateKey) {
            self.expects = Expects::Nothing;
        }
    }

    /// Returns whether an argument with spaces is a secret as a whole: a passphrase for the option before
    /// it or for its own name.
    fn whole(&mut self, argument: &str, of_script: bool) -> Option<String> {
        let pending = std::mem::take(&mut self.expects);
        match &pending {
            Expects::Secret | Expects::Login(_) => return Some(MASK.to_owned()),
            Expects::Value(name) if !argument.starts_with("--") && names::hides(name, argument) => {
                let scheme = argument.split(' ').next().filter(|word| names::is_scheme(word));
                return Some(scheme.map_or_else(|| MASK.to_owned(), |scheme| format!("{scheme} {MASK}")));
            }
            _ => {}
        }
        let pair = pairs(argument).next()?;
        if pair.separator != '=' || pair.name.contains(char::is_whitespace) {
            return None;
        }
        let is_name = pair.name.starts_with('-') || (!of_script && names::is_variable(pair.name));
        let hidden = is_name && names::hides(pair.name, pair.value);
        hidden.then(|| format!("{}={MASK}", pair.name))
    }

    /// Masks a word without spaces; `None` for the second and later words of a secret.
    fn word(&mut self, word: &str) -> Option<String> {
        if word.is_empty() {
            return Some(String::new());
        }
        match std::mem::take(&mut self.expects) {
            Expects::Secret if !word.starts_with("--") => {
                if self.program.another_secret_follows() {
                    self.expects = Expects::Secret;
                }
                return Some(MASK.to_owned());
            }
            Expects::Value(name) if !word.starts_with("--") => {
                if names::is_scheme(word) {
                    self.expects = Expects::Secret;
                    return Some(word.to_owned());
                }
                if names::hides(&name, word) {
                    self.open_quote(word);
                    return Some(MASK.to_owned());
                }
            }
            Expects::Login(between) if is_login(word, between) => {
                let user = word.split(between).next().unwrap_or_default();
                return Some(format!("{user}{between}{MASK}"));
            }
            Expects::Rest { until, scheme } => return self.more(word, until, scheme),
            Expects::PrivateKey => {
                if !word.contains("-----END") {
                    self.expects = Expects::PrivateKey;
                }
                return None;
            }
            _ => {}
        }
        Some(self.fresh_word(word))
    }

    /// Handles a word that continues a secret.
    fn more(&mut self, word: &str, until: Option<char>, scheme: bool) -> Option<String> {
        let ends = until.is_some_and(|quote| word.contains(quote));
        let is_scheme = scheme && names::is_scheme(word);
        if !ends {
            self.expects = Expects::Rest { until, scheme: is_scheme };
        }
        match (scheme, is_scheme) {
            (_, true) => Some(word.to_owned()),
            (true, false) => Some(MASK.to_owned()),
            (false, _) => None,
        }
    }

    /// Handles a word without context.
    fn fresh_word(&mut self, word: &str) -> String {
        if let Some(at) = word.find("-----BEGIN") {
            if !word[at..].contains("-----END") {
                self.expects = Expects::PrivateKey;
            }
            return format!("{}{MASK}", shapes::masked(&word[..at]));
        }
        self.program.advance(word);
        if let Some(option) = self.program.option_joined_with_secret(word) {
            return format!("{option}{MASK}");
        }
        let word = shapes::masked(word);
        if let Some(pair) = pairs(&word).find(Pair::hides) {
            return self.pair(&word, &pair);
        }
        self.expects = self.expected_after(&word);
        word
    }

    /// Handles a word in which a name announces a secret: all of it is masked, because its end is
    /// unknown.
    fn pair(&mut self, word: &str, pair: &Pair<'_>) -> String {
        let head = &word[..word.len() - pair.value.len()];
        if pair.value.is_empty() {
            // `"password": …` is a JSON pair, `Cookie: …` a header that continues to its end.
            let until = word.chars().next().filter(|c| matches!(c, '"' | '\''));
            self.expects = match pair.is_json() {
                true => Expects::Value(pair.name.to_owned()),
                false => Expects::Rest { until, scheme: true },
            };
            return head.to_owned();
        }
        if names::is_scheme(pair.value) {
            self.expects = Expects::Secret;
            return word.to_owned();
        }
        self.open_quote(pair.value);
        format!("{head}{MASK}")
    }

    /// Returns what an option announces about the next word.
    fn expected_after(&self, word: &str) -> Expects {
        if matches!(word, "Bearer" | "bearer") || self.program.next_is_secret(word) {
            return Expects::Secret;
        }
        match self.program.next_credentials_separator(word) {
            Some(between) => Expects::Login(between),
            None if word.starts_with('-') && names::takes_secret(word) => Expects::Value(word.to_owned()),
            None => Expects::Nothing,
        }
    }

    /// A value with an opening quote continues up to the closing one.
    fn open_quote(&mut self, value: &str) {
        if let Some(quote) = value.chars().next().filter(|c| matches!(c, '"' | '\''))
            && !value[1..].contains(quote)
        {
            self.expects = Expects::Rest { until: Some(quote), scheme: false };
        }
    }
}

/// Returns whether a word is `user:password`, but neither a uid:gid pair nor an address.
fn is_login(word: &str, between: char) -> bool {
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let parts = word.split_once(between);
    parts.is_some_and(|(user, password)| {
        let of_group = is_number(user) && is_number(password);
        let is_path = between == '/' && (user.is_empty() || matches!(user, "." | ".." | "~"));
        !(password.is_empty() || password.starts_with("//") || of_group || is_path)
    })
}

/// Splits `name=value` or `name:value` within a word; the value is the whole rest.
struct Pair<'a> {
    name: &'a str,
    separator: char,
    value: &'a str,
}

impl Pair<'_> {
    /// Returns whether the name is quoted, as in `"name": "value"`.
    fn is_json(&self) -> bool {
        self.name.ends_with(['"', '\''])
    }

    fn hides(&self) -> bool {
        let value = names::start(self.value).split([',', ';', '&']).next().unwrap_or_default();
        match self.separator {
            ':' if self.value.is_empty() && self.is_json() => names::classify(self.name) > NameClass::Nothing,
            ':' if self.value.is_empty() => names::classify(self.name) > NameClass::Perhaps,
            // `auth-service:1.2` is a program, `token-node:29500` an address.
            ':' => names::hides_after_colon(self.name, value),
            _ => !self.value.is_empty() && names::hides(self.name, value),
        }
    }
}

/// Iterates over all pairs of a word from the left.
fn pairs(word: &str) -> impl Iterator<Item = Pair<'_>> {
    let mut start = 0;
    word.char_indices().filter_map(move |(at, c)| {
        // `%3D` and `%3A` are `=` and `:` in a percent-encoded nested URL.
        let (separator, length) = match c {
            '=' | ':' => (c, 1),
            '%' => match word.get(at..at + 3)? {
                "%3D" | "%3d" => ('=', 3),
                "%3A" | "%3a" => (':', 3),
                "%26" | "%3F" | "%3f" | "%2F" | "%2f" => {
                    start = at + 3;
                    return None;
                }
                _ => return None,
            },
            ',' | ';' | '&' | '?' | '{' | '/' => {
                start = at + 1;
                return None;
            }
            _ => return None,
        };
        let pair = Pair { name: &word[start.min(at)..at], separator, value: &word[at + length..] };
        start = at + length;
        Some(pair)
    })
}

#[cfg(test)]
mod tests;
