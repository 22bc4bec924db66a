//! Command lines are shown without the secrets that people write into them.

use nodeglass_protocol::Text;

/// What stands in a secret's place.
const MASK: &str = "•••";
/// Words that make an option or a variable secret.
const SECRET_WORDS: [&str; 7] = ["password", "passwd", "token", "secret", "apikey", "credential", "auth"];
/// Beginnings of well-known keys.
const KEY_PREFIXES: [&str; 9] =
    ["hf_", "ghp_", "github_pat_", "glpat-", "sk-", "xoxb-", "AKIA", "ASIA", "AIza"];

/// The words of a NUL-separated command line, masked, with one space between them.
pub fn command_line(raw: &[u8]) -> Text {
    let raw = raw.strip_suffix(b"\0").unwrap_or(raw);
    let mut line = String::new();
    let mut value_is_secret = false;
    for word in raw.split(|byte| *byte == 0) {
        let word = String::from_utf8_lossy(word);
        if !line.is_empty() {
            line.push(' ');
        }
        if value_is_secret && !word.starts_with('-') {
            line.push_str(MASK);
            value_is_secret = false;
            continue;
        }
        value_is_secret = word.starts_with('-') && !word.contains('=') && is_secret_name(&word);
        line.push_str(&masked(&word));
    }
    Text::new(line)
}

/// One word with its secrets masked: `--token=…`, `API_KEY=…`, `scheme://user:…@host`, known keys.
fn masked(word: &str) -> String {
    // A shell's `-c` argument is a whole script: mask word by word within it.
    if word.contains(char::is_whitespace) {
        return word.split(char::is_whitespace).map(masked).collect::<Vec<_>>().join(" ");
    }
    if let Some((name, _)) = word.split_once('=').filter(|(name, _)| is_secret_name(name)) {
        return format!("{name}={MASK}");
    }
    let value = word.rsplit_once('=').map_or(word, |(_, value)| value);
    if KEY_PREFIXES.iter().any(|prefix| value.starts_with(prefix) && value.len() >= prefix.len() + 12) {
        return word.replace(value, MASK);
    }
    without_userinfo(word)
}

fn is_secret_name(name: &str) -> bool {
    let name: String = name.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word)) || name.ends_with("key") && !name.ends_with("tokey")
}

fn without_userinfo(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let authority = rest.split('/').next().unwrap_or(rest);
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{MASK}@{host}{}", &rest[authority.len()..]),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(words: &[&str]) -> String {
        command_line(words.join("\0").as_bytes()).to_string()
    }

    #[test]
    fn what_is_no_secret_stays() {
        assert_eq!(
            line(&["python", "train.py", "--lr", "0.1", "--gpus=0,1"]),
            "python train.py --lr 0.1 --gpus=0,1"
        );
        assert_eq!(line(&["--tokenizer", "--verbose"]), "--tokenizer --verbose");
    }

    #[test]
    fn each_way_to_write_a_secret_is_masked() {
        for words in [
            &["x", "--api-key", "hunter2"][..],
            &["x", "--password=hunter2"],
            &["x", "WANDB_API_KEY=hunter2"],
            &["x", "postgres://bob:hunter2@db/x"],
            &["bash", "-c", "TOKEN=hunter2 python train.py"],
            &["x", "hf_hunter2hunter2hunter2"],
            &["x", "--auth-token", "hunter2"],
        ] {
            let shown = line(words);
            assert!(!shown.contains("hunter2"), "{shown}");
            assert!(shown.contains(MASK), "{shown}");
        }
    }

    #[test]
    fn a_script_over_several_lines_is_masked_too() {
        let shown = line(&["bash", "-c", "cd x\n\tTOKEN=hunter2 python\u{a0}train.py"]);
        assert_eq!(shown, format!("bash -c cd x  TOKEN={MASK} python train.py"));
    }

    proptest! {
        #[test]
        fn no_command_line_is_too_strange(raw in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(command_line(&raw).as_str().len() <= Text::MAX_BYTES);
        }

        #[test]
        fn the_value_of_a_secret_option_is_never_shown(secret in "[A-Z0-9]{8,40}", name in "(password|token|api-key|client-secret)") {
            let option = format!("--{name}");
            let joined = format!("--{name}={secret}");
            prop_assert!(!line(&["p", &option, &secret]).contains(&secret));
            prop_assert!(!line(&["p", &joined]).contains(&secret));
        }
    }
}
