//! Tests of [`super`]: who is admitted, who is not, and what a wrong key costs.

use super::super::tokens::{TokenError, TokenUser};
use super::*;
use nodeglass_access::trust::Trusted;
use nodeglass_protocol::handshake::LEN;
use nodeglass_protocol::share::{HiddenParts, Scope, ShareId, ShareLink, ShareRequest};
use nodeglass_share::ShareEndpoint;

const HOST: &str = "127.0.0.1:8080";
const PAGE: Nonce = Nonce([1; LEN]);
const V1: VersionRange = VersionRange::only(LIVE_WIRE);

const ALICE: Peer = Peer::User(1);
const MALLORY: Peer = Peer::User(1_666_666);

fn authenticator() -> (Arc<Authenticator>, Key) {
    let key = Key::new([7; LEN]);
    let place = ShareEndpoint { address: Some("http://127.0.0.1:8080/".into()), tunnel: "ssh".into() };
    let shares = Arc::new(Shares::new(key.clone(), "alice".into(), place, None));
    let trust = Trust::new(vec![Trusted::User(1), Trusted::User(2)]);
    (Arc::new(Authenticator::new(key.clone(), trust, shares, Tokens::new(None))), key)
}

fn made(authenticator: &Authenticator, to: Option<&str>) -> (ShareLink, String) {
    let to = to.map(Into::into);
    let (scope, hidden) = (Scope::All, HiddenParts::default());
    let made = authenticator
        .shares
        .create(ShareRequest { label: "".into(), scope, hidden, to, lifetime_s: None })
        .unwrap();
    let credential = made.link.as_ref().unwrap().rsplit_once("#s=").unwrap().1.to_owned();
    (made, credential)
}

/// Authenticates with the link of a share, as a page does.
fn enter(authenticator: &Arc<Authenticator>, shown: &str, peer: Peer) -> Result<AccessGrant, CloseReason> {
    let ticket: Ticket = shown.parse().unwrap();
    let attempt = authenticator.begin(peer).map_err(|_| CloseReason::TooSlow)?;
    let challenge = attempt.hello(V1, &KeyId::Share(ticket.id.clone()), PAGE, Nonce([2; LEN]), HOST, 0)?;
    let code = proof(&ticket.proof(), 2, HOST);
    attempt.prove(challenge, &code, 0).map(|proved| proved.grant)
}

fn begin(authenticator: &Arc<Authenticator>, nonce: u8) -> (AuthAttempt, Challenge) {
    let attempt = authenticator.begin(Peer::User(1)).unwrap();
    let challenge = attempt.hello(V1, &KeyId::Owner, PAGE, Nonce([nonce; LEN]), HOST, 0).unwrap();
    (attempt, challenge)
}

fn proof(key: &Key, nonce: u8, authority: &str) -> Code {
    Exchange { client: PAGE, server: Nonce([nonce; LEN]), authority }.client_code(key)
}

#[test]
fn a_valid_proof_authenticates_after_the_relay_proved_itself() {
    let (authenticator, key) = authenticator();
    let (attempt, challenge) = begin(&authenticator, 2);
    let ServerMessage::Challenge { nonce, code } = attempt.challenge(&challenge) else { panic!() };
    assert!(Exchange { client: PAGE, server: nonce, authority: HOST }.accepts_server(&key, &code));
    let Authenticated { grant, proto, .. } = attempt.prove(challenge, &proof(&key, 2, HOST), 0).unwrap();
    assert!(matches!(grant, AccessGrant::Owner) && proto == LIVE_WIRE);
}

#[test]
fn wrong_replayed_or_relayed_proofs_are_rejected() {
    let (authenticator, key) = authenticator();
    let wrong = Key::new([8; LEN]);
    for code in [proof(&wrong, 2, HOST), proof(&key, 3, HOST), proof(&key, 2, "evil:8080")] {
        let (attempt, challenge) = begin(&authenticator, 2);
        assert_eq!(attempt.prove(challenge, &code, 0).unwrap_err(), CloseReason::Refused);
    }
}

