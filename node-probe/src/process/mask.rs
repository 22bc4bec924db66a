//! Command lines and environments are shown without the secrets that people write into them.

/// What stands in a secret's place.
pub const MASK: &str = "•••";
/// Parts of names of options and variables that hold a secret.
const SECRET_PARTS: [&str; 14] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "apikey",
    "credential",
    "privatekey",
    "accesskey",
    "auth",
    "bearer",
    "cookie",
    "connectionstring",
    "signature",
    "webhook",
];
/// Words of such names that say so alone.
const SECRET_WORDS: [&str; 7] = ["pass", "pwd", "sig", "jwt", "sas", "otp", "dsn"];
/// Tokens of language models, and numbers of them: no secrets.
const HARMLESS_TOKENS: [&str; 17] = [
    "eos", "bos", "pad", "unk", "sep", "cls", "mask", "image", "num", "max", "min", "per", "next", "prev",
    "start", "end", "stop",
];
/// Beginnings of well-known keys.
const KEY_PREFIXES: [&str; 19] = [
    "hf_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_live_",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "npm_",
    "pypi-",
    "nvapi-",
    "dop_v1_",
];
/// What follows such a beginning has at least so many characters.
const KEY_LENGTH: usize = 12;
/// What a Java web token begins with: `{"` in base 64.
const JWT: &str = "eyJ";

/// The words of a NUL-separated command line, masked, with one space between them.
pub fn command_line(raw: &[u8]) -> String {
    let raw = raw.strip_suffix(b"\0").unwrap_or(raw);
    let mut reader = Reader::default();
    let words = raw.split(|byte| *byte == 0).map(|word| reader.word(&String::from_utf8_lossy(word)));
    words.collect::<Vec<_>>().join(" ")
}

/// The value of a variable, masked by its name and by its own shape.
pub fn value(name: &str, value: &str) -> String {
    // Every shell has these two, and no secret is in them.
    let secret = is_secret_name(name) && !matches!(name, "PWD" | "OLDPWD");
    if secret && !value.is_empty() && !is_count(name, value) {
        return MASK.to_owned();
    }
    let mut reader = Reader::default();
    value.split(' ').map(|word| reader.word(word)).collect::<Vec<_>>().join(" ")
}

/// Reads words one after the other: a name may say that the next one is a secret.
#[derive(Default)]
struct Reader {
    expects: Expects,
}

/// What the word before says of the next one.
#[derive(Clone, Default, PartialEq)]
enum Expects {
    #[default]
    Nothing,
    /// The value of the option of this name.
    Secret(String),
    /// `user:password`.
    Login,
    /// More of a value in this kind of quotes.
    Quoted(char),
    /// More of a private key, to its end.
    PrivateKey,
}

impl Reader {
    fn word(&mut self, word: &str) -> String {
        // A shell's `-c` argument is a whole script, and a header has a space: mask word by word within it.
        if word.contains(char::is_whitespace) {
            return word.split(char::is_whitespace).map(|part| self.word(part)).collect::<Vec<_>>().join(" ");
        }
        if word.is_empty() {
            return String::new();
        }
        match std::mem::take(&mut self.expects) {
            Expects::Secret(name) if !word.starts_with("--") => {
                // `Authorization: Bearer …`: the scheme is none, what follows it is.
                if is_scheme(word) {
                    self.expects = Expects::Secret(name);
                    return word.to_owned();
                }
                if is_count(&name, word) {
                    return word.to_owned();
                }
                self.open_quote(word);
                return MASK.to_owned();
            }
            Expects::Login if word.contains(':') => {
                return format!("{}:{MASK}", word.split(':').next().unwrap_or_default());
            }
            Expects::Quoted(quote) => {
                if !word.ends_with(quote) {
                    self.expects = Expects::Quoted(quote);
                }
                return String::new();
            }
            Expects::PrivateKey => {
                if !word.contains("-----END") {
                    self.expects = Expects::PrivateKey;
                }
                return String::new();
            }
            _ => {}
        }
        self.fresh_word(word)
    }

