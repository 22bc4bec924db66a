//! Names of options, variables and fields say whether their value is a secret, and values whether they can be one.

/// What a name says of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Say {
    /// Nothing.
    Nothing,
    /// It is a secret if it looks like nothing else: a long row of random letters and digits.
    Seldom,
    /// It may be a secret: its looks decide.
    Perhaps,
    /// It is the secret of a key, or the path of the file in which it is.
    Key,
    /// It is a secret.
    Secret,
}

/// Parts of names, however they are written together.
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
/// What has such a part by chance.
const BY_CHANCE: [&str; 4] = ["secretar", "cookiecutter", "authentic", "author"];
/// Words that say so alone.
const WORDS: [&str; 9] = ["passcode", "pwd", "sig", "jwt", "sas", "otp", "dsn", "creds", "senha"];
/// Words that say so at the end of a name, where the value does not look like something else.
const LAST_WORDS: [&str; 6] = ["pat", "tok", "pin", "salt", "license", "licence"];
/// Services after whose name alone people call a variable or an option with a key in it.
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
/// What a pass can be besides a word to pass by.
const PASSES: [&str; 9] = ["forward", "backward", "single", "one", "two", "multi", "first", "second", "high"];
/// Whose key is a secret, rather than the name of a column.
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
/// Tokens of language models, and numbers of them: no secrets.
const HARMLESS_TOKENS: [&str; 34] = [
    "eos", "bos", "pad", "unk", "sep", "cls", "mask", "image", "video", "audio", "num", "max", "min", "per",
    "next", "prev", "start", "end", "stop", "new", "special", "extra", "input", "output", "prompt", "think",
    "first", "last", "total", "cached", "vocab", "vision", "text", "query",
];
/// Ends of names that say something of a secret but not the secret itself.
const ABOUT: [&str; 53] = [
    "header", "prefix", "column", "field", "param", "variable", "index", "file", "files", "path", "paths",
    "dir", "dirs", "folder", "type", "mode", "method", "backend", "sock", "socket", "url", "uri", "endpoint",
    "host", "hosts", "provider", "plugin", "timeout", "length", "len", "limit", "count", "size", "ttl",
    "expiry", "expires", "policy", "class", "enabled", "required", "stdin", "prompt", "env", "fd", "command",
    "cmd", "helper", "store", "format", "name", "names", "def", "version",
];
/// Beginnings of options that take no value.
const SWITCHES: [&str; 8] = ["no", "use", "skip", "without", "disable", "require", "allow", "ignore"];
/// Values that are an answer and no secret.
const ANSWERS: [&str; 13] =
    ["true", "false", "yes", "no", "on", "off", "none", "null", "auto", "always", "never", "0", "1"];
/// So much of a value is looked at.
const MAX_LOOK: usize = 256;

/// What a name says.
pub fn say(name: &str) -> Say {
    let words = words(name);
    let Some(last) = words.last() else { return Say::Nothing };
    let joined = words.concat();
    // The address of a webhook is the secret.
    if joined.contains("webhook") && matches!(last.as_str(), "url" | "uri" | "endpoint") {
        return Say::Secret;
    }
    if ABOUT.contains(&last.as_str()) {
        return Say::Nothing;
    }
    let bare = BY_CHANCE.iter().fold(joined.replace("authoriz", "auth"), |name, part| name.replace(part, ""));
    if PARTS.iter().any(|part| bare.contains(part)) || words.iter().any(|word| WORDS.contains(&word.as_str()))
    {
        return if last.ends_with("key") && !bare.contains("secret") { Say::Key } else { Say::Secret };
    }
    if last == "pass" && !has_before(&words, &PASSES) {
        return Say::Secret;
    }
    token(&words).max(key(&words)).max(last_word(&words))
}

/// `--pw`, `GH_PAT`, `AWS_SESSION`, `OPENAI`.
fn last_word(words: &[String]) -> Say {
    let Some((last, before)) = words.split_last() else { return Say::Nothing };
    match last.as_str() {
        "pw" => Say::Secret,
        last if LAST_WORDS.contains(&last) => Say::Perhaps,
        "session" => Say::Seldom,
        last if before.is_empty() && SERVICES.contains(&last) => Say::Seldom,
        _ => Say::Nothing,
    }
}

