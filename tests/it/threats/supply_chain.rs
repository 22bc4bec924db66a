//! Dependencies are pinned by checksum and allowed by `deny.toml`, and the page loads nothing from
//! other hosts.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::relay::{Link, TestRelay};
use nodeglass_tests::{skip, test_tools};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The source of every crate.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// URLs that a page may contain without loading anything: XML namespaces.
const NAMESPACES: &str = "http://www.w3.org/";

#[test]
fn t30_the_relay_links_its_ssh_library_statically() -> Result<()> {
    let relay = TestRelay::demo()?;
    let loaded = fs::read_to_string(format!("/proc/{}/maps", relay.pid()))?;
    ensure!(loaded.contains("libc.so"), "nothing is known of what is loaded:\n{loaded}");
    ensure!(!loaded.contains("libssh2"), "the system's libssh2 is loaded");
    Ok(())
}

#[test]
fn t30_every_crate_is_from_the_registry_and_locked_by_checksum() -> Result<()> {
    let lock = fs::read_to_string(root().join("Cargo.lock"))?;
    let strays = unlocked(&lock);
    ensure!(strays.is_empty(), "not from the registry, or without a checksum: {strays:#?}");
    // Cargo confirms offline that the lock file matches the manifests.
    let output = metadata()?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "Cargo.lock is not of these manifests: {why}");
    Ok(())
}

