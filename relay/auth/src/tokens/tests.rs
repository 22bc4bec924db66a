//! Tests of [`super`]: what a token opens, for how long, and what its file must be.

use super::*;
use std::os::unix::fs::PermissionsExt;

const NOW_MS: u64 = 1_795_586_845_000;
const OWNER: TokenUser = TokenUser::Owner;

fn folder() -> (tempfile::TempDir, StateDir) {
    let folder = tempfile::tempdir().unwrap();
    let dir = StateDir::at(folder.path().join("nodeglass")).unwrap();
    (folder, dir)
}

#[test]
fn f24_tokens_of_a_directory_that_others_can_access_are_accepted_once_it_is_private() {
    let (_folder, dir) = folder();
    let (_, ticket) = Tokens::new(Some(dir.clone())).create("grafana", None, &OWNER, NOW_MS).unwrap();
    let allow = |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    allow(0o777);
    let tokens = Tokens::new(Some(dir.clone()));
    assert!(tokens.problem(NOW_MS).is_some_and(|why| why.as_str().contains("is not yours alone")));
    assert_eq!(tokens.open(&ticket, NOW_MS), None);
    assert!(matches!(tokens.create("other", None, &OWNER, NOW_MS), Err(TokenError::StateDir(_))));
    allow(0o700);
    assert_eq!(tokens.problem(NOW_MS), None);
    assert!(tokens.open(&ticket, NOW_MS).is_some());
}

#[test]
fn a_token_is_valid_for_every_relay_of_its_directory_until_it_is_revoked() {
    let (_folder, dir) = folder();
    let (one, other) = (Tokens::new(Some(dir.clone())), Tokens::new(Some(dir)));
    let (info, ticket) = one.create("grafana", None, &OWNER, NOW_MS).unwrap();
    assert_eq!((info.name.as_str(), info.expires_ms), ("grafana", Some(NOW_MS + 90 * DAY_MS)));
    assert_eq!(other.problem(NOW_MS), None);
    assert_eq!(other.open(&ticket, NOW_MS).map(|token| token.id), Some(ticket.id.clone()));
    assert!(matches!(other.create("grafana", None, &OWNER, NOW_MS), Err(TokenError::Exists(_))));
    one.revoke("grafana").unwrap();
    assert_eq!(other.problem(NOW_MS), None);
    assert_eq!((one.open(&ticket, NOW_MS), other.open(&ticket, NOW_MS)), (None, None));
    assert!(!other.is_valid(&ticket.id, NOW_MS));
    assert!(matches!(other.revoke("grafana"), Err(TokenError::Unknown(_))));
}

#[test]
fn t23_a_new_token_of_the_same_name_does_not_keep_a_revoked_one_valid() {
    let tokens = Tokens::new(None);
    let (_, old) = tokens.create("grafana", None, &OWNER, NOW_MS).unwrap();
    tokens.revoke("grafana").unwrap();
    let (_, new) = tokens.create("grafana", None, &OWNER, NOW_MS).unwrap();
    assert!(!tokens.is_valid(&old.id, NOW_MS) && tokens.is_valid(&new.id, NOW_MS));
}

#[test]
fn no_change_of_one_relay_is_lost_to_that_of_another() {
    const EACH: usize = 12;
    let (_folder, dir) = folder();
    std::thread::scope(|scope| {
        for relay in 0..4 {
            let tokens = Tokens::new(Some(dir.clone()));
            scope.spawn(move || {
                for number in 0..EACH {
                    tokens.create(&format!("t{relay}-{number}"), None, &OWNER, NOW_MS).unwrap();
                }
                tokens.revoke(&format!("t{relay}-0")).unwrap();
            });
        }
    });
    assert_eq!(Tokens::new(Some(dir.clone())).list(NOW_MS).unwrap().len(), 4 * (EACH - 1));
    let left = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 2, "tokens.json and its lock, no temporary file");
}

#[test]
fn an_expired_token_opens_nothing_and_its_name_is_free_again() {
    let tokens = Tokens::new(None);
    let (_, ticket) = tokens.create("night", Some(1), &OWNER, NOW_MS).unwrap();
    let later_ms = NOW_MS + DAY_MS;
    assert!(tokens.is_valid(&ticket.id, later_ms - 1) && !tokens.is_valid(&ticket.id, later_ms));
    assert_eq!(tokens.open(&ticket, later_ms), None);
    assert_eq!(tokens.list(later_ms).unwrap(), []);
    let (_, renewed) = tokens.create("night", Some(1), &OWNER, later_ms).unwrap();
    assert_eq!(tokens.open(&ticket, later_ms), None);
    assert!(tokens.open(&renewed, later_ms).is_some());
}

