//! A real JupyterHub with two users of its own machine, in whose servers the wheel of nodeglass is installed.

use crate::jupyter::install;
use crate::process::Process;
use crate::promql::free_address;
use crate::{skip, test_tools};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A user of the hub, and of the machine as the hub sees it.
#[derive(Clone, Copy, Debug)]
pub struct User {
    /// The login name.
    pub name: &'static str,
    /// The uid, which is also the gid.
    pub uid: u32,
}

/// The users of the hub.
pub const USERS: [User; 2] = [User { name: "alice", uid: 64_001 }, User { name: "bob", uid: 64_002 }];

/// A running JupyterHub; it ends on drop, and so do proxy, servers and relays.
#[derive(Debug)]
pub struct JupyterHub {
    authority: String,
    process: Process,
    folder: TempDir,
}

/// A mount namespace that ends with the hub: its users exist there, and can read the folders in the last arguments, although
/// these are below the folders in `CLOSED`, one on a line, which only the user of this test may enter.
const NAMESPACE: &str = r#"
passwd=$1 group=$2 mounts=$3 python=$4 config=$5; shift 5
n=0; for path; do n=$((n + 1)); mkdir "$mounts/$n"; mount --bind "$path" "$mounts/$n"; done
echo "$CLOSED" | while read -r path; do [ -z "$path" ] || mount -t tmpfs -o mode=755 none "$path"; done
n=0; for path; do n=$((n + 1)); mkdir -p "$path"; mount --bind "$mounts/$n" "$path"; done
mount --bind "$passwd" /etc/passwd; mount --bind "$group" /etc/group
exec "$python" -m jupyterhub -f "$config"
"#;

/// Everyone logs in with any password: the hub is under test as little as the login of a real one.
const CONFIGURATION: &str = r"
import os
c = get_config()
c.JupyterHub.authenticator_class = 'dummy'
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = 'jupyterhub.spawner.LocalProcessSpawner'
c.Spawner.default_url = '/lab'
c.Spawner.environment = {'TMPDIR': os.environ['TMPDIR'], 'NODEGLASS_DEMO': 'true'}
";

impl JupyterHub {
    /// Installs the wheel with the programs that were built, and starts the hub, whose servers show a simulated cluster;
    /// skips the test if a tool or a permission is missing.
    ///
    /// # Errors
    /// If the wheel cannot be built or installed, or the hub does not start.
    pub fn start() -> Result<Option<Self>> {
        let (Some(python), Some(jupyter)) = (test_tools::python(), test_tools::jupyter()) else {
            return Ok(None);
        };
        let Some(proxy) = test_tools::hub_proxy() else { return Ok(None) };
        let Some([unshare, node]) = skip::programs(["unshare", "node"]) else { return Ok(None) };
        if !skip::root() {
            return Ok(None);
        }
        let folder = tempfile::tempdir()?;
        let at = folder.path();
        std::fs::set_permissions(at, PermissionsExt::from_mode(0o755))?;
        let packages = install(&python, &jupyter, at)?;
        for shared in ["mounts", "homes", "tmp", "state"] {
            std::fs::create_dir(at.join(shared))?;
        }
        std::fs::set_permissions(at.join("tmp"), PermissionsExt::from_mode(0o1777))?;
        add_users(at)?;
        let authority = free_address()?;
        std::fs::write(at.join("config.py"), configuration(&authority, &jupyter, &proxy)?)?;

        let mut command = Command::new(unshare);
        command.args(["--mount", "sh", "-euc", NAMESPACE, "sh"]);
        command.args(["passwd", "group", "mounts"].map(|name| at.join(name)));
        command.arg(&jupyter).arg(at.join("config.py"));
        // Also the Python from which that of Jupyter was made.
        let programs = [&jupyter, &jupyter.canonicalize()?, &proxy, &node.canonicalize()?];
        let (closed, folders) = closed(&programs.map(PathBuf::as_path))?;
        command.args(folders).env("CLOSED", closed).env("HOME", at.join("state"));
        command.env("PYTHONPATH", packages).env("TMPDIR", at.join("tmp")).current_dir(at.join("state"));
        let mut process = Process::start(&mut command)?;
        process.wait_for("its address", |line| line.contains("JupyterHub is now running").then_some(()))?;
        Ok(Some(Self { authority, process, folder }))
    }

    /// The address of a path that begins with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.authority)
    }

    /// The socket of the relay that a user's server has started.
    ///
    /// # Errors
    /// If there is none.
    pub fn relay_socket(&self, user: User) -> Result<PathBuf> {
        let home = self.folder.path().join("homes").join(user.name);
        let mut files = std::fs::read_dir(home.join(".local/share/jupyter/runtime"))?.filter_map(Result::ok);
        let is_relays = |name: &str| name.starts_with("nodeglass-") && name.ends_with(".sock");
        let socket = files.find(|file| file.file_name().to_str().is_some_and(is_relays));
        Ok(socket.with_context(|| format!("{} has no relay", user.name))?.path())
    }

    /// What hub and servers printed.
    pub fn log(&self) -> String {
        self.process.output().text()
    }
}

/// Writes `passwd` and `group` with the users of this machine and of the hub, and makes the homes of the latter.
fn add_users(folder: &Path) -> Result<()> {
    let mut passwd = std::fs::read_to_string("/etc/passwd")?;
    let mut group = std::fs::read_to_string("/etc/group")?;
    for User { name, uid } in USERS {
        let home = folder.join("homes").join(name);
        std::fs::create_dir(&home)?;
        std::fs::set_permissions(&home, PermissionsExt::from_mode(0o700))?;
        chown(&home, Some(uid), Some(uid))?;
        writeln!(passwd, "{name}:x:{uid}:{uid}::{}:/bin/sh", home.display())?;
        writeln!(group, "{name}:x:{uid}:")?;
    }
    std::fs::write(folder.join("passwd"), passwd)?;
    Ok(std::fs::write(folder.join("group"), group)?)
}

/// The hub's configuration.
fn configuration(authority: &str, jupyter: &Path, proxy: &Path) -> Result<String> {
    let (hub, api) = (free_address()?, free_address()?);
    let hub_port = hub.rsplit(':').next().unwrap_or_default();
    Ok(format!(
        "{CONFIGURATION}c.JupyterHub.bind_url = 'http://{authority}'\nc.JupyterHub.hub_port = {hub_port}\n\
         c.ConfigurableHTTPProxy.api_url = 'http://{api}'\nc.ConfigurableHTTPProxy.command = [{proxy:?}]\n\
         c.Spawner.cmd = [{jupyter:?}, '-m', 'jupyterhub.singleuser']\n"
    ))
}

/// The folders that other users may not enter, one on a line, and the folders of these programs below them.
fn closed(programs: &[&Path]) -> Result<(String, Vec<PathBuf>)> {
    let (mut closed, mut folders) = (BTreeSet::new(), BTreeSet::new());
    for program in programs {
        let folder = program.ancestors().nth(2).context("the folder of bin")?;
        let mut above: Vec<_> = folder.ancestors().collect();
        above.reverse();
        let is_closed = |path: &&Path| path.metadata().is_ok_and(|about| about.mode() & 0o1 == 0);
        if let Some(path) = above.into_iter().find(is_closed) {
            closed.insert(path.display().to_string());
            folders.insert(folder.to_owned());
        }
    }
    Ok((Vec::from_iter(closed).join("\n"), Vec::from_iter(folders)))
}
