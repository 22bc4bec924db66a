//! The login page: why there is no access, how to get in, and a field for a link.

use crate::net::key::{self, NoKeyReason};
use crate::net::{Credential, DisconnectReason};
use crate::platform;
use crate::state::page::Page;
use leptos::ev::SubmitEvent;
use leptos::html::Input;
use leptos::prelude::*;

/// The login page.
#[component]
pub fn Login(
    /// Why an attempt failed; `None` if there was no key to try.
    why: Option<DisconnectReason>,
) -> impl IntoView {
    let no_key = why.is_none().then(key::no_key_reason);
    let (head, rest) = match (&why, no_key) {
        (Some(why), _) => message(why, &platform::authority()),
        (None, no_key) => no_key_message(no_key.unwrap_or(NoKeyReason::NeverHad)),
    };
    let command = match &why {
        Some(DisconnectReason::NotByProxy { .. } | DisconnectReason::TabLinkExpired) => "relay link --tab",
        _ => "relay link",
    };
    let way = match &why {
        Some(DisconnectReason::Version | DisconnectReason::NoRandom) => {
            view! { <button class="btn btn--primary" on:click=|_| platform::reload()>"Load the page again"</button> }.into_any()
        }
        Some(DisconnectReason::NotByProxy { other_user: true }) => {
            view! { <p>"A link to a share that you were given:"</p> <Paste/> }.into_any()
        }
        Some(DisconnectReason::NotTheOwner(_)) => view! {
            <p>"If you are the owner, your tunnel logs in as somebody else: start it again as yourself."</p>
            <button class="btn btn--primary" on:click=|_| platform::reload()>"Try again"</button>
            <p>"A link to a share that you were given:"</p>
            <Paste/>
        }
        .into_any(),
        why if why.as_ref().is_some_and(DisconnectReason::concerns_share) || no_key == Some(NoKeyReason::ShareOver) => {
            view! { <p>"Another link that you were given:"</p> <Paste/> }.into_any()
        }
        _ => view! {
            <ol class="gate__steps">
                <li>"On the login node, as the user who started the relay:" <code class="command">{command}</code></li>
                <li>"Open the link it prints, or paste it here:" <Paste/></li>
            </ol>
        }
        .into_any(),
    };
    view! {
        <main class="gate">
            <div class="gate__card">
                <p class="brand">"nodeglass"</p>
                <h1>{head}</h1>
                <p>{rest}</p>
                {way}
            </div>
        </main>
    }
}

/// A field for a link or key, the owner's or a share's.
#[component]
fn Paste() -> impl IntoView {
    let (feed, input) = (Page::from_context().feed, NodeRef::<Input>::new());
    let wrong = RwSignal::new(false);
    let submit = move |event: SubmitEvent| {
        event.prevent_default();
        let text = input.get_untracked().map(|input| input.value()).unwrap_or_default();
        match Credential::from_link(&text) {
            Some(credential) => feed.use_key(credential),
            None => wrong.set(true),
        }
    };
    view! {
        <form class="gate__form" on:submit=submit>
            <input type="password" class="field" node_ref=input autocomplete="off" autofocus
                aria-label="Link or key" placeholder="http://…/#…" aria-invalid=move || wrong.get().to_string()/>
            <button class="btn btn--primary" type="submit">"Open"</button>
        </form>
        <p class="gate__wrong" role="alert">
            {move || wrong.get().then_some("That is no link of a relay: it ends in #k=, #s= or #t= and a long key. Was it cut off?")}
        </p>
    }
}

/// Returns the headline and text for a tab without a key.
fn no_key_message(why: NoKeyReason) -> (String, String) {
    let (head, rest) = match why {
        NoKeyReason::NeverHad => (
            "This tab has no key.",
            "The picture of your jobs is yours alone: the link that the relay prints carries a key, and this address came without one.",
        ),
        NoKeyReason::CutOff => (
            "This link is incomplete.",
            "It ends in a part of a key. A terminal or a chat may have broken it into two lines: copy all of it.",
        ),
        NoKeyReason::ShareOver => (
            "This share is over.",
            "It was revoked or has expired, so nothing of it is shown any more. Ask for another link if you still need to look.",
        ),
    };
    (head.to_owned(), rest.to_owned())
}

