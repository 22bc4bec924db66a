//! Without a key, or with one that does not fit (any more), the page says why and how to get in, and takes a link by hand.

use crate::browser;
use crate::feed::key::{self, NoKey};
use crate::feed::{Credential, Parting};
use crate::page::Page;
use leptos::ev::SubmitEvent;
use leptos::html::Input;
use leptos::prelude::*;

/// The way in.
#[component]
pub fn Gate(
    /// Why an attempt failed; none when there was no key to try.
    why: Option<Parting>,
) -> impl IntoView {
    let no_key = why.is_none().then(key::why_none);
    let (head, rest) = match (&why, no_key) {
        (Some(why), _) => said(why, &browser::authority()),
        (None, no_key) => said_of_none(no_key.unwrap_or(NoKey::NeverHad)),
    };
    let command = match &why {
        Some(Parting::NotByProxy { .. } | Parting::TabLinkOver) => "relay link --tab",
        _ => "relay link",
    };
    let way = match &why {
        Some(Parting::Version | Parting::NoRandom) => {
            view! { <button class="btn btn--primary" on:click=|_| browser::reload()>"Load the page again"</button> }.into_any()
        }
        Some(Parting::NotByProxy { other_user: true }) => {
            view! { <p>"A link to a share that you were given:"</p> <Paste/> }.into_any()
        }
        Some(Parting::NotTheOwner(_)) => view! {
            <p>"If you are the owner, your tunnel logs in as somebody else: start it again as yourself."</p>
            <button class="btn btn--primary" on:click=|_| browser::reload()>"Try again"</button>
            <p>"A link to a share that you were given:"</p>
            <Paste/>
        }
        .into_any(),
        why if why.as_ref().is_some_and(Parting::is_of_share) || no_key == Some(NoKey::ShareOver) => {
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

/// A link or a key by hand, the owner's or a share's.
#[component]
fn Paste() -> impl IntoView {
    let (feed, input) = (Page::here().feed, NodeRef::<Input>::new());
    let wrong = RwSignal::new(false);
    let submit = move |event: SubmitEvent| {
        event.prevent_default();
        let text = input.get_untracked().map(|input| input.value()).unwrap_or_default();
        match Credential::of_link(&text) {
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

/// What a tab without a key shows.
fn said_of_none(why: NoKey) -> (String, String) {
    let (head, rest) = match why {
        NoKey::NeverHad => (
            "This tab has no key.",
            "The picture of your jobs is yours alone: the link that the relay prints carries a key, and this address came without one.",
        ),
        NoKey::CutOff => (
            "This link is incomplete.",
            "It ends in a part of a key. A terminal or a chat may have broken it into two lines: copy all of it.",
        ),
        NoKey::ShareOver => (
            "This share is over.",
            "It was revoked or has expired, so nothing of it is shown any more. Ask for another link if you still need to look.",
        ),
    };
    (head.to_owned(), rest.to_owned())
}

/// What happened, and what it means.
fn said(why: &Parting, authority: &str) -> (String, String) {
    let (head, rest) = match why {
        Parting::Stranger => {
            return (
                format!("What answers at {authority} is not your relay."),
                "It could not prove that it holds your key, so it was told nothing. Either the relay was started anew with another key, or another program took its port."
                    .to_owned(),
            );
        }
        Parting::Version => (
            "Page and relay do not understand each other.",
            "They are of different versions. Load the page again; if that does not help, end the old relay and start the new one.",
        ),
        Parting::NoRandom => (
            "This browser gives no random numbers.",
            "Without them no key can be proved. Try a current Firefox, Chromium or Safari.",
        ),
        Parting::NotTheOwner(user) => {
            return (
                "This link is its owner's own.".to_owned(),
                format!(
                    "It works only for the user who started the relay, and the login node says that this connection is {}. Nothing was shown. Ask for a link to a share: that one is meant for others.",
                    user.as_deref().unwrap_or("another user's"),
                ),
            );
        }
        Parting::NotByProxy { other_user: true } => (
            "This link is its owner's own.",
            "It works only for the user who started the relay, and the proxy says that you are somebody else. Nothing was shown. Ask for a link to a share: that one is meant for others.",
        ),
        Parting::NotByProxy { other_user: false } => (
            "Through this proxy your link does not open.",
            "Other programs of the same site run in this browser, too, and could use its key. The proxy does not tell the relay who you are (its --proxy-user-header), so it takes a link that opens one tab, once.",
        ),
        Parting::TabLinkOver => (
            "This link opened one tab, once.",
            "It was used, or is older than two minutes, or the relay was started anew since. A tab that was opened by such a link keeps it until it is loaded again.",
        ),
        Parting::NotForYou(to) => {
            return (
                format!("This link is only for {to}."),
                format!(
                    "The login node says that this connection is another user's. Reach it as {to}, or ask for a link of your own."
                ),
            );
        }
        Parting::NoSuchShare => (
            "This link leads to no share.",
            "It was revoked or has expired, or the relay was started anew since it was made. Or a part of the link is missing, or another program answers in the relay's place. Ask for another one.",
        ),
        Parting::Revoked(owner) => {
            return (
                format!("{} revoked this link.", owner.as_deref().unwrap_or("Its owner")),
                "Nothing of it is shown any more. Ask for another link if you still need to look.".to_owned(),
            );
        }
        Parting::Expired => (
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

    fn words(why: &Parting) -> String {
        let (head, rest) = said(why, "127.0.0.1:8080");
        format!("{head} {rest}")
    }

    #[test]
    fn each_way_to_be_sent_away_has_words_of_its_own() {
        let ways = [
            Parting::Stranger,
            Parting::Refused,
            Parting::NoSuchShare,
            Parting::NotTheOwner(Some("carol".to_owned())),
            Parting::NotByProxy { other_user: false },
            Parting::TabLinkOver,
            Parting::NotForYou("bob".to_owned()),
            Parting::Revoked(Some("alice".to_owned())),
            Parting::Expired,
            Parting::Version,
            Parting::NoRandom,
        ];
        let mut heads: Vec<String> = ways.iter().map(|why| said(why, "x").0).collect();
        let none = [NoKey::NeverHad, NoKey::CutOff, NoKey::ShareOver];
        heads.extend(none.map(|why| said_of_none(why).0));
        let all = heads.len();
        heads.sort_unstable();
        heads.dedup();
        assert_eq!(heads.len(), all, "{heads:#?}");
        assert!(ways.iter().all(Parting::is_final));
    }

    #[test]
    fn who_the_kernel_saw_and_who_was_meant_are_named() {
        assert!(words(&Parting::NotTheOwner(Some("carol".to_owned()))).contains("this connection is carol"));
        assert!(words(&Parting::NotTheOwner(None)).contains("another user's"));
        assert!(words(&Parting::NotForYou("bob".to_owned())).contains("only for bob"));
        assert!(words(&Parting::Revoked(Some("alice".to_owned()))).starts_with("alice revoked this link."));
        assert!(words(&Parting::Revoked(None)).starts_with("Its owner revoked this link."));
    }

    #[test]
    fn what_ends_a_share_ends_it_for_good_and_a_lost_link_does_not() {
        for over in [Parting::NoSuchShare, Parting::Revoked(None), Parting::Expired] {
            assert!(over.ends_share() && over.is_of_share() && over.is_final(), "{over:?}");
        }
        for later in [Parting::Broken, Parting::Silent, Parting::Garbled, Parting::TooSlow, Parting::ShutDown]
        {
            assert!(!later.ends_share() && !later.is_final(), "{later:?}");
        }
        // A guest whose tunnel logs in as somebody else may try the same link again.
        assert!(!Parting::NotForYou("bob".to_owned()).ends_share());
        assert!(!Parting::NotTheOwner(None).ends_share() && !Parting::Stranger.ends_share());
    }
}
