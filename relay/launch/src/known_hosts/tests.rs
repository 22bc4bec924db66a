//! The verifier is tried with keys, certificates and hashed names that `ssh-keygen` made.

use super::*;
use base64ct::{Base64, Encoding};
use proptest::prelude::*;

/// Within the time of the fixture that has one (January 2026).
const NOW: u64 = 1_768_435_200;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("fixtures/", $name, ".pub"))
    };
}

const HOST: &str = fixture!("host_ed25519");
const HOST_RSA: &str = fixture!("host_rsa");
const HOST_ECDSA: &str = fixture!("host_ecdsa");
const CA: &str = fixture!("ca_ed25519");

/// Type and base64 of a public key file.
fn key(file: &str) -> String {
    file.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

fn blob(file: &str) -> Vec<u8> {
    Base64::decode_vec(file.split_whitespace().nth(1).unwrap()).unwrap()
}

fn known(lines: &str) -> KnownHosts {
    let mut known = KnownHosts::default();
    known.read(Path::new("kh"), lines.as_bytes());
    known
}

fn verdict(lines: &str, host: &HostId, shown: &str) -> Verdict {
    known(lines).verdict(host, &blob(shown), NOW)
}

fn place(line: usize) -> LineLocation {
    LineLocation { file: "kh".into(), line }
}

fn gpu01() -> HostId {
    HostId::new("gpu-01", 22)
}

#[test]
fn t22_a_listed_key_is_known_and_another_key_of_that_host_is_changed() {
    let lines = format!("# comment\n\ngpu-02 {}\ngpu-01,10.0.0.1 {} me@here\n", key(CA), key(HOST));
    assert_eq!(verdict(&lines, &gpu01(), HOST), Verdict::Known);
    assert_eq!(verdict(&lines, &HostId::new("GPU-01", 22), HOST), Verdict::Known);
    assert_eq!(verdict(&lines, &gpu01(), CA), Verdict::Changed(place(4)));
    assert_eq!(verdict(&lines, &gpu01(), HOST_RSA), Verdict::Changed(place(4)), "another type is no excuse");
    assert_eq!(verdict(&lines, &HostId::new("gpu-03", 22), HOST), Verdict::Unknown);
}

#[test]
fn a_host_with_several_keys_may_show_any_of_them() {
    let lines = format!("gpu-01 {}\ngpu-01 {}\n", key(HOST_RSA), key(HOST));
    assert_eq!(verdict(&lines, &gpu01(), HOST), Verdict::Known);
    assert_eq!(verdict(&lines, &gpu01(), HOST_RSA), Verdict::Known);
}

#[test]
fn several_files_are_read_as_one() {
    let mut both = known(&format!("gpu-02 {}\n", key(HOST)));
    both.read(Path::new("global"), format!("gpu-* {}\n", key(HOST)).as_bytes());
    assert_eq!(both.verdict(&gpu01(), &blob(HOST), NOW), Verdict::Known);
    let changed = both.verdict(&gpu01(), &blob(CA), NOW);
    assert_eq!(changed, Verdict::Changed(LineLocation { file: "global".into(), line: 1 }));
}

#[test]
fn another_port_needs_its_own_line_or_a_valid_key_of_the_bare_name() {
    let host = HostId::new("gpu-01", 2222);
    let both = format!("[gpu-01]:2222 {}\ngpu-01 {}\n", key(HOST), key(CA));
    assert_eq!(verdict(&both, &host, HOST), Verdict::Known);
    assert_eq!(verdict(&both, &host, HOST_RSA), Verdict::Changed(place(1)));
    let bare = format!("gpu-01 {}\n", key(HOST));
    assert_eq!(verdict(&bare, &host, HOST), Verdict::Known, "as OpenSSH does");
    assert_eq!(verdict(&bare, &host, CA), Verdict::Unknown, "another service may have another key");
    assert_eq!(verdict(&format!("[gpu-01]:2222 {}\n", key(HOST)), &gpu01(), HOST), Verdict::Unknown);
}

#[test]
fn hashed_names_are_found() {
    let hashed = include_str!("fixtures/hashed_known_hosts");
    assert_eq!(verdict(hashed, &HostId::new("gpu-01", 2222), HOST), Verdict::Known);
    assert_eq!(verdict(hashed, &HostId::new("gpu-02", 22), HOST), Verdict::Known);
    assert_eq!(verdict(hashed, &HostId::new("gpu-02", 22), CA), Verdict::Changed(place(2)));
    assert_eq!(verdict(hashed, &HostId::new("gpu-01", 22), HOST), Verdict::Unknown);
}

#[test]
fn an_alias_is_looked_up_without_the_port() {
    let lines = format!("cluster-node {}\n", key(HOST));
    assert_eq!(verdict(&lines, &HostId::alias("cluster-node"), HOST), Verdict::Known);
}

#[test]
fn t22_a_revoked_key_is_refused_even_where_a_plain_line_lists_it() {
    let lines = format!("gpu-01 {0}\n@revoked * {0}\n", key(HOST));
    assert_eq!(verdict(&lines, &gpu01(), HOST), Verdict::Revoked(place(2)));
    let elsewhere = format!("gpu-01 {0}\n@revoked gpu-02 {0}\n", key(HOST));
    assert_eq!(verdict(&elsewhere, &gpu01(), HOST), Verdict::Known);
}

#[test]
fn a_certificate_of_a_trusted_authority_is_enough() {
    for (authority, certificate) in [
        (CA, fixture!("forever")),
        (CA, fixture!("any_host")),
        (CA, fixture!("for_ecdsa")),
        (CA, fixture!("dated")),
        (fixture!("ca_rsa"), fixture!("by_rsa")),
        (fixture!("ca_ecdsa"), fixture!("by_ecdsa")),
    ] {
        let lines = format!("@cert-authority gpu-* {}\n", key(authority));
        assert_eq!(verdict(&lines, &gpu01(), certificate), Verdict::Known, "{certificate}");
        assert_eq!(verdict(&lines, &HostId::new("gpu-01", 2222), certificate), Verdict::Known, "any port");
        assert_eq!(
            verdict(&lines, &HostId::new("login", 22), certificate),
            Verdict::Unknown,
            "not its hosts"
        );
    }
}

#[test]
fn t22_a_certificate_that_does_not_hold_is_refused() {
    let lines = format!("@cert-authority * {}\n@cert-authority * {}\n", key(CA), key(fixture!("ca_rsa")));
    let refused = |host: &str, certificate: &str, now: u64| match known(&lines).verdict(
        &HostId::new(host, 22),
        &blob(certificate),
        now,
    ) {
        Verdict::BadCertificate(why) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused("gpu-09", fixture!("forever"), NOW), "it is for another host");
    assert_eq!(refused("gpu-01", fixture!("dated"), NOW - 86_400 * 60), "it is not valid yet");
    assert_eq!(refused("gpu-01", fixture!("dated"), NOW + 86_400 * 60), "it has expired");
    assert_eq!(refused("gpu-01", fixture!("user"), NOW), "it is not a host certificate");
    assert_eq!(refused("gpu-01", fixture!("sha1"), NOW), "its signature is not the authority's");
    assert!(refused("gpu-01", fixture!("critical"), NOW).contains("critical options"));
}

#[test]
fn t22_a_certificate_with_any_byte_changed_is_refused() {
    let known = known(&format!("@cert-authority * {}\n", key(CA)));
    let whole = blob(fixture!("forever"));
    for at in 0..whole.len() {
        let mut bent = whole.clone();
        bent[at] ^= 1;
        assert_ne!(known.verdict(&gpu01(), &bent, NOW), Verdict::Known, "byte {at}");
    }
}

#[test]
fn t22_an_authority_we_do_not_trust_makes_a_certificate_worth_the_key_inside() {
    let other = format!("@cert-authority * {}\n", key(fixture!("ca_rsa")));
    assert_eq!(verdict(&other, &gpu01(), fixture!("forever")), Verdict::Unknown);
    let plain = format!("gpu-01 {}\n", key(HOST));
    assert_eq!(verdict(&plain, &gpu01(), fixture!("forever")), Verdict::Known);
    let changed = format!("gpu-01 {}\n", key(HOST_ECDSA));
    assert_eq!(verdict(&changed, &gpu01(), fixture!("forever")), Verdict::Changed(place(1)));
}

#[test]
fn t22_a_revoked_authority_or_a_revoked_key_inside_revokes_the_certificate() {
    for revoked in [CA, HOST] {
        let lines = format!("@cert-authority * {}\n@revoked * {}\n", key(CA), key(revoked));
        assert_eq!(verdict(&lines, &gpu01(), fixture!("forever")), Verdict::Revoked(place(2)));
    }
}

#[test]
fn t22_an_authoritys_own_key_is_no_host_key() {
    let lines = format!("@cert-authority * {}\n", key(CA));
    assert_eq!(verdict(&lines, &gpu01(), CA), Verdict::Unknown);
}

#[test]
fn key_types_that_can_be_checked_are_requested_first() {
    let rsa = known(&format!("gpu-01 {}\n", key(HOST_RSA))).algorithms(&gpu01());
    assert!(rsa.starts_with("rsa-sha2-512,rsa-sha2-256,ssh-ed25519"), "{rsa}");
    let certified = known(&format!("@cert-authority * {}\n", key(CA))).algorithms(&gpu01());
    assert!(certified.starts_with("ssh-ed25519-cert-v01@openssh.com,"), "{certified}");
    let unknown = KnownHosts::default().algorithms(&gpu01());
    assert!(!unknown.contains("cert") && !unknown.contains("ssh-rsa"), "{unknown}");
    assert_eq!(rsa.matches("rsa-sha2-512").count(), 1);
}

/// Found by fuzzing: the length of the key is wrong, which `ssh-key` ignores and OpenSSH does not.
#[test]
fn t22_a_key_whose_length_contradicts_it_is_no_key() {
    let forged = key(HOST).replacen("NTE5AAAAI", "NTE5AAAaI", 1);
    assert_ne!(forged, key(HOST));
    assert_eq!(verdict(&format!("gpu-01 {forged}\n"), &gpu01(), HOST), Verdict::Unknown);
}

#[test]
fn lines_that_make_no_sense_are_skipped() {
    let type_lie = key(HOST).replacen("ssh-ed25519", "ssh-rsa", 1);
    let lines = format!(
        "gpu-01\ngpu-01 ssh-ed25519\ngpu-01 ssh-ed25519 !!!\n@unknown gpu-01 {0}\ngpu-01 {type_lie}\n@revoked\n\
         |1|bad gpu {0}\n\t gpu-01 {0}\r\n",
        key(HOST)
    );
    let known = known(&lines);
    assert_eq!(known.entries.len(), 1);
    assert_eq!(known.verdict(&gpu01(), &blob(HOST), NOW), Verdict::Known);
    let mut binary = KnownHosts::default();
    binary.read(Path::new("kh"), b"\xff\xfe gpu-01\n\0\0\0");
    assert_eq!(binary.verdict(&gpu01(), &blob(HOST), NOW), Verdict::Unknown);
}

#[test]
fn fields_may_be_separated_by_several_spaces_and_tabs() {
    let fields = |name: &str| format!("{name} {}", key(HOST)).replace(' ', "\t  ");
    assert_eq!(verdict(&fields("gpu-01"), &gpu01(), HOST), Verdict::Known);
    assert_eq!(verdict(&fields("@revoked *"), &gpu01(), HOST), Verdict::Revoked(place(1)));
}

proptest! {
    #[test]
    fn t22_no_file_and_no_key_make_it_panic(
        file in prop::collection::vec(any::<u8>(), 0..400),
        shown in prop::collection::vec(any::<u8>(), 0..200),
        host in "(?s).{0,20}",
    ) {
        let mut known = KnownHosts::default();
        known.read(Path::new("kh"), &file);
        let verdict = known.verdict(&HostId::new(&host, 22), &shown, NOW);
        prop_assert!(verdict != Verdict::Known || !shown.is_empty());
        prop_assert!(!known.algorithms(&HostId::alias(&host)).is_empty());
    }

    #[test]
    fn t22_a_certificate_cut_or_bent_anywhere_never_panics(at in 0usize..400, byte in any::<u8>(), cut in 0usize..400) {
        let known = known(&format!("@cert-authority * {}\n", key(CA)));
        let mut bent = blob(fixture!("forever"));
        let at = at % bent.len();
        bent[at] = byte;
        bent.truncate(cut);
        // Now and then a byte is replaced by itself and nothing is cut.
        prop_assume!(bent != blob(fixture!("forever")));
        prop_assert_ne!(known.verdict(&gpu01(), &bent, NOW), Verdict::Known);
    }
}
