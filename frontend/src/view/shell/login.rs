//! The login page: the reason for the missing access, how to get in, and a field for a link.

use crate::net::key::{self, NoKeyReason};
use crate::net::{Credential, DisconnectReason};
use crate::platform;
use crate::state::page::Page;
use crate::view::widgets::copy::copy_button;
use leptos::ev::SubmitEvent;
use leptos::html::Input;
use leptos::prelude::*;

/// The login page.
#[component]
pub fn Login(
    /// Reason for the failure of an attempt; `None` if there was no key to try.
    why: Option<DisconnectReason>,
) -> impl IntoView {
    let no_key = why.is_none().then(key::no_key_reason);
    let (head, rest) = match (&why, &no_key) {
        (Some(why), _) => message(why, &platform::authority()),
        (None, no_key) => no_key_message(no_key.as_ref().unwrap_or(&NoKeyReason::NeverHad)),
    };
    let way = way(why.as_ref(), no_key.as_ref());
    let or_impostor = matches!(why, Some(DisconnectReason::Unverified))
        .then(|| view! { <p class="gate__aside">{OR_IMPOSTOR}</p> });
    view! {
        <main class="gate">
            <div class="gate__card">
                <p class="brand">"nodeglass"</p>
                <h1>{head}</h1>
                <p>{rest}</p>
                {way}
                {or_impostor}
            </div>
        </main>
    }
}

/// The way in after a failed attempt, or without a key.
fn way(why: Option<&DisconnectReason>, no_key: Option<&NoKeyReason>) -> AnyView {
    let command = match why {
        Some(DisconnectReason::NotByProxy { .. } | DisconnectReason::TabLinkExpired) => "relay link --tab",
        _ => "relay link",
    };
    match why {
        Some(DisconnectReason::Version | DisconnectReason::NoRandom) => {
            view! { <button class="btn btn--primary" on:click=|_| platform::reload()>"Reload the page"</button> }.into_any()
        }
        Some(DisconnectReason::NotIdentified) => view! {
            <button class="btn btn--primary" on:click=|_| platform::reload()>"Try again"</button>
            <p>"If you have a link to a share, paste it here:"</p>
            <Paste/>
        }
        .into_any(),
        Some(DisconnectReason::NotByProxy { other_user: true }) => {
            view! { <p>"If you have a link to a share, paste it here:"</p> <Paste/> }.into_any()
        }
        Some(DisconnectReason::NotTheOwner(_)) => view! {
            <p>"If you are the owner, your tunnel is logged in as another user: restart it as yourself."</p>
            <button class="btn btn--primary" on:click=|_| platform::reload()>"Try again"</button>
            <p>"If you have a link to a share, paste it here:"</p>
            <Paste/>
        }
        .into_any(),
        why if why.is_some_and(DisconnectReason::concerns_share)
            || matches!(no_key, Some(NoKeyReason::ShareOver(_))) =>
        {
            view! { <p>"If you have another link, paste it here:"</p> <Paste/> }.into_any()
        }
        _ => view! {
            <ol class="gate__steps">
                <li>
                    "On the login node, as the user who started the relay:"
                    <div class="gate__command"><code class="command">{command}</code> {copy_button(command.to_owned())}</div>
                </li>
                <li>"Open the link that it prints, or paste it here:" <Paste/></li>
            </ol>
        }
        .into_any(),
    }
}

/// The less likely reason why the relay did not prove its key.
pub const OR_IMPOSTOR: &str = "If you did not restart the relay, another program may be using its port. It received nothing from this page; use only a link that relay prints.";

/// Returns the headline and text for a relay that did not prove the key of this page's link.
pub fn out_of_date(authority: &str) -> (String, String) {
    (
        "This link is out of date.".to_owned(),
        format!("The relay at {authority} has a different key – most likely it was restarted."),
    )
}

/// A field for a link or key, the owner's or a share's.
#[component]
pub fn Paste(
    /// Whether it takes the focus.
    #[prop(default = true)]
    autofocus: bool,
) -> impl IntoView {
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
            <input type="password" class="field" node_ref=input autocomplete="off" autofocus=autofocus
                aria-label="Link or key" placeholder="http://…/#…" aria-invalid=move || wrong.get().to_string()/>
            <button class="btn btn--primary" type="submit">"Open"</button>
        </form>
        <p class="gate__wrong" role="alert">
            {move || wrong.get().then_some("This is not a relay's link: one ends in #k=, #s= or #t= and a long key. Was it cut off?")}
        </p>
    }
}