/// Whether the value of this name is hidden.
pub fn hides(name: &str, value: &str) -> bool {
    let say = say(name);
    if say == Say::Nothing {
        return false;
    }
    let value = start(value.trim_matches(['"', '\'']));
    let is_answer = ANSWERS.iter().any(|answer| value.eq_ignore_ascii_case(answer));
    if value.is_empty() || is_answer || is_count(name, value) {
        return false;
    }
    match say {
        Say::Nothing => false,
        Say::Seldom => is_random(value),
        Say::Perhaps => !is_path(value) && !is_plain(value),
        Say::Key => !is_path(value) && !is_position(value),
        Say::Secret => !(is_signal(name) && is_position(value)),
    }
}

/// The same for what stands after a colon, as a port or a version does after a name.
pub fn hides_after_colon(name: &str, value: &str) -> bool {
    let name_of_program = words(name).last().is_none_or(|last| say(last) == Say::Nothing);
    if value.starts_with("//") || (name_of_program && is_plain(start(value))) {
        return false;
    }
    let is_port = value.len() <= 5 && value.bytes().all(|byte| byte.is_ascii_digit());
    !(is_port && name_of_program) && hides(name, value)
}

/// Whether an option of this name takes a secret as the next word.
pub fn takes_secret(option: &str) -> bool {
    let is_switch = words(option).first().is_some_and(|first| SWITCHES.contains(&first.as_str()));
    !is_switch && say(option) != Say::Nothing
}

/// Whether a word says how the secret after it is to be read.
pub fn is_scheme(word: &str) -> bool {
    ["bearer", "basic", "token", "apikey", "digest", "negotiate", "bot"]
        .iter()
        .any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// `NAME` as shells write it.
pub fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// `token`, `hf_token`, `apiToken`, but neither `tokenizer`, `max_tokens` nor `eos_token`.
fn token(words: &[String]) -> Say {
    let harmless = words.iter().any(|word| HARMLESS_TOKENS.contains(&word.as_str()));
    let owned = words.iter().any(|word| matches!(word.as_str(), "api" | "access" | "auth" | "refresh"));
    let at = words.iter().position(|word| word.ends_with("token") || (word == "tokens" && owned));
    match at {
        Some(at) if !harmless && at + 1 == words.len() => Say::Secret,
        Some(_) if !harmless => Say::Perhaps,
        _ => Say::Nothing,
    }
}

/// `api_key`, `wandb.key`, `key`; of `image_key` the value's looks decide.
fn key(words: &[String]) -> Say {
    let Some((last, before)) = words.split_last() else { return Say::Nothing };
    let stem = match last.strip_suffix("keys").filter(|_| !before.is_empty() || last != "keys") {
        Some(stem) => stem,
        None => match last.strip_suffix("key") {
            Some(stem) => stem,
            None => return Say::Nothing,
        },
    };
    let owner = if stem.is_empty() { before.last().map(String::as_str) } else { Some(stem) };
    match owner {
        None => Say::Key,
        Some(owner) if KEY_OWNERS.contains(&owner) => Say::Key,
        Some(_) => Say::Perhaps,
    }
}

fn has_before(words: &[String], those: &[&str]) -> bool {
    words.iter().rev().nth(1).is_some_and(|word| those.contains(&word.as_str()))
}

/// How many tokens a model may write is no secret.
fn is_count(name: &str, value: &str) -> bool {
    value.len() <= 7
        && value.bytes().all(|byte| byte.is_ascii_digit())
        && name.to_lowercase().contains("token")
}

fn is_signal(name: &str) -> bool {
    words(name).last().is_some_and(|last| last == "sig")
}

/// A column or the number of a signal.
fn is_position(value: &str) -> bool {
    value.len() <= 3 && value.bytes().all(|byte| byte.is_ascii_digit())
}

/// Where something is kept, said as a path. A secret in base 64 may begin with a slash, but not go on like this.
fn is_path(value: &str) -> bool {
    let rooted = ["/", "./", "../", "~/", "$HOME/", "file:/"].iter().any(|root| value.starts_with(root));
    let small = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-~".contains(&byte);
    rooted && value.split('/').skip(1).all(|part| part.bytes().all(small) || is_plain(part))
}

/// What people call things: words, and small numbers between or after them.
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

/// A long row of letters and digits of which neither word nor date is made.
fn is_random(value: &str) -> bool {
    value.split(|c: char| !c.is_ascii_alphanumeric()).any(|run| {
        let digits = run.bytes().filter(u8::is_ascii_digit).count();
        run.len() >= 20 && digits >= 3 && digits < run.len()
    })
}

/// As much of a value as is looked at.
pub fn start(value: &str) -> &str {
    let mut end = value.len().min(MAX_LOOK);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    &value[..end]
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
