//! Classification of names of options, variables and fields, and of values, as secret or not.

/// Implication of a name for its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameClass {
    /// Nothing.
    Nothing,
    /// A secret unless it looks like something else: a long sequence of random letters and digits.
    Seldom,
    /// Possibly a secret, depending on its format.
    Perhaps,
    /// The secret of a key, or the path of a key file.
    Key,
    /// It is a secret.
    Secret,
}

/// Parts of names, in any notation.
const PARTS: [&str; 21] = [
    "password",
    "passwort",
    "kennwort",
    "motdepasse",
    "contrasena",
    "requirepass",
    "mnemonic",
    "seedphrase",
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
/// Names that contain such a part by chance.
const BY_CHANCE: [&str; 4] = ["secretar", "cookiecutter", "authentic", "author"];
/// Words that suffice alone.
const WORDS: [&str; 9] = ["passcode", "pwd", "sig", "jwt", "sas", "otp", "dsn", "creds", "senha"];
/// Words that suffice at the end of a name, unless the value looks like something else.
const LAST_WORDS: [&str; 6] = ["pat", "tok", "pin", "salt", "license", "licence"];
/// Services whose name alone is used for variables and options with a key.
const SERVICES: [&str; 14] = [
    "wandb",
    "openai",
    "anthropic",
    "claude",
    "hf",
    "huggingface",
    "comet",
    "neptune",
    "clearml",
    "mistral",
    "cohere",
    "groq",
    "replicate",
    "github",
];
/// Meanings of `pass` other than a password.
const PASSES: [&str; 9] = ["forward", "backward", "single", "one", "two", "multi", "first", "second", "high"];
/// Qualifiers of keys that are secrets, rather than column names.
const KEY_OWNERS: [&str; 80] = [
    "function",
    "functions",
    "api",
    "access",
    "secret",
    "private",
    "auth",
    "account",
    "encryption",
    "encrypt",
    "decryption",
    "signing",
    "license",
    "licence",
    "service",
    "storage",
    "subscription",
    "session",
    "master",
    "admin",
    "app",
    "application",
    "client",
    "shared",
    "server",
    "webhook",
    "deploy",
    "security",
    "hmac",
    "crypto",
    "cipher",
    "token",
    "jwt",
    "login",
    "ssh",
    "user",
    "team",
    "project",
    "wandb",
    "openai",
    "anthropic",
    "claude",
    "hf",
    "huggingface",
    "aws",
    "azure",
    "google",
    "gcp",
    "gemini",
    "mistral",
    "cohere",
    "groq",
    "together",
    "replicate",
    "pinecone",
    "neptune",
    "comet",
    "clearml",
    "mlflow",
    "nvidia",
    "ngc",
    "nim",
    "github",
    "gitlab",
    "slack",
    "stripe",
    "twilio",
    "sendgrid",
    "datadog",
    "dd",
    "sentry",
    "snowflake",
    "databricks",
    "langchain",
    "langsmith",
    "tavily",
    "minio",
    "s3",
    "redis",
    "kaggle",
];
/// Tokens of language models, and numbers of them, which are not secrets.
const HARMLESS_TOKENS: [&str; 34] = [
    "eos", "bos", "pad", "unk", "sep", "cls", "mask", "image", "video", "audio", "num", "max", "min", "per",
    "next", "prev", "start", "end", "stop", "new", "special", "extra", "input", "output", "prompt", "think",
    "first", "last", "total", "cached", "vocab", "vision", "text", "query",
];
/// Suffixes of names that describe a secret without containing it.
const ABOUT: [&str; 53] = [
    "header", "prefix", "column", "field", "param", "variable", "index", "file", "files", "path", "paths",
    "dir", "dirs", "folder", "type", "mode", "method", "backend", "sock", "socket", "url", "uri", "endpoint",
    "host", "hosts", "provider", "plugin", "timeout", "length", "len", "limit", "count", "size", "ttl",
    "expiry", "expires", "policy", "class", "enabled", "required", "stdin", "prompt", "env", "fd", "command",
    "cmd", "helper", "store", "format", "name", "names", "def", "version",
];
/// Prefixes of options without a value.
const SWITCHES: [&str; 8] = ["no", "use", "skip", "without", "disable", "require", "allow", "ignore"];
/// Values that are choices rather than secrets.
const ANSWERS: [&str; 13] =
    ["true", "false", "yes", "no", "on", "off", "none", "null", "auto", "always", "never", "0", "1"];
/// Maximum length of a value that is examined.
const MAX_LOOK: usize = 256;

/// Returns what a name implies.
pub fn classify(name: &str) -> NameClass {
    let words = words(name);
    let Some(last) = words.last() else { return NameClass::Nothing };
    let joined = words.concat();
    // A webhook URL is a secret.
    if joined.contains("webhook") && matches!(last.as_str(), "url" | "uri" | "endpoint") {
        return NameClass::Secret;
    }
    if ABOUT.contains(&last.as_str()) {
        return NameClass::Nothing;
    }
    let bare = BY_CHANCE.iter().fold(joined.replace("authoriz", "auth"), |name, part| name.replace(part, ""));
    if PARTS.iter().any(|part| bare.contains(part)) || words.iter().any(|word| WORDS.contains(&word.as_str()))
    {
        return if last.ends_with("key") && !bare.contains("secret") {
            NameClass::Key
        } else {
            NameClass::Secret
        };
    }
    if last == "pass" && !has_before(&words, &PASSES) {
        return NameClass::Secret;
    }
    token(&words).max(key(&words)).max(last_word(&words))
}

/// `--pw`, `GH_PAT`, `AWS_SESSION`, `OPENAI`.
fn last_word(words: &[String]) -> NameClass {
    let Some((last, before)) = words.split_last() else { return NameClass::Nothing };
    match last.as_str() {
        "pw" => NameClass::Secret,
        last if LAST_WORDS.contains(&last) => NameClass::Perhaps,
        "session" => NameClass::Seldom,
        last if before.is_empty() && SERVICES.contains(&last) => NameClass::Seldom,
        _ => NameClass::Nothing,
    }
}

/// Returns whether the value of this name must be masked.
pub fn hides(name: &str, value: &str) -> bool {
    let say = classify(name);
    if say == NameClass::Nothing {
        return false;
    }
    let value = start(value.trim_matches(['"', '\'']));
    let is_answer = ANSWERS.iter().any(|answer| value.eq_ignore_ascii_case(answer));
    if value.is_empty() || is_answer || is_count(name, value) {
        return false;
    }
    match say {
        NameClass::Nothing => false,
        NameClass::Seldom => is_random(value),
        NameClass::Perhaps => !is_path(value) && !is_plain(value),
        NameClass::Key => !is_path(value) && !is_position(value),
        NameClass::Secret => !(is_signal(name) && is_position(value)),
    }
}

/// Returns whether to hide a value after a colon, which may be a port or a version.
pub fn hides_after_colon(name: &str, value: &str) -> bool {
    let name_of_program = words(name).last().is_none_or(|last| classify(last) == NameClass::Nothing);
    if value.starts_with("//") || (name_of_program && is_plain(start(value))) {
        return false;
    }
    let is_port = value.len() <= 5 && value.bytes().all(|byte| byte.is_ascii_digit());
    !(is_port && name_of_program) && hides(name, value)
}

/// Returns whether an option of this name takes a secret as the next word.
pub fn takes_secret(option: &str) -> bool {
    let is_switch = words(option).first().is_some_and(|first| SWITCHES.contains(&first.as_str()));
    !is_switch && classify(option) != NameClass::Nothing
}

/// Returns whether a word describes the format of the secret after it.
pub fn is_scheme(word: &str) -> bool {
    ["bearer", "basic", "token", "apikey", "digest", "negotiate", "bot"]
        .iter()
        .any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// Matches `NAME` in shell notation.
pub fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Matches `token`, `hf_token`, `apiToken`, but neither `tokenizer`, `max_tokens` nor `eos_token`.
fn token(words: &[String]) -> NameClass {
    let harmless = words.iter().any(|word| HARMLESS_TOKENS.contains(&word.as_str()));
    let owned = words.iter().any(|word| matches!(word.as_str(), "api" | "access" | "auth" | "refresh"));
    let at = words.iter().position(|word| word.ends_with("token") || (word == "tokens" && owned));
    match at {
        Some(at) if !harmless && at + 1 == words.len() => NameClass::Secret,
        Some(_) if !harmless => NameClass::Perhaps,
        _ => NameClass::Nothing,
    }
}

/// Matches `api_key`, `wandb.key`, `key`; `image_key` depends on its value.
fn key(words: &[String]) -> NameClass {
    let Some((last, before)) = words.split_last() else { return NameClass::Nothing };
    let stem = match last.strip_suffix("keys").filter(|_| !before.is_empty() || last != "keys") {
        Some(stem) => stem,
        None => match last.strip_suffix("key") {
            Some(stem) => stem,
            None => return NameClass::Nothing,
        },
    };
    let owner = if stem.is_empty() { before.last().map(String::as_str) } else { Some(stem) };
    match owner {
        None => NameClass::Key,
        Some(owner) if KEY_OWNERS.contains(&owner) => NameClass::Key,
        Some(_) => NameClass::Perhaps,
    }
}

fn has_before(words: &[String], those: &[&str]) -> bool {
    words.iter().rev().nth(1).is_some_and(|word| those.contains(&word.as_str()))
}

/// The maximum number of tokens of a model is not a secret.
fn is_count(name: &str, value: &str) -> bool {
    value.len() <= 7
        && value.bytes().all(|byte| byte.is_ascii_digit())
        && name.to_lowercase().contains("token")
}

fn is_signal(name: &str) -> bool {
    words(name).last().is_some_and(|last| last == "sig")
}

/// A column, or a signal number.
fn is_position(value: &str) -> bool {
    value.len() <= 3 && value.bytes().all(|byte| byte.is_ascii_digit())
}

/// A path to a secret. A secret in base64 may start with a slash, but does not continue like a
/// path.
fn is_path(value: &str) -> bool {
    let rooted = ["/", "./", "../", "~/", "$HOME/", "file:/"].iter().any(|root| value.starts_with(root));
    let small = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-~".contains(&byte);
    rooted && value.split('/').skip(1).all(|part| part.bytes().all(small) || is_plain(part))
}

/// Identifiers: words, with small numbers between or after them.
pub fn is_plain(value: &str) -> bool {
    value.len() <= 40
        && value.split(['_', '-', '.', '/']).all(|part| {
            let digits = part.bytes().filter(u8::is_ascii_digit).count();
            let letters = part.bytes().take_while(u8::is_ascii_alphabetic).count();
            let capitals = part.bytes().skip(1).filter(u8::is_ascii_uppercase).count();
            let one_case = capitals <= 2 || capitals + 1 == letters;
            letters + digits == part.len() && digits <= 3 && letters <= 20 && one_case
        })
}

/// A long sequence of letters and digits that is neither a word nor a date.
fn is_random(value: &str) -> bool {
    value.split(|c: char| !c.is_ascii_alphanumeric()).any(|run| {
        let digits = run.bytes().filter(u8::is_ascii_digit).count();
        run.len() >= 20 && digits >= 3 && digits < run.len()
    })
}

/// Returns the examined prefix of a value.
pub fn start(value: &str) -> &str {
    let mut end = value.len().min(MAX_LOOK);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    &value[..end]
}

/// Splits a name into lowercase words: `--apiKey` and `API_KEY` yield the same.
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