#[test]
fn the_relays_own_code_is_rejected_as_a_proof() {
    let (authenticator, _) = authenticator();
    let (attempt, challenge) = begin(&authenticator, 2);
    let ServerMessage::Challenge { code, .. } = attempt.challenge(&challenge) else { panic!() };
    assert_eq!(attempt.prove(challenge, &code, 0).unwrap_err(), CloseReason::Refused);
}

#[test]
fn an_unknown_version_is_turned_away_before_any_proof() {
    let (authenticator, _) = authenticator();
    let attempt = authenticator.begin(Peer::User(1)).unwrap();
    let newer = VersionRange { min: LIVE_WIRE + 1, max: LIVE_WIRE + 9 };
    let hello = |proto, key: &KeyId| attempt.hello(proto, key, PAGE, PAGE, HOST, 0).map(|_| ());
    assert_eq!(hello(newer, &KeyId::Owner), Err(CloseReason::Version { relay: V1 }));
}

#[test]
fn waiting_logins_are_counted_until_they_are_cancelled() {
    let (authenticator, _) = authenticator();
    let waiting: Vec<_> = (0..MAX_PENDING).map(|_| authenticator.begin(Peer::User(1)).unwrap()).collect();
    assert_eq!(authenticator.begin(Peer::User(1)).unwrap_err(), RateLimited::TooMany);
    assert!(authenticator.begin(Peer::User(2)).is_ok());
    drop(waiting);
    assert!(authenticator.begin(Peer::User(1)).is_ok());
}

#[test]
fn a_bearer_token_must_be_the_complete_key() {
    let (authenticator, key) = authenticator();
    let peer = Peer::User(1);
    assert!(matches!(
        authenticator.bearer(Some(&format!("Bearer {}", key.reveal())), peer, 0),
        Ok(AccessGrant::Owner)
    ));
    assert!(matches!(
        authenticator.bearer(Some(&format!("bearer  {}", key.reveal())), peer, 0),
        Ok(AccessGrant::Owner)
    ));
    for wrong in ["", "Bearer", "Bearer ", "Basic eDp5"] {
        assert!(matches!(authenticator.bearer(Some(wrong), peer, 0), Err(AuthError::WrongKey)), "{wrong}");
    }
    assert!(matches!(authenticator.bearer(None, peer, 0), Err(AuthError::WrongKey)));
    assert!(matches!(authenticator.bearer(Some(&key.reveal()), peer, 0), Err(AuthError::WrongKey)));
}

#[test]
fn wrong_keys_are_throttled_for_that_user_only_and_a_right_one_opens() {
    let (authenticator, key) = authenticator();
    let guess = format!("Bearer {}", Key::new([9; LEN]).reveal());
    for _ in 0..MAX_FAILURES {
        assert!(matches!(authenticator.bearer(Some(&guess), Peer::User(1), 0), Err(AuthError::WrongKey)));
    }
    let right = format!("Bearer {}", key.reveal());
    for shown in [Some(guess.as_str()), None, Some("Bearer")] {
        assert!(
            matches!(authenticator.bearer(shown, Peer::User(1), 1), Err(AuthError::RateLimited(_))),
            "{shown:?}"
        );
    }
    assert!(matches!(authenticator.bearer(Some(&guess), Peer::User(2), 1), Err(AuthError::WrongKey)));
    assert!(matches!(authenticator.bearer(Some(&right), Peer::User(1), 1), Ok(AccessGrant::Owner)));
    assert!(authenticator.begin(Peer::User(1)).unwrap().failure_delay_ms(1) > 0);
    let (attempt, challenge) = begin(&authenticator, 2);
    assert!(attempt.prove(challenge, &proof(&key, 2, HOST), 1).is_ok());
}