    /// A word of which nothing is known from before.
    fn fresh_word(&mut self, word: &str) -> String {
        if let Some(at) = word.find("-----BEGIN") {
            if !word.contains("-----END") {
                self.expects = Expects::PrivateKey;
            }
            return format!("{}{MASK}", &word[..at]);
        }
        if let Some((name, value)) = secret_pair(word) {
            match value {
                // `Token: …`, `"password": …`: the value is the next word.
                "" if name.ends_with(':') => self.expects = Expects::Secret(name.to_owned()),
                value if is_scheme(value) => self.expects = Expects::Secret(name.to_owned()),
                value if is_count(name, value) => {}
                value => {
                    self.open_quote(value);
                    return format!("{name}{MASK}");
                }
            }
            return word.to_owned();
        }
        self.expects = match word {
            "-u" | "--user" | "--proxy-user" => Expects::Login,
            scheme if is_scheme(scheme) => Expects::Secret(scheme.to_owned()),
            option if option.starts_with('-') && is_secret_name(option) => Expects::Secret(option.to_owned()),
            _ => Expects::Nothing,
        };
        without_keys(&without_userinfo(word))
    }

    /// A value that begins with a quote goes on until the next one.
    fn open_quote(&mut self, value: &str) {
        if let Some(quote) = value.chars().next().filter(|c| matches!(c, '"' | '\''))
            && !(value.len() > 1 && value.ends_with(quote))
        {
            self.expects = Expects::Quoted(quote);
        }
    }
}