/// Returns the headline and text for a disconnect reason.
fn message(why: &DisconnectReason, authority: &str) -> (String, String) {
    let (head, rest) = match why {
        DisconnectReason::Unverified => {
            return (
                format!("What answers at {authority} is not your relay."),
                "It could not prove that it holds your key, so it was told nothing. Either the relay was started anew with another key, or another program took its port."
                    .to_owned(),
            );
        }
        DisconnectReason::Version => (
            "Page and relay do not understand each other.",
            "They are of different versions. Load the page again; if that does not help, end the old relay and start the new one.",
        ),
        DisconnectReason::NoRandom => (
            "This browser gives no random numbers.",
            "Without them no key can be proved. Try a current Firefox, Chromium or Safari.",
        ),
        DisconnectReason::NotTheOwner(user) => {
            return (
                "This link is its owner's own.".to_owned(),
                format!(
                    "It works only for the user who started the relay, and the login node says that this connection is {}. Nothing was shown. Ask for a link to a share: that one is meant for others.",
                    user.as_deref().unwrap_or("another user's"),
                ),
            );
        }
        DisconnectReason::NotByProxy { other_user: true } => (
            "This link is its owner's own.",
            "It works only for the user who started the relay, and the proxy says that you are somebody else. Nothing was shown. Ask for a link to a share: that one is meant for others.",
        ),
        DisconnectReason::NotByProxy { other_user: false } => (
            "Through this proxy your link does not open.",
            "Other programs of the same site run in this browser, too, and could use its key. The proxy does not tell the relay who you are (its --proxy-user-header), so it takes a link that opens one tab, once.",
        ),
        DisconnectReason::TabLinkExpired => (
            "This link opened one tab, once.",
            "It was used, or is older than two minutes, or the relay was started anew since. A tab that was opened by such a link keeps it until it is loaded again.",
        ),
        DisconnectReason::NotForYou(to) => {
            return (
                format!("This link is only for {to}."),
                format!(
                    "The login node says that this connection is another user's. Reach it as {to}, or ask for a link of your own."
                ),
            );
        }
        DisconnectReason::NoSuchShare => (
            "This link leads to no share.",
            "It was revoked or has expired, or the relay was started anew since it was made. Or a part of the link is missing, or another program answers in the relay's place. Ask for another one.",
        ),
        DisconnectReason::Revoked(owner) => {
            return (
                format!("{} revoked this link.", owner.as_deref().unwrap_or("Its owner")),
                "Nothing of it is shown any more. Ask for another link if you still need to look.".to_owned(),
            );
        }
        DisconnectReason::Expired => (
            "The share is over.",
            "Its time is up, or its job has ended, so nothing of it is shown any more. Ask for another link if you still need to look.",
        ),
        _ => (
            "The relay did not accept the key.",
            "The relay was started anew with another key, or this user may not use it.",
        ),
    };
    (head.to_owned(), rest.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headline(why: &DisconnectReason) -> String {
        let (head, rest) = message(why, "127.0.0.1:8080");
        format!("{head} {rest}")
    }

    #[test]
    fn each_disconnect_reason_has_its_own_text() {
        let ways = [
            DisconnectReason::Unverified,
            DisconnectReason::Refused,
            DisconnectReason::NoSuchShare,
            DisconnectReason::NotTheOwner(Some("carol".to_owned())),
            DisconnectReason::NotByProxy { other_user: false },
            DisconnectReason::TabLinkExpired,
            DisconnectReason::NotForYou("bob".to_owned()),
            DisconnectReason::Revoked(Some("alice".to_owned())),
            DisconnectReason::Expired,
            DisconnectReason::Version,
            DisconnectReason::NoRandom,
        ];
        let mut heads: Vec<String> = ways.iter().map(|why| message(why, "x").0).collect();
        let none = [NoKeyReason::NeverHad, NoKeyReason::CutOff, NoKeyReason::ShareOver];
        heads.extend(none.map(|why| no_key_message(why).0));
        let all = heads.len();
        heads.sort_unstable();
        heads.dedup();
        assert_eq!(heads.len(), all, "{heads:#?}");
        assert!(ways.iter().all(DisconnectReason::is_final));
    }

    #[test]
    fn the_user_on_the_connection_and_the_intended_one_are_named() {
        assert!(
            headline(&DisconnectReason::NotTheOwner(Some("carol".to_owned())))
                .contains("this connection is carol")
        );
        assert!(headline(&DisconnectReason::NotTheOwner(None)).contains("another user's"));
        assert!(headline(&DisconnectReason::NotForYou("bob".to_owned())).contains("only for bob"));
        assert!(
            headline(&DisconnectReason::Revoked(Some("alice".to_owned())))
                .starts_with("alice revoked this link.")
        );
        assert!(headline(&DisconnectReason::Revoked(None)).starts_with("Its owner revoked this link."));
    }

    #[test]
    fn a_share_that_ended_is_final_and_a_lost_connection_is_not() {
        for over in
            [DisconnectReason::NoSuchShare, DisconnectReason::Revoked(None), DisconnectReason::Expired]
        {
            assert!(over.ends_share() && over.concerns_share() && over.is_final(), "{over:?}");
        }
        for later in [
            DisconnectReason::Broken,
            DisconnectReason::Silent,
            DisconnectReason::Malformed,
            DisconnectReason::TooSlow,
            DisconnectReason::ShutDown,
        ] {
            assert!(!later.ends_share() && !later.is_final(), "{later:?}");
        }
        // A guest whose tunnel logs in as another user may retry the same link.
        assert!(!DisconnectReason::NotForYou("bob".to_owned()).ends_share());
        assert!(
            !DisconnectReason::NotTheOwner(None).ends_share() && !DisconnectReason::Unverified.ends_share()
        );
    }
}