#[test]
fn on_the_private_socket_wrong_keys_are_forgotten_at_once() {
    let (authenticator, key) = authenticator();
    let private = Origin { peer: Peer::owner(), is_private: true };
    let guess = format!("Bearer {}", Key::new([9; LEN]).reveal());
    for _ in 0..10 * MAX_FAILURES {
        assert_eq!(authenticator.bearer(Some(&guess), private, 0).unwrap_err(), AuthError::WrongKey);
    }
    assert!(authenticator.bearer(Some(&format!("Bearer {}", key.reveal())), private, 0).is_ok());
}

const BEHIND: Peer = Peer::Behind {
    ip: std::net::IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 9)),
    visitor: ProxiedUser::Unnamed,
};

#[test]
fn t27_behind_a_proxy_the_owners_key_by_itself_opens_nothing() {
    let (authenticator, key) = authenticator();
    let attempt = authenticator.begin(BEHIND).unwrap();
    let challenge = attempt.hello(V1, &KeyId::Owner, PAGE, Nonce([2; LEN]), HOST, 0).unwrap();
    let refused = attempt.prove(challenge, &proof(&key, 2, HOST), 0).unwrap_err();
    assert_eq!(refused, CloseReason::NotByProxy { other_user: false });
    let bearer = authenticator.bearer(Some(&format!("Bearer {}", key.reveal())), BEHIND, 0);
    assert!(matches!(bearer, Err(AuthError::Forbidden(CloseReason::NotByProxy { .. }))));
}

#[test]
fn t27_a_link_for_one_tab_opens_behind_a_proxy_for_the_tab_that_was_first() {
    let (authenticator, _) = authenticator();
    let ticket = authenticator.open_tab_link(0).unwrap();
    let enter = |nonce: u8, key: &Key| {
        let (attempt, server) = (authenticator.begin(BEHIND).unwrap(), Nonce([nonce; LEN]));
        let challenge = attempt.hello(V1, &KeyId::Tab(ticket.id.clone()), PAGE, server, HOST, 0).unwrap();
        attempt.prove(challenge, &proof(key, nonce, HOST), 0)
    };
    let (link, session) = (ticket.proof(), |nonce: u8| {
        let exchange = Exchange { client: PAGE, server: Nonce([nonce; LEN]), authority: HOST };
        exchange.session_key(&ticket.proof())
    });
    assert!(matches!(enter(2, &link), Ok(Authenticated { grant: AccessGrant::Owner, tab: Some(_), .. })));
    assert_eq!(enter(3, &link).unwrap_err(), CloseReason::Refused, "the link opened a second tab");
    assert_eq!(enter(4, &session(3)).unwrap_err(), CloseReason::Refused);
    // The same tab may reconnect any number of times.
    assert!(enter(5, &session(2)).is_ok() && enter(6, &session(2)).is_ok());
    let shown = format!("Bearer {}", ticket.reveal());
    assert!(authenticator.bearer(Some(&shown), BEHIND, 0).is_err(), "a tab link is not a bearer token");
}

#[test]
fn one_of_two_tabs_with_the_same_link_is_admitted() {
    let (authenticator, _) = authenticator();
    let ticket = authenticator.open_tab_link(0).unwrap();
    let key = ticket.proof();
    let begin = |nonce: u8| {
        let attempt = authenticator.begin(BEHIND).unwrap();
        let id = KeyId::Tab(ticket.id.clone());
        let challenge = attempt.hello(V1, &id, PAGE, Nonce([nonce; LEN]), HOST, 0).unwrap();
        (attempt, challenge)
    };
    let ((one, first), (other, second)) = (begin(2), begin(3));
    assert!(one.prove(first, &proof(&key, 2, HOST), 0).is_ok());
    assert_eq!(other.prove(second, &proof(&key, 3, HOST), 0).unwrap_err(), CloseReason::Refused);
}

