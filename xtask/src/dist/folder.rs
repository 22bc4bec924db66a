//! Fills the folder of a release: programs, licences, manuals, completions, the app of Open OnDemand, and the unit of a service; and
//! archives it.

use super::{MACHINES, Notices, Programs, VERSION, epoch, licences, sbom};
use crate::shell::{root, run};
use anyhow::{Context, Result, bail, ensure};
use pulldown_cmark::{Event, Options, Parser, Tag};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

/// The unit for the systemd of each user, in packages that install the relay as `/usr/bin/nodeglass`.
pub(super) const UNIT: &str = "nodeglass.service";
/// The head of the unit.
const UNIT_HEAD: &str = "\
# The relay as a service of a user: systemctl --user enable --now nodeglass. Where several login nodes share the home,
# `relay service install` writes a unit for one of them, which replaces this one.
";

/// Fills the folder for a processor type: a relay with the probe for its own processor, the probes for others, licences, a
/// short manual, man pages, shell completions, and the app of Open OnDemand.
pub(super) fn fill(of: &Programs, all: &[Programs], notices: &Notices, out: &Path) -> Result<PathBuf> {
    let folder = out.join(format!("nodeglass-{VERSION}-linux-{}", of.machine));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    for program in ["relay", "node-probe"] {
        let from = of.folder.join(program);
        fs::copy(&from, folder.join(program)).with_context(|| format!("copy {}", from.display()))?;
    }
    for name in ["nodeglass", "nvl"] {
        std::os::unix::fs::symlink("relay", folder.join(name))?;
    }
    for machine in MACHINES.into_iter().filter(|machine| *machine != of.machine) {
        let name = format!("node-probe-{machine}");
        let built = all.iter().find(|other| other.machine == machine);
        let from = built.map_or_else(|| of.folder.join(&name), |other| other.folder.join("node-probe"));
        if from.is_file() {
            fs::copy(from, folder.join(name))?;
        } else {
            println!("  without a probe for {machine}");
        }
    }
    texts(&folder, notices)?;
    let native = native(all)?;
    documents(native, &folder.join("share"))?;
    fs::create_dir(folder.join("share/nodeglass"))?;
    run(Command::new("cp")
        .arg("-R")
        .arg(root().join("packaging/ondemand"))
        .arg(folder.join("share/nodeglass")))?;
    fs::write(
        folder.join(UNIT),
        unit(&output(Command::new(native.join("relay")).args(["service", "install", "--print"]))?)?,
    )?;
    settle(&folder)?;
    Ok(folder)
}

/// Writes the short manual, the changes, the licences and the bill of materials into a folder.
fn texts(folder: &Path, notices: &Notices) -> Result<()> {
    for text in ["LICENSE-MIT", "LICENSE-APACHE"] {
        fs::copy(root().join(text), folder.join(text)).with_context(|| format!("copy {text}"))?;
    }
    fs::write(folder.join(licences::FILE), &notices.licences)?;
    fs::write(folder.join(sbom::file_name()), &notices.bill)?;
    for (from, to) in [("packaging/README.md", "README.md"), ("CHANGELOG.md", "CHANGELOG.md")] {
        let text = fs::read_to_string(root().join(from)).with_context(|| format!("read {from}"))?;
        fs::write(folder.join(to), linking_within(folder, &text))?;
    }
    Ok(())
}

/// A Markdown text without the links that lead out of a folder to documents of the sources; their words stay.
fn linking_within(folder: &Path, text: &str) -> String {
    let leads = |link: &str| {
        let path = link.split('#').next().unwrap_or_default();
        path.contains(':') || folder.join(path).exists()
    };
    let (mut out, mut end) = (String::new(), 0);
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        let Event::Start(Tag::Link { dest_url, .. }) = event else { continue };
        let link = &text[range.clone()];
        if let Some((words, _)) = link.rsplit_once("](").filter(|_| !leads(&dest_url)) {
            out.push_str(&text[end..range.start]);
            out.push_str(words.trim_start_matches('['));
            end = range.end;
        }
    }
    out + &text[end..]
}