fn is_scheme(word: &str) -> bool {
    ["bearer", "basic"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// `name=value` or `name:value` anywhere in a word whose name is a secret's: all up to the value, and the value with
/// whatever follows it, for nobody knows where a secret ends.
fn secret_pair(word: &str) -> Option<(&str, &str)> {
    let mut start = 0;
    for (at, c) in word.char_indices() {
        match c {
            '=' | ':' if is_secret_name(&word[start..at]) => return Some(word.split_at(at + 1)),
            '=' | ':' | ',' | ';' | '&' | '?' | '{' | '/' => start = at + 1,
            _ => {}
        }
    }
    None
}

/// How many tokens a model may write is no secret.
fn is_count(name: &str, value: &str) -> bool {
    value.len() <= 7
        && value.bytes().all(|byte| byte.is_ascii_digit())
        && name.to_lowercase().contains("token")
}

fn is_secret_name(name: &str) -> bool {
    let words = words(name);
    let joined = words.concat();
    let hit = |part: &str| match part {
        "auth" => joined.replace("author", "").contains("auth") || joined.contains("authoriz"),
        part => joined.contains(part),
    };
    SECRET_PARTS.iter().any(|part| hit(part))
        || words.iter().any(|word| SECRET_WORDS.contains(&word.as_str()))
        || words.last().is_some_and(|last| last.ends_with("key") && !last.ends_with("tokey"))
        || has_secret_token(&words)
}

/// `token`, `hf_token`, `apiToken`, but neither `tokenizer`, `max_tokens` nor `eos_token`.
fn has_secret_token(words: &[String]) -> bool {
    let harmless = words.iter().any(|word| HARMLESS_TOKENS.contains(&word.as_str()));
    let api = words.iter().any(|word| matches!(word.as_str(), "api" | "access" | "auth"));
    words.iter().any(|word| (word.ends_with("token") && !harmless) || (word == "tokens" && api))
}

/// The words of a name in small letters: `--apiKey` and `API_KEY` have the same.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut small_before = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && small_before) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        small_before = c.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Masks user and password of each URL in a word.
fn without_userinfo(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let after = &rest[authority.len()..];
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{MASK}@{host}{}", without_userinfo(after)),
        None => format!("{scheme}://{authority}{}", without_userinfo(after)),
    }
}

/// Masks what has the shape of a well-known key or of a web token.
fn without_keys(word: &str) -> String {
    let mut out = String::new();
    let mut rest = word;
    while !rest.is_empty() {
        let within = out.chars().last().is_some_and(|c| c.is_ascii_alphanumeric());
        let length =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && !"_-.".contains(c)).unwrap_or(rest.len());
        let run = &rest[..length];
        let key =
            KEY_PREFIXES.iter().any(|prefix| run.starts_with(prefix) && length >= prefix.len() + KEY_LENGTH);
        let web_token = run.starts_with(JWT) && length >= 30 && run.matches('.').count() >= 2;
        if !within && (key || web_token) {
            out.push_str(MASK);
            rest = &rest[length..];
            continue;
        }
        let Some(c) = rest.chars().next() else { break };
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(words: &[&str]) -> String {
        command_line(words.join("\0").as_bytes())
    }

    #[test]
    fn what_is_no_secret_stays() {
        for words in [
            &["python", "train.py", "--lr", "0.1", "--gpus=0,1"][..],
            &["--tokenizer", "gpt2", "--verbose"],
            &["--max-tokens", "512", "--eos_token=</s>", "--num_tokens=7", "model.max_new_tokens=99"],
            &["--author", "me", "--url=https://host:8080/a?b=c", "task-sk-learn.py", "12:30:00"],
            &["torchrun", "--rdzv_endpoint=gpu-01:29500", "-u", "main.py"],
        ] {
            assert_eq!(line(words), words.join(" "));
        }
    }

    #[test]
    fn each_way_to_write_a_secret_is_masked() {
        for words in [
            &["x", "--api-key", "hunter2"][..],
            &["x", "--password=hunter2"],
            &["x", "WANDB_API_KEY=hunter2"],
            &["x", "postgres://bob:hunter2@db/x"],
            &["bash", "-c", "TOKEN=hunter2 python train.py"],
            &["bash", "-c", "TOKEN='a hunter2 b' python"],
            &["x", "hf_hunter2hunter2hunter2"],
            &["x", "--auth-token", "hunter2"],
            &["x", "--apiToken=hunter2"],
            &["x", "++logger.wandb.key=hunter2"],
            &["x", "--env=A=1,DB_PASS=hunter2,B=2"],
            &["curl", "-u", "bob:hunter2", "https://x"],
            &["curl", "-H", "Authorization: Bearer hunter2"],
            &["curl", "-H", "X-Api-Key:hunter2"],
            &["curl", "https://x/y?a=b&sig=hunter2"],
            &["x", r#"{"user": "a", "password": "hunter2"}"#],
            &["x", r#"{"user":"a","password":"hunter2"}"#],
            &["x", "Server=db;Password=hunter2;"],
            &["x", "eyJhbGciOiJIUzI1NiJ9.hunter2hunter2.hunter2hunter2"],
            &["x", "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----"],
            &["x", "--password", "-hunter2"],
        ] {
            let shown = line(words);
            assert!(!shown.contains("hunter2"), "{shown}");
            assert!(shown.contains(MASK), "{shown}");
        }
    }

    #[test]
    fn a_variable_is_masked_by_its_name_and_by_its_value() {
        for (name, secret) in [
            ("WANDB_API_KEY", "0123456789abcdef"),
            ("HF_TOKEN", "x"),
            ("DATABASE_URL", "mysql://me:hunter2@db"),
            ("EXTRA", "--opt --password hunter2"),
            ("ANYTHING", "ghp_hunter2hunter2hunter2"),
            ("PGPASSWORD", "123456"),
            ("DB_PWD", "hunter2"),
        ] {
            let shown = value(name, secret);
            assert!(shown.contains(MASK) && !shown.contains("hunter2"), "{name}={shown}");
        }
        for (name, plain) in [
            ("PWD", "/home/me"),
            ("PATH", "/usr/bin:/bin"),
            ("TOKENIZERS_PARALLELISM", "false"),
            ("MAX_TOKENS", "512"),
            ("LS_COLORS", "rs=0:di=01;34:ln=01;36"),
            ("PS1", r"\u@\h:\w\$ "),
        ] {
            assert_eq!(value(name, plain), plain);
        }
    }

    #[test]
    fn a_script_over_several_lines_is_masked_too() {
        let shown = line(&["bash", "-c", "cd x\n\tTOKEN=hunter2 python\u{a0}train.py"]);
        assert_eq!(shown, format!("bash -c cd x  TOKEN={MASK} python train.py"));
    }

    proptest! {
        #[test]
        fn no_command_line_is_too_strange(raw in prop::collection::vec(any::<u8>(), 0..400), name in ".{0,20}") {
            let _ = (command_line(&raw), value(&name, &String::from_utf8_lossy(&raw)));
        }

        #[test]
        fn the_value_of_a_secret_option_is_never_shown(secret in "[A-Z0-9]{8,40}", name in "(password|token|api-key|client-secret|hf_token|db-pass|authToken)") {
            let option = format!("--{name}");
            let (joined, listed) = (format!("{option}={secret}"), format!("--x=a,{name}:{secret}"));
            let line_in_variable = format!("x {option} {secret}");
            prop_assert!(!line(&["p", &option, &secret]).contains(&secret));
            prop_assert!(!line(&["p", &joined]).contains(&secret));
            prop_assert!(!line(&["p", &listed]).contains(&secret));
            prop_assert!(!value(&name, &secret).contains(&secret));
            prop_assert!(!value("OTHER", &line_in_variable).contains(&secret));
        }
    }
}