#[test]
fn t02_the_owners_key_admits_no_other_user() {
    let (authenticator, key) = authenticator();
    for (peer, user) in [(Peer::User(0), Some("root".into())), (Peer::Unknown, None)] {
        // The user who runs the tests is the owner, even if it is root.
        if peer == Peer::owner() {
            continue;
        }
        let attempt = authenticator.begin(peer).unwrap();
        let challenge = attempt.hello(V1, &KeyId::Owner, PAGE, Nonce([2; LEN]), HOST, 0).unwrap();
        let refused = attempt.prove(challenge, &proof(&key, 2, HOST), 0).unwrap_err();
        assert_eq!(refused, CloseReason::NotTheOwner { user });
        let bearer = format!("Bearer {}", key.reveal());
        assert!(matches!(authenticator.bearer(Some(&bearer), peer, 0), Err(AuthError::Forbidden(_))));
    }
}

#[test]
fn a_share_lets_its_holder_in_as_a_guest_until_it_ends() {
    let (authenticator, _) = authenticator();
    let (made, shown) = made(&authenticator, None);
    for peer in [ALICE, Peer::User(4711), Peer::Unknown] {
        let Ok(AccessGrant::Guest(share)) = enter(&authenticator, &shown, peer) else { panic!("{peer:?}") };
        assert_eq!(share.id, made.share.id);
        let bearer = authenticator.bearer(Some(&format!("Bearer {shown}")), peer, 0);
        assert!(matches!(bearer, Ok(AccessGrant::Guest(_))), "{peer:?}");
    }
    authenticator.shares.revoke(&made.share.id).unwrap();
    assert_eq!(enter(&authenticator, &shown, ALICE).unwrap_err(), CloseReason::Revoked);
    let bearer = authenticator.bearer(Some(&format!("Bearer {shown}")), ALICE, 0);
    assert_eq!(bearer.unwrap_err(), AuthError::Forbidden(CloseReason::Revoked));
}

#[test]
fn a_share_for_one_user_opens_for_that_user_and_its_owner() {
    let (authenticator, _) = authenticator();
    let (_, shown) = made(&authenticator, Some("nobody"));
    let nobody = Peer::User(user::uid_of("nobody").unwrap());
    assert!(enter(&authenticator, &shown, nobody).is_ok());
    assert!(enter(&authenticator, &shown, Peer::owner()).is_ok());
    for stranger in [ALICE, Peer::Unknown] {
        assert_eq!(
            enter(&authenticator, &shown, stranger).unwrap_err(),
            CloseReason::NotForYou { to: "nobody".into() }
        );
    }
}

#[test]
fn t11_an_unknown_share_is_challenged_like_an_existing_one() {
    let (authenticator, _) = authenticator();
    let (made, _) = made(&authenticator, None);
    let unknown = ShareId::new("unknown").unwrap();
    for key in [KeyId::Share(made.share.id), KeyId::Share(unknown.clone()), KeyId::Tab(unknown)] {
        let attempt = authenticator.begin(ALICE).unwrap();
        let challenge = attempt.hello(V1, &key, PAGE, Nonce([2; LEN]), HOST, 0).unwrap();
        assert!(matches!(attempt.challenge(&challenge), ServerMessage::Challenge { .. }), "{key:?}");
        let code = proof(&Key::new([8; LEN]), 2, HOST);
        assert_eq!(attempt.prove(challenge, &code, 0).unwrap_err(), CloseReason::Refused, "{key:?}");
    }
}

#[test]
fn t11_guesses_of_ids_are_throttled_like_wrong_keys() {
    let (authenticator, key) = authenticator();
    for guess in 0..MAX_FAILURES {
        let attempt = authenticator.begin(ALICE).unwrap();
        assert_eq!(attempt.failure_delay_ms(0), 0);
        let id = KeyId::Share(ShareId::new(format!("guess{guess}")).unwrap());
        let challenge = attempt.hello(V1, &id, PAGE, Nonce([2; LEN]), HOST, 0).unwrap();
        assert_eq!(attempt.prove(challenge, &proof(&key, 2, HOST), 0).unwrap_err(), CloseReason::Refused);
    }
    assert_eq!(authenticator.begin(ALICE).unwrap().failure_delay_ms(1), FAILURE_DELAY_MS);
    assert_eq!(authenticator.begin(Peer::User(2)).unwrap().failure_delay_ms(1), 0);
}