/// Archives a folder without what two builds of the same programs would differ in: times, users, the order of files.
pub(super) fn archive(folder: &Path) -> Result<PathBuf> {
    let (parent, name) = (folder.parent().context("a folder")?, folder.file_name().context("a name")?);
    let file = parent.join(format!("{}.tar.gz", name.display()));
    run(Command::new("tar")
        .current_dir(parent)
        .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        // The time of a link is its own.
        .arg(format!("--mtime=@{}", epoch()?))
        .args(["--exclude", UNIT, "--use-compress-program=gzip -n", "-cf"])
        .arg(&file)
        .arg(name))?;
    Ok(file)
}

/// The folder of the programs for this machine, which can be run to print their documents.
fn native(all: &[Programs]) -> Result<&Path> {
    let native = all.iter().find(|of| of.machine == std::env::consts::ARCH);
    let native = native
        .context("no archive is for the processor of this machine, which is needed to print man pages")?;
    Ok(&native.folder)
}

/// Shell completions, in the folders below `share` where each shell looks for them.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/relay"),
    ("zsh", "zsh/site-functions/_relay"),
    ("fish", "fish/vendor_completions.d/relay.fish"),
];

/// What the relay's other names need for the same manual and completions, below `share`; zsh reads the first line of a file.
const OTHER_NAMES: [(&str, &str); 4] = [
    ("man/man1/nodeglass.1", ".so man1/relay.1\n"),
    ("man/man1/nvl.1", ".so man1/relay-list.1\n"),
    (
        "bash-completion/completions/nodeglass",
        ". \"${BASH_SOURCE[0]%/*}/relay\"\ncomplete -F _relay -o bashdefault -o default nodeglass\n",
    ),
    ("fish/vendor_completions.d/nodeglass.fish", "complete --command nodeglass --wraps relay\n"),
];

/// Lets the programs in a folder write their man pages and shell completions below `share`.
fn documents(programs: &Path, share: &Path) -> Result<()> {
    let (relay, pages) = (programs.join("relay"), share.join("man/man1"));
    run(Command::new(&relay).args(["man", "--out"]).arg(&pages))?;
    for (page, command) in [("node-probe.1", None), ("node-probe-selftest.1", Some("selftest"))] {
        let page = pages.join(page);
        fs::write(page, output(Command::new(programs.join("node-probe")).arg("man").args(command))?)?;
    }
    for (shell, path) in COMPLETIONS {
        let path = share.join(path);
        fs::create_dir_all(path.parent().context("a folder of completions")?)?;
        let completions = output(Command::new(&relay).args(["completions", shell]))?;
        fs::write(path, completions.replacen("#compdef relay\n", "#compdef relay nodeglass\n", 1))?;
    }
    for (path, text) in OTHER_NAMES {
        fs::write(share.join(path), text)?;
    }
    // As distributions demand; without the time, which two builds would differ in.
    run(Command::new("gzip").args(["-9", "-n", "-r"]).arg(share.join("man")))
}