#[test]
fn t30_every_external_tool_is_pinned_by_checksum() -> Result<()> {
    let mut seen = 0;
    for entry in fs::read_dir(root().join("xtask/pins"))? {
        let path = entry?.path();
        let strays = match path.is_dir() {
            true => loose_of_npm(&serde_json::from_slice(&fs::read(path.join("package-lock.json"))?)?),
            false => loose_of_pypi(&fs::read_to_string(&path)?),
        };
        ensure!(strays.is_empty(), "{} names without a hash: {strays:?}", path.display());
        seen += 1;
    }
    ensure!(seen >= 4, "only {seen} pins were found");
    // Nothing else in xtask installs from there.
    let mut unread = vec![root().join("xtask/src")];
    while let Some(path) = unread.pop() {
        if path.is_dir() {
            unread.extend(fs::read_dir(path)?.filter_map(|entry| Some(entry.ok()?.path())));
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let installs = text.contains("\"pip\"") || text.contains("new(\"npm\")");
        ensure!(!installs || path.ends_with("pins.rs"), "{} installs what is not pinned", path.display());
    }
    for (source, pin) in [("deny.rs", "cargo-deny.txt"), ("nextest.rs", "nextest.txt")] {
        let built = fs::read_to_string(root().join("xtask/src").join(source))?;
        let prebuilt = fs::read_to_string(root().join("xtask/pins").join(pin))?;
        let version = built.split("VERSION: &str = \"").nth(1).and_then(|rest| rest.split('"').next());
        let version = version.with_context(|| format!("{source} names a version"))?;
        ensure!(
            prebuilt.contains(&format!("=={version} ")),
            "{version} of {source} is built, another is fetched"
        );
    }
    Ok(())
}

#[test]
fn t30_licences_and_advisories_of_dependencies_are_checked() -> Result<()> {
    let Some(deny) = Deny::here()? else { return Ok(()) };
    let output =
        deny.check(&fs::read_to_string(root().join("deny.toml"))?, &["bans", "licenses", "sources"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[test]
fn t30_a_licence_that_is_not_allowed_is_refused() -> Result<()> {
    let Some(deny) = Deny::here()? else { return Ok(()) };
    let rules = fs::read_to_string(root().join("deny.toml"))?.replacen("    \"BSD-3-Clause\",\n", "", 1);
    let output = deny.check(&rules, &["licenses"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && said.contains("BSD-3-Clause"), "it was let through: {said}");
    Ok(())
}

#[test]
fn t30_a_crate_with_a_known_vulnerability_is_refused() -> Result<()> {
    let Some(deny) = Deny::here()? else { return Ok(()) };
    let rules = fs::read_to_string(root().join("deny.toml"))?;
    for (package, refused) in [("ssh2", true), ("no-crate-of-ours", false)] {
        let list = deny.advisories_for(package)?;
        let output = deny.check_holes(&rules, &list)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() != refused, "a hole in {package}, and the check says: {said}");
        ensure!(said.contains("RUSTSEC-2026-9999") == refused, "{said}");
    }
    Ok(())
}

#[test]
fn t30_the_page_loads_nothing_from_other_hosts() -> Result<()> {
    let relay = TestRelay::demo()?;
    let index = get(relay.link(), "/")?;
    if !index.contains(".wasm") && !index.contains(".js") {
        skip::skip("there is no page in the relay: `cargo xtask page` builds it, and the relay after it");
        return Ok(());
    }
    let (mut open, mut seen) = (vec!["/".to_owned()], BTreeSet::new());
    while let Some(path) = open.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let text = get(relay.link(), &path).with_context(|| format!("what the page loads: {path}"))?;
        let strays = foreign(&text);
        ensure!(strays.is_empty() || path.ends_with(".wasm"), "{path} names other places: {strays:?}");
        let loads = loads(&text);
        ensure!(
            loads.iter().all(|path| !path.contains("://") && !path.starts_with("//")),
            "{path}: {loads:?}"
        );
        open.extend(loads.into_iter().filter(|path| path.starts_with('/')));
    }
    let kinds = [".js", ".css", ".wasm"];
    ensure!(
        kinds.iter().all(|kind| seen.iter().any(|path| path.ends_with(kind))),
        "not the whole page was looked at: {seen:?}"
    );
    Ok(())
}

/// Packages of a lock file that are neither in this workspace nor from the registry with a checksum.
fn unlocked(lock: &str) -> Vec<&str> {
    let entries = lock.split("[[package]]").skip(1);
    let value = |entry: &'_ str, key: &str| entry.lines().any(|line| line.starts_with(key));
    entries
        .filter(|entry| value(entry, "source = "))
        .filter(|entry| {
            !entry.contains(&format!("source = \"{REGISTRY}\"")) || !value(entry, "checksum = \"")
        })
        .collect()
}

/// Requirements of pip without a version and a hash.
fn loose_of_pypi(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let requirements = joined.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let loose = requirements.filter(|line| !line.contains("==") || !line.contains("--hash=sha256:"));
    loose.map(str::to_owned).collect()
}

/// Packages of an npm lock file without a hash.
fn loose_of_npm(lock: &Value) -> Vec<String> {
    let packages = lock["packages"].as_object().into_iter().flatten().filter(|(name, _)| !name.is_empty());
    let loose = packages.filter(|(_, package)| {
        !package["integrity"].as_str().is_some_and(|hash| hash.starts_with("sha512-"))
    });
    loose.map(|(name, _)| name.clone()).collect()
}

/// URLs of other hosts in a file of the page.
fn foreign(text: &str) -> Vec<&str> {
    // A comment loads nothing.
    let is_code = |line: &&str| !["//", "/*", "*"].iter().any(|start| line.trim_start().starts_with(start));
    text.lines().filter(is_code).flat_map(foreign_in_line).collect()
}

fn foreign_in_line(text: &str) -> Vec<&str> {
    let starts = ["http://", "https://", "ws://", "wss://"].into_iter();
    starts
        .flat_map(|scheme| text.match_indices(scheme).map(move |(at, scheme)| (at, scheme.len())))
        .map(|(at, scheme)| {
            let end = text[at + scheme..].find(|c: char| c.is_whitespace() || "\"'`)<>\\".contains(c));
            &text[at..end.map_or(text.len(), |end| at + scheme + end)]
        })
        // A bare scheme is combined with the page's own host.
        .filter(|url| {
            !url.starts_with(NAMESPACES) && !matches!(*url, "http://" | "https://" | "ws://" | "wss://")
        })
        .collect()
}

/// URLs that a file of the page loads, by attribute, `url(…)` or `import`.
fn loads(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for before in [
        "src=\"",
        "href=\"",
        "url(",
        "url(\"",
        "url('",
        "from \"",
        "from '",
        "import(\"",
        "import('",
        "import \"",
        "import '",
    ] {
        for (at, _) in text.match_indices(before) {
            let rest = &text[at + before.len()..];
            let path = rest.split(['"', '\'', ')', '#', '?', '>']).next().unwrap_or_default();
            // A message in a program may contain `from "…"`.
            if path.contains('.') && !path.contains(char::is_whitespace) && !path.starts_with("data:") {
                let is_relative = !path.contains("://") && !path.starts_with('/');
                let path = path.strip_prefix("./").unwrap_or(path);
                found.push(if is_relative { format!("/{path}") } else { path.to_owned() });
            }
        }
    }
    found
}

/// The body of a file that the relay serves.
fn get(link: &Link, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(&link.authority)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", link.authority)?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    let reply = String::from_utf8_lossy(&reply);
    let (head, body) = reply.split_once("\r\n\r\n").context("an answer has a head")?;
    ensure!(head.starts_with("HTTP/1.1 200 "), "{head}");
    Ok(body.to_owned())
}

/// `cargo deny`, with the offline metadata of this checkout.
struct Deny {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Deny {
    fn here() -> Result<Option<Self>> {
        let Some(program) = test_tools::deny() else { return Ok(None) };
        let folder = tempfile::tempdir()?;
        let output = metadata()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::write(folder.path().join("metadata.json"), output.stdout)?;
        Ok(Some(Self { program, folder }))
    }

    fn check(&self, rules: &str, checks: &[&str]) -> Result<Output> {
        Ok(self.command(rules, &["--offline"])?.arg("check").args(checks).output()?)
    }

    /// Checks against a list of advisories, fetched and queried like the real one.
    fn check_holes(&self, rules: &str, list: &Path) -> Result<Output> {
        let copies = tempfile::tempdir_in(self.folder.path())?;
        let place = format!("[advisories]\ndb-path = {:?}\n", copies.path());
        let rules = rules.replacen("[advisories]\n", &place, 1);
        let fetched = self
            .command(&rules, &[])?
            .args(["fetch", "db"])
            .env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", format!("url.file://{}.insteadOf", list.display()))
            .env("GIT_CONFIG_VALUE_0", "https://github.com/RustSec/advisory-db")
            .output()?;
        ensure!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
        self.check_with(&rules)
    }

    fn check_with(&self, rules: &str) -> Result<Output> {
        self.check(rules, &["advisories"])
    }

    fn command(&self, rules: &str, flags: &[&str]) -> Result<Command> {
        let config = self.folder.path().join("deny.toml");
        fs::write(&config, rules)?;
        let mut command = Command::new(&self.program);
        command.current_dir(root()).args(flags).arg("--locked").arg("--config").arg(config);
        command.arg("--metadata-path").arg(self.folder.path().join("metadata.json"));
        Ok(command)
    }

    /// A list of advisories in RustSec's format, with one entry.
    fn advisories_for(&self, package: &str) -> Result<PathBuf> {
        let list = self.folder.path().join(format!("holes-of-{package}"));
        let crates = list.join("crates").join(package);
        fs::create_dir_all(&crates)?;
        let advisory = format!(
            "```toml\n[advisory]\nid = \"RUSTSEC-2026-9999\"\npackage = \"{package}\"\ndate = \"2026-11-01\"\n\n\
             [versions]\npatched = [\">= 999.0.0\"]\n```\n\n# A made-up hole\n\nIt is not there.\n"
        );
        fs::write(crates.join("RUSTSEC-2026-9999.md"), advisory)?;
        for words in [&["init", "-q", "-b", "main"][..], &["add", "."], &["commit", "-q", "-m", "a hole"]] {
            let as_somebody =
                ["-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false"];
            let output = Command::new("git").current_dir(&list).args(as_somebody).args(words).output()?;
            ensure!(output.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(list)
    }
}

/// Cargo's offline metadata of this checkout as locked, for the machine's target.
fn metadata() -> Result<Output> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let flags = ["metadata", "--locked", "--offline", "--format-version=1", "--filter-platform"];
    Ok(Command::new(cargo).current_dir(root()).args(flags).arg(target).output()?)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is a folder of the workspace")
}

mod the_checks_can_fail {
    use super::{REGISTRY, foreign, loads, loose_of_npm, loose_of_pypi, unlocked};

    #[test]
    fn t30_a_crate_from_elsewhere_or_without_a_checksum_is_detected() {
        let good = format!("[[package]]\nname = \"a\"\nsource = \"{REGISTRY}\"\nchecksum = \"00\"\n");
        let ours = "[[package]]\nname = \"b\"\nversion = \"1.0.0\"\n";
        let from_git = "[[package]]\nname = \"c\"\nsource = \"git+https://x.example/c\"\n";
        let bare = format!("[[package]]\nname = \"d\"\nsource = \"{REGISTRY}\"\n");
        assert!(unlocked(&format!("{good}{ours}")).is_empty());
        assert_eq!(unlocked(&format!("{good}{from_git}{ours}{bare}")).len(), 2);
    }

    #[test]
    fn t30_a_loose_pin_is_detected() {
        assert_eq!(loose_of_pypi("# x\na==1 \\\n    --hash=sha256:00\nb==2\nc --hash=sha256:00\n").len(), 2);
        let lock = serde_json::json!({"packages": {"": {}, "a": {"integrity": "sha512-x"}, "b": {}}});
        assert_eq!(loose_of_npm(&lock), ["b"]);
    }

    #[test]
    fn t30_a_load_from_another_host_is_detected() {
        let text =
            "<svg xmlns=\"http://www.w3.org/2000/svg\"> fetch('https://cdn.example/x.js') ws://${host}";
        assert_eq!(foreign(text), ["https://cdn.example/x.js", "ws://${host}"]);
        assert_eq!(
            foreign("  // see https://docs.example\nimport 'https://x.example'"),
            ["https://x.example"]
        );
        assert_eq!(
            loads(
                "<script src=\"/a.js\"></script> import x from './b.js'; url(\"c.woff2\") src=\"//d.example/d.js\""
            ),
            ["/a.js", "//d.example/d.js", "/c.woff2", "/b.js"]
        );
        assert!(loads("url(data:image/png;base64,x.y)").is_empty());
    }
}