/// Returns the headline and text for a tab without a key.
fn no_key_message(why: &NoKeyReason) -> (String, String) {
    let (head, rest) = match why {
        NoKeyReason::ShareOver(reason) => return message(reason, ""),
        NoKeyReason::NeverHad => {
            ("This tab has no key.", "This page needs the key from the link that relay printed.")
        }
        NoKeyReason::CutOff => (
            "This link is incomplete.",
            "Its key is cut off. A terminal or a chat may have broken it into two lines: copy all of it.",
        ),
    };
    (head.to_owned(), rest.to_owned())
}

/// Returns the headline and text for a disconnect reason.
fn message(why: &DisconnectReason, authority: &str) -> (String, String) {
    let (head, rest) = match why {
        DisconnectReason::Unverified => return out_of_date(authority),
        DisconnectReason::Version => (
            "Page and relay have different versions.",
            "Reload the page. If that does not help, stop the old relay and start the new one.",
        ),
        DisconnectReason::NoRandom => (
            "This browser provides no secure random numbers.",
            "They are needed to prove the key. Use a current Firefox, Chromium or Safari.",
        ),
        DisconnectReason::NotTheOwner(user) => {
            return (
                "This link is for the relay's owner only.".to_owned(),
                format!(
                    "According to the login node, this connection belongs to {}. Ask the owner to share a link with you.",
                    user.as_deref().unwrap_or("another user"),
                ),
            );
        }
        DisconnectReason::NotByProxy { other_user: true } => (
            "This link is for the relay's owner only.",
            "According to the proxy, you are another user. Ask the owner to share a link with you.",
        ),
        DisconnectReason::NotByProxy { other_user: false } => (
            "This link does not work through this proxy.",
            "Other programs of the same site run in this browser, too, and could use its key. The proxy does not name its users to the relay (--proxy-user-header), so a link for one tab is needed.",
        ),
        DisconnectReason::NotIdentified => (
            "The relay cannot tell who you are.",
            "Log in to the site's portal, or connect through ssh -L as yourself. Root and the accounts of services have no access.",
        ),
        DisconnectReason::TabLinkExpired => (
            "This single-use link is no longer valid.",
            "It was used, is older than two minutes, or the relay was restarted. A tab that was opened by such a link loses it when it is reloaded.",
        ),
        DisconnectReason::NotForYou(to) => {
            return (
                format!("This link is for {to} only."),
                format!(
                    "According to the login node, this connection belongs to another user. Connect as {to}, or ask for a link of your own."
                ),
            );
        }
        DisconnectReason::NoSuchShare => (
            "This share does not exist any more.",
            "It was revoked, it expired, or the relay was restarted since. If none of this applies, part of the link may be missing. Ask for another link.",
        ),
        DisconnectReason::Revoked(owner) => {
            return (
                format!("{} revoked this link.", owner.as_deref().unwrap_or("Its owner")),
                "The share has ended. Ask for another link if you still need access.".to_owned(),
            );
        }
        DisconnectReason::Expired => (
            "This share has expired.",
            "Its time is over, or its job has ended. Ask for another link if you still need access.",
        ),
        _ => ("The relay did not accept the key.", "It has a different key, or this user may not use it."),
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
            DisconnectReason::NotIdentified,
            DisconnectReason::TabLinkExpired,
            DisconnectReason::NotForYou("bob".to_owned()),
            DisconnectReason::Revoked(Some("alice".to_owned())),
            DisconnectReason::Expired,
            DisconnectReason::Version,
            DisconnectReason::NoRandom,
        ];
        let mut heads: Vec<String> = ways.iter().map(|why| message(why, "x").0).collect();
        let none = [NoKeyReason::NeverHad, NoKeyReason::CutOff];
        heads.extend(none.map(|why| no_key_message(&why).0));
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
                .contains("this connection belongs to carol")
        );
        assert!(headline(&DisconnectReason::NotTheOwner(None)).contains("another user"));
        assert!(headline(&DisconnectReason::NotForYou("bob".to_owned())).contains("for bob only"));
        assert!(
            headline(&DisconnectReason::Revoked(Some("alice".to_owned())))
                .starts_with("alice revoked this link.")
        );
        assert!(headline(&DisconnectReason::Revoked(None)).starts_with("Its owner revoked this link."));
    }

    #[test]
    fn a_reload_of_a_revoked_share_names_who_revoked_it_and_not_the_owners_command() {
        let why = DisconnectReason::Revoked(Some("alice".to_owned()));
        let (head, rest) = no_key_message(&NoKeyReason::ShareOver(why));
        assert_eq!(head, "alice revoked this link.");
        assert!(!rest.contains("relay link"), "{rest}");
    }

    #[test]
    fn a_restarted_relay_is_the_first_guess() {
        let text = headline(&DisconnectReason::Unverified);
        assert!(text.starts_with("This link is out of date. The relay at 127.0.0.1:8080"), "{text}");
        assert!(text.contains("restarted") && !text.contains("another program"), "{text}");
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
