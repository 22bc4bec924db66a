//! Text with commands, which are shown as code.

use leptos::prelude::*;

/// Shows a text of the relay, in which backticks enclose commands, with these as code.
pub fn code_text(text: &str) -> AnyView {
    let show = |(part, is_code): (&str, bool)| match is_code {
        true => view! { <code>{part.to_owned()}</code> }.into_any(),
        false => part.to_owned().into_any(),
    };
    parts(text).into_iter().map(show).collect_view().into_any()
}

/// Splits a text at its backticks into parts, of which some are code. An unpaired backtick is text.
fn parts(text: &str) -> Vec<(&str, bool)> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((before, code, after)) = rest
        .split_once('`')
        .and_then(|(before, rest)| rest.split_once('`').map(|(code, after)| (before, code, after)))
    {
        parts.extend([(before, false), (code, true)]);
        rest = after;
    }
    parts.push((rest, false));
    parts.retain(|(part, _)| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_between_two_backticks() {
        assert_eq!(
            parts("Use `a b`, or `c`."),
            [("Use ", false), ("a b", true), (", or ", false), ("c", true), (".", false)]
        );
        assert_eq!(parts("`a` costs 3` more"), [("a", true), (" costs 3` more", false)]);
        assert_eq!(parts("plain"), [("plain", false)]);
        assert_eq!(parts(""), []);
    }
}