#[test]
fn t09_a_shares_key_is_valid_for_that_share_only() {
    let (authenticator, key) = authenticator();
    let ((_, one), (other, _)) = (made(&authenticator, None), made(&authenticator, None));
    let mixed = format!("{}.{}", other.share.id, one.split_once('.').unwrap().1);
    assert_eq!(enter(&authenticator, &mixed, ALICE).unwrap_err(), CloseReason::Refused);
    let ticket: Ticket = one.parse().unwrap();
    let attempt = authenticator.begin(ALICE).unwrap();
    let challenge = attempt.hello(V1, &KeyId::Owner, PAGE, Nonce([2; LEN]), HOST, 0).unwrap();
    let code = proof(&ticket.proof(), 2, HOST);
    assert_eq!(attempt.prove(challenge, &code, 0).unwrap_err(), CloseReason::Refused);
    assert!(ticket.proof() != key);
}

#[test]
fn t02_a_token_is_for_its_user_unless_created_for_anyone() {
    let (authenticator, _) = authenticator();
    let ip = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    let behind = |visitor| Peer::Behind { ip, visitor };
    let nobody = Peer::User(user::uid_of("nobody").unwrap());
    let (known, far) = ([Peer::owner(), ALICE, nobody, MALLORY, Peer::Unknown], Peer::Remote(ip));
    let elsewhere =
        [far, behind(ProxiedUser::Unnamed), behind(ProxiedUser::Owner), behind(ProxiedUser::Other)];
    let admitted = |whose: TokenUser, name: &str| {
        let ticket = authenticator.tokens().create(name, None, &whose, Clock::wall_ms()).unwrap().1;
        let bearer = format!("Bearer {}", ticket.reveal());
        let admits = |peer| match authenticator.bearer(Some(&bearer), peer, 0) {
            Ok(AccessGrant::Token(id)) => id == ticket.id,
            Err(AuthError::TokenOfAnother(_)) => false,
            other => panic!("{peer:?}: {other:?}"),
        };
        (known.map(admits), elsewhere.map(admits))
    };
    // Alice is trusted with the owner's key.
    let of_owner = admitted(TokenUser::Owner, "owner");
    assert_eq!(of_owner, ([true, true, false, false, false], [true, true, true, false]));
    let of_nobody = admitted(TokenUser::Named("nobody".into()), "nobody");
    assert_eq!(of_nobody, ([true, false, true, false, false], [true, true, true, false]));
    assert_eq!(admitted(TokenUser::Anyone, "anyone"), ([true; 5], [true; 4]));
}

#[test]
fn t02_a_token_that_another_user_presents_counts_as_a_failure_and_not_as_a_use() {
    let (authenticator, _) = authenticator();
    let ticket = authenticator.tokens().create("x", None, &TokenUser::Owner, Clock::wall_ms()).unwrap().1;
    let bearer = format!("Bearer {}", ticket.reveal());
    let refused = || authenticator.bearer(Some(&bearer), MALLORY, 0).unwrap_err();
    for _ in 0..MAX_FAILURES {
        assert!(matches!(refused(), AuthError::TokenOfAnother(_)));
    }
    assert!(matches!(refused(), AuthError::RateLimited(_)));
    let used = || authenticator.tokens().list(Clock::wall_ms()).unwrap()[0].used_ms;
    assert_eq!(used(), None);
    assert!(authenticator.bearer(Some(&bearer), Peer::owner(), 0).is_ok() && used().is_some());
    let unknown = TokenUser::Named("no-such-user-here".into());
    let error = authenticator.tokens().create("y", None, &unknown, 0).unwrap_err();
    assert!(matches!(error, TokenError::NoSuchUser(_)), "{error}");
}

#[test]
fn a_connection_whose_user_is_not_known_is_not_called_another_users() {
    assert!(!misuse(Peer::Unknown).contains("another user"));
    assert!(misuse(MALLORY).starts_with("another user"));
}
