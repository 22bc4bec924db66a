//! A probe lists processes of other users, and reports who hides their details.

use anyhow::{Context, Result, ensure};
use fake_nvml::install;
use nodeglass_tests::{relay::binary, skip};
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Any user but root.
const NOBODY: [&str; 6] =
    ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--"];

/// A process that is killed when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The processes that a probe running as nobody lists on a GPU with these processes, once it has the names of their
/// users, which it does not wait for. `mount` prepares its mount namespace.
fn listed(setpriv: &Path, unshare: &Path, mount: &str, pids: &[u32]) -> Result<Vec<Value>> {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    let probe = folder.path().join("node-probe");
    fs::copy(binary("node-probe")?, &probe)?;
    let library = install::install(&folder.path().join("lib"))?;
    let processes: Vec<_> = pids.iter().map(|pid| json!({"pid": pid})).collect();
    let state = folder.path().join("state.json");
    fs::write(&state, json!({"gpus": [{"processes": processes}]}).to_string())?;
    let mut command = Command::new(unshare);
    command.args(["--mount", "sh", "-c"]).arg(format!("{mount} exec \"$@\"")).arg("sh").arg(setpriv);
    command.args(NOBODY).arg(&probe).arg("--nvml").arg(library).env("FAKE_NVML_STATE", &state);
    let mut child = Ended(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    let lines = BufReader::new(child.0.stdout.take().context("stdout is piped")?).lines();
    for line in lines {
        let line = line?;
        let json = line.find('{').map_or("", |start| &line[start..]);
        let line: Value = serde_json::from_str(json).with_context(|| line.clone())?;
        match line.pointer("/processes/processes").and_then(Value::as_array) {
            Some(list) if !list.is_empty() && list.iter().all(has_user) => return Ok(list.clone()),
            _ => {}
        }
    }
    anyhow::bail!("the probe ended without a list")
}

/// Returns whether a process has a user with a name, or none.
fn has_user(process: &Value) -> bool {
    process.pointer("/facts/user").and_then(Value::as_str).is_none_or(|user| user.parse::<u32>().is_err())
}

#[test]
fn a_process_hidden_by_hidepid_is_not_reported_as_gone() -> Result<()> {
    let Some([setpriv, unshare]) = skip::programs(["setpriv", "unshare"]) else { return Ok(()) };
    if !skip::root() {
        return Ok(());
    }
    let other = Ended(Command::new("cat").stdin(Stdio::piped()).spawn()?);
    let pids = [other.0.id(), 4_194_303];
    let list = listed(&setpriv, &unshare, "mount -t proc -o hidepid=2 proc /proc &&", &pids)?;
    let why = |at: usize| list[at].pointer("/facts/command/failed").and_then(Value::as_str);
    ensure!(why(0) == Some("hidden by the mount option hidepid of /proc"), "{list:?}");
    ensure!(why(1) == Some("no such process here"), "{list:?}");
    Ok(())
}

#[test]
fn the_arguments_of_another_users_process_are_hidden_by_policy() -> Result<()> {
    let Some([setpriv, unshare]) = skip::programs(["setpriv", "unshare"]) else { return Ok(()) };
    if !skip::root() {
        return Ok(());
    }
    let other = Ended(Command::new("cat").arg("-").stdin(Stdio::piped()).spawn()?);
    let list = listed(&setpriv, &unshare, "", &[other.0.id()])?;
    let facts = &list[0]["facts"];
    ensure!(facts["command"] == "cat" && facts["user"] == "root", "{facts}");
    for hidden in ["args", "cwd"] {
        ensure!(facts[hidden] == json!({"failed": "hidden: belongs to another user"}), "{facts}");
    }
    Ok(())
}