#[test]
fn names_lifetimes_and_the_number_of_tokens_are_limited() {
    let tokens = Tokens::new(None);
    for wrong in ["", "-x", "a b", "ä", "a/b", &"a".repeat(65)] {
        assert!(matches!(tokens.create(wrong, None, &OWNER, NOW_MS), Err(TokenError::Name)), "{wrong}");
    }
    for days in [0, MAX_DAYS + 1] {
        assert!(matches!(tokens.create("x", Some(days), &OWNER, NOW_MS), Err(TokenError::Lifetime)));
    }
    for number in 0..MAX_TOKENS {
        tokens.create(&format!("t{number}"), None, &OWNER, NOW_MS).unwrap();
    }
    assert!(matches!(tokens.create("one-more", None, &OWNER, NOW_MS), Err(TokenError::TooMany)));
}

#[test]
fn t23_the_file_is_private_opens_nothing_and_is_refused_where_others_can_read_it() {
    let (_folder, dir) = folder();
    let tokens = Tokens::new(Some(dir.clone()));
    let (_, ticket) = tokens.create("grafana", None, &OWNER, NOW_MS).unwrap();
    let path = dir.path().join(FILE);
    let key = ticket.reveal();
    let key = key.split_once('.').unwrap().1;
    assert!(!fs::read_to_string(&path).unwrap().contains(key));
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(tokens.list(NOW_MS).is_err());
    assert_eq!(tokens.open(&ticket, NOW_MS), None);
}

#[test]
fn a_pipe_in_place_of_the_file_opens_nothing_at_once_and_is_named() {
    let (_folder, dir) = folder();
    regular_file::make_pipe(&dir.path().join(FILE));
    let tokens = Tokens::new(Some(dir));
    let ticket = Tokens::new(None).create("x", None, &OWNER, NOW_MS).unwrap().1;
    assert_eq!(tokens.open(&ticket, NOW_MS), None);
    let error = tokens.create("grafana", None, &OWNER, NOW_MS).unwrap_err().to_string();
    assert!(error.ends_with("tokens.json: it is a pipe, not a file"), "{error}");
}

#[test]
fn a_damaged_file_opens_nothing_and_is_named() {
    let (_folder, dir) = folder();
    let tokens = Tokens::new(Some(dir.clone()));
    let (_, ticket) = tokens.create("grafana", None, &OWNER, NOW_MS).unwrap();
    fs::write(dir.path().join(FILE), "{\"grafana\":").unwrap();
    let error = tokens.list(NOW_MS).unwrap_err().to_string();
    assert!(error.contains("tokens.json"), "{error}");
    assert_eq!(tokens.open(&ticket, NOW_MS), None);
    let problem = tokens.problem(NOW_MS).unwrap();
    assert!(problem.as_str().starts_with("no token is accepted: the file of tokens is damaged"), "{problem}");
    fs::remove_file(dir.path().join(FILE)).unwrap();
    assert_eq!(tokens.problem(NOW_MS), None);
    // A stored verifier of another length opens nothing either.
    assert_eq!((unhex("00"), unhex(&"0".repeat(66)), unhex(&"g".repeat(64))), (None, None, None));
}

/// The file is its owner's alone; what else writes it is damage, or a backup of another host.
#[test]
fn t23_an_altered_file_opens_no_other_token_and_breaks_nothing() {
    use serde_json::{Value, json};
    let (_folder, dir) = folder();
    let path = dir.path().join(FILE);
    let (_, ticket) = Tokens::new(Some(dir.clone())).create("grafana", None, &OWNER, NOW_MS).unwrap();
    let whole = fs::read_to_string(&path).unwrap();
    let opens = |content: &str| {
        fs::write(&path, content).unwrap();
        let tokens = Tokens::new(Some(dir.clone()));
        let listed = tokens.list(NOW_MS).map(|listed| listed.len());
        let opened = tokens.open(&ticket, NOW_MS).is_some();
        assert!(!opened || listed.is_ok());
        tokens.mark_used(&ticket.id, NOW_MS);
        let (saved, revoked) = (tokens.save_uses(), tokens.revoke("grafana"));
        assert!(listed.is_ok() || (saved.is_ok() && revoked.is_err()), "{saved:?}, {revoked:?}: {content}");
        assert!(tokens.open(&ticket, NOW_MS).is_none() || !content.contains("grafana"), "{content}");
        opened
    };
    assert!(opens(&whole));
    // Each field has another value, or none.
    let values = [
        json!(null),
        json!(-1),
        json!(0),
        json!(u64::MAX),
        json!(1e300),
        json!(true),
        json!(""),
        json!([]),
        json!({}),
        json!("0".repeat(64)),
        json!("\u{202e}\u{1b}[31m"),
        json!("x".repeat(100_000)),
        json!("absent"),
    ];
    for name in ["id", "created_ms", "expires_ms", "uid", "used_ms", "stored", "server"] {
        let opened = values.iter().filter(|value| {
            let mut file: Value = serde_json::from_str(&whole).unwrap();
            let fields = file["grafana"].as_object_mut().unwrap();
            match value.as_str() {
                Some("absent") => drop(fields.remove(name)),
                _ => drop(fields.insert(name.to_owned(), (*value).clone())),
            }
            opens(&file.to_string())
        });
        let identifies = ["id", "stored", "server"].contains(&name);
        assert_eq!(opened.count() > 0, !identifies, "{name}");
    }
    // It ends early, holds something else, or is larger than any that a relay writes.
    (0..whole.len()).step_by(7).for_each(|at| assert!(!opens(&whole[..at]), "{at} bytes"));
    for other in ["[]", "null", "{}", "{\"a\":{}}", "\0", &whole.replace("grafana", r"\u001b[31m\u202e")] {
        assert_eq!(opens(other), other.contains("stored"), "{other}");
    }
    assert!(!opens(&format!("{whole}{}", " ".repeat(MAX_BYTES as usize))));
    // It is a link, or another user's.
    let elsewhere = dir.path().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    fs::write(&elsewhere, &whole).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    let tokens = Tokens::new(Some(dir.clone()));
    assert!(tokens.list(NOW_MS).is_err() && tokens.open(&ticket, NOW_MS).is_none());
    fs::remove_file(&path).unwrap();
    fs::rename(&elsewhere, &path).unwrap();
    if std::os::unix::fs::chown(&path, Some(65_534), None).is_ok() {
        assert!(tokens.list(NOW_MS).is_err() && tokens.open(&ticket, NOW_MS).is_none());
    }
}

