//! `relay token`: named, read-only tokens for programs.

use hyper::Method;
use nodeglass_api::{CreatedToken, NewToken, Timestamp, Token};
use nodeglass_app::remote::{Remote, lines};
use nodeglass_app::terminal;
use nodeglass_config::TokenCommand;
use nodeglass_platform::clock::Clock;
use nodeglass_platform::local_time::LocalTime;
use nodeglass_protocol::Text;
use nodeglass_report::aligned;

const TOKENS: &str = "/api/v1/tokens";

/// Executes a `relay token` command and returns what to print.
///
/// # Errors
/// A complete sentence for the user.
pub async fn token(relay: &Remote, command: TokenCommand) -> anyhow::Result<String> {
    match command {
        TokenCommand::Create { name, days, to, any_user, json } => {
            let body = serde_json::to_string(&NewToken { name, days, user: to, any_user })?;
            let created: CreatedToken = relay.json(Method::POST, TOKENS, body).await?;
            Ok(if json { terminal::json(&created)? } else { created_text(&created) })
        }
        TokenCommand::List { json } => {
            let tokens: Vec<Token> = relay.json(Method::GET, TOKENS, String::new()).await?;
            Ok(if json { terminal::json(&tokens)? } else { list(&tokens) })
        }
        TokenCommand::Revoke { name } => {
            let answer = relay.request(Method::DELETE, &format!("{TOKENS}/{name}"), String::new()).await?;
            Ok(lines(&answer))
        }
    }
}

fn created_text(created: &CreatedToken) -> String {
    // Something else than a relay may have sent them.
    let (name, secret) = (Text::new(&created.token.name), Text::new(&created.secret));
    let until = match (created.token.expires_at, created.is_stored) {
        (None, false) => "until this relay ends, which stores nothing".to_owned(),
        (Some(at), false) => {
            format!("until this relay ends, which stores nothing, or until {}", local(at))
        }
        (Some(at), true) => format!("until {}", local(at)),
        (None, true) => format!("until you run `relay token revoke {name}`"),
    };
    let whose = match &created.token.user {
        Some(user) => format!("programs of {user} only"),
        None => "programs of anyone who has it".to_owned(),
    };
    format!(
        "{secret}\n\n\
         Token {name} is for {whose}, reads everything that you see, changes nothing, and is valid {until}.\n\
         It is not shown again. A program sends it as `Authorization: Bearer {}…`.\n",
        secret.as_str().chars().take(4).collect::<String>()
    )
}

fn list(tokens: &[Token]) -> String {
    if tokens.is_empty() {
        return "no tokens; create one with `relay token create NAME`\n".to_owned();
    }
    let header = ["Name", "For", "Created", "Expires", "Last used"].map(str::to_owned).to_vec();
    let or = |at: Option<Timestamp>, none: &str| at.map_or_else(|| none.to_owned(), local);
    let row = |token: &Token| {
        vec![
            Text::new(&token.name).to_string(),
            token.user.as_ref().map_or_else(|| "anyone".to_owned(), Text::to_string),
            local(token.created_at),
            or(token.expires_at, "never"),
            or(token.last_used_at, "-"),
        ]
    };
    let rows: Vec<_> = [header].into_iter().chain(tokens.iter().map(row)).collect();
    aligned(&rows, 5)
}

fn local(at: Timestamp) -> String {
    let now = LocalTime::of(Clock::wall_ms() / 1_000);
    LocalTime::of(at.as_millis() / 1_000).seen_from(&now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_token_says_what_it_is_for_and_how_it_ends() {
        let token = Token {
            name: "grafana".into(),
            created_at: Timestamp::from_millis(0),
            expires_at: None,
            last_used_at: None,
            user: None,
        };
        let created = CreatedToken { token: token.clone(), secret: "abcdef.KEY".into(), is_stored: true };
        let text = created_text(&created);
        let unstored = created_text(&CreatedToken { is_stored: false, ..created });
        assert!(unstored.contains("until this relay ends"), "{unstored}");
        assert!(text.starts_with("abcdef.KEY\n") && text.contains("relay token revoke grafana"), "{text}");
        // The secret is in one place only, for scripts that read the first line.
        assert_eq!(text.matches("abcdef.KEY").count(), 1);
        assert!(list(&[token]).contains("never"));
        assert!(list(&[]).contains("relay token create"));
    }
}