/// What a relay prints, whatever the settings of the one who packs.
fn output(command: &mut Command) -> Result<String> {
    let output = command.env_clear().output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// The unit for everyone, made from the one that `relay service install --print` prints for the user and host that pack.
fn unit(printed: &str) -> Result<String> {
    let mut unit = UNIT_HEAD.to_owned();
    let mut starts = 0;
    for line in printed.lines().skip(1) {
        if line.starts_with("ExecStart=") {
            starts += 1;
            unit.push_str("ExecStart=/usr/bin/nodeglass --new\n");
        } else if !line.starts_with("ConditionHost=") && !line.starts_with("Environment=") {
            unit.push_str(line);
            unit.push('\n');
        }
    }
    match starts {
        1 => Ok(unit),
        _ => bail!("the relay prints no unit with one command: {printed}"),
    }
}

/// Gives every file of a folder the time of the sources, and a mode that does not depend on the umask.
pub(super) fn settle(folder: &Path) -> Result<()> {
    let time = UNIX_EPOCH + Duration::from_secs(epoch()?);
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            settle(&path)?;
        } else {
            let file = fs::File::open(&path)?;
            let is_program = file.metadata()?.permissions().mode() & 0o100 != 0;
            file.set_permissions(Permissions::from_mode(if is_program { 0o755 } else { 0o644 }))?;
            file.set_modified(time)?;
        }
    }
    fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    Ok(fs::File::open(folder)?.set_modified(time)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::target;

    #[test]
    fn man_pages_and_completions_are_where_shells_look_for_them() {
        let programs = target().join("debug");
        if !["relay", "node-probe"].iter().all(|program| programs.join(program).is_file()) {
            println!("skipped: the programs were not built");
            return;
        }
        let folder = crate::scratch::Scratch::new(&std::env::temp_dir(), "documents").unwrap();
        documents(&programs, folder.path()).unwrap();
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap();
        let page = |name: &str| {
            let page = Command::new("zcat").arg(folder.path().join("man/man1").join(name)).output().unwrap();
            String::from_utf8(page.stdout).unwrap()
        };
        assert!(page("relay-share-create.1.gz").contains(".TH relay-share-create 1"));
        assert!(page("relay.1.gz").contains(".TH relay 1"));
        assert_eq!(page("nodeglass.1.gz"), ".so man1/relay.1\n");
        assert!(page("node-probe.1.gz").contains(".TH node-probe 1"));
        assert!(page("node-probe-selftest.1.gz").contains(".TH node-probe-selftest 1"));
        assert!(COMPLETIONS.iter().all(|(_, path)| read(path).contains("relay")));
        assert!(read("zsh/site-functions/_relay").starts_with("#compdef relay nodeglass\n"));
        let file = folder.path().join("bash-completion/completions/nodeglass");
        let shown =
            Command::new("bash").args(["-c", ". \"$0\"; complete -p nodeglass"]).arg(file).output().unwrap();
        assert!(String::from_utf8_lossy(&shown.stdout).contains("-F _relay nodeglass"), "{shown:?}");
    }

    #[test]
    fn texts_link_to_what_is_beside_them_and_state_the_licences() {
        let folder = crate::scratch::Scratch::new(&std::env::temp_dir(), "texts").unwrap();
        let notices = Notices { bill: "{}".into(), licences: "MIT".into() };
        texts(folder.path(), &notices).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("LICENSE-THIRD-PARTY"), "MIT");
        assert_eq!(read(&sbom::file_name()), "{}");
        for name in ["README.md", "CHANGELOG.md"] {
            for event in Parser::new_ext(&read(name), Options::ENABLE_TABLES) {
                if let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event {
                    let leads = dest_url.contains("://") || folder.path().join(&*dest_url).is_file();
                    assert!(leads, "{name} links to {dest_url}");
                }
            }
        }
        let text = "a [`b` c](docs/B.md#d), [e](README.md), [f](https://example.org) and `[g](h)`";
        let within = "a `b` c, [e](README.md), [f](https://example.org) and `[g](h)`";
        assert_eq!(linking_within(folder.path(), text), within);
    }

    #[test]
    fn the_unit_for_everyone_names_neither_host_nor_user() {
        let printed = "# `relay service install` writes this file\n[Unit]\nConditionHost=login1\n[Service]\n\
                       ExecStart=\"/home/alice/relay\" \"--new\"\nEnvironment=\"PATH=/home/alice/bin\"\nNice=5\n";
        let unit = unit(printed).unwrap();
        assert!(unit.ends_with("[Unit]\n[Service]\nExecStart=/usr/bin/nodeglass --new\nNice=5\n"), "{unit}");
        assert!(unit.starts_with("# ") && !unit.contains("alice"), "{unit}");
        assert!(super::unit("#\n[Service]\n").is_err());
    }
}