#[test]
fn the_last_use_outlives_the_relay_and_is_written_every_ten_minutes_at_most() {
    let (_folder, dir) = folder();
    let tokens = Tokens::new(Some(dir.clone()));
    let id = tokens.create("grafana", None, &OWNER, NOW_MS).unwrap().1.id;
    let stored = || Tokens::new(Some(dir.clone())).list(NOW_MS).unwrap()[0].used_ms;
    for (used_ms, expected) in
        [(NOW_MS, NOW_MS), (NOW_MS + USE_LAG_MS, NOW_MS), (NOW_MS + USE_LAG_MS + 1, NOW_MS + USE_LAG_MS + 1)]
    {
        tokens.mark_used(&id, used_ms);
        tokens.save_uses().unwrap();
        assert_eq!((stored(), tokens.list(NOW_MS).unwrap()[0].used_ms), (Some(expected), Some(used_ms)));
    }
}

#[test]
fn what_only_a_newer_relay_knows_of_a_token_stays_in_the_file() {
    let (_folder, dir) = folder();
    Tokens::new(Some(dir.clone())).create("grafana", None, &OWNER, NOW_MS).unwrap();
    let path = dir.path().join(FILE);
    let read = || -> serde_json::Value { serde_json::from_slice(&fs::read(&path).unwrap()).unwrap() };
    let mut file = read();
    file["grafana"]["of_a_newer_relay"] = "metrics".into();
    fs::write(&path, file.to_string()).unwrap();
    Tokens::new(Some(dir)).create("other", None, &OWNER, NOW_MS).unwrap();
    assert_eq!(read()["grafana"], file["grafana"]);
}

#[test]
fn a_token_of_an_earlier_version_has_no_end_and_no_user() {
    let (_folder, dir) = folder();
    let tokens = Tokens::new(Some(dir.clone()));
    let (_, ticket) = tokens.create("grafana", None, &OWNER, NOW_MS).unwrap();
    let path = dir.path().join(FILE);
    let mut file: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let fields = file["grafana"].as_object_mut().unwrap();
    fields.retain(|name, _| !["expires_ms", "uid", "used_ms"].contains(&name.as_str()));
    fs::write(&path, file.to_string()).unwrap();
    let tokens = Tokens::new(Some(dir));
    assert_eq!(tokens.problem(NOW_MS), None);
    assert!(tokens.open(&ticket, u64::MAX).is_some_and(|token| token.user().as_str().is_empty()));
    let listed = tokens.list(NOW_MS).unwrap();
    assert_eq!((&listed[0].expires_ms, &listed[0].user), (&None, &None));
}

/// Anyone may present a token: one that waited for the disk would stop the relay.
#[test]
fn t11_no_request_waits_for_a_disk_that_hangs_and_a_revoked_token_is_refused_at_once() {
    let (_folder, dir) = folder();
    let tokens = Tokens::new(Some(dir));
    let (_, revoked) = tokens.create("revoked", None, &OWNER, NOW_MS).unwrap();
    let (_, kept) = tokens.create("kept", None, &OWNER, NOW_MS).unwrap();
    std::thread::scope(|scope| {
        // As a thread does that waits for the disk.
        let hangs = tokens.file();
        assert!(tokens.open(&kept, NOW_MS).is_some() && tokens.open(&revoked, NOW_MS).is_some());
        let revoking = scope.spawn(|| tokens.revoke("revoked"));
        while tokens.open(&revoked, NOW_MS).is_some() {
            std::thread::yield_now();
        }
        assert!(!tokens.is_valid(&revoked.id, NOW_MS) && tokens.is_valid(&kept.id, NOW_MS));
        drop(hangs);
        revoking.join().unwrap().unwrap();
    });
    assert_eq!(tokens.list(NOW_MS).unwrap().len(), 1);
}
