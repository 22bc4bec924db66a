//! Packs wheels for Python: one with the programs for each processor type, and one with the client alone.

use crate::scratch::Scratch;
use crate::shell::{root, run};
use crate::tools;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the package that has no programs.
const CLIENT: &str = "nodeglass-client";

/// Packs the wheel with the programs of a folder, for a platform such as `manylinux2014_x86_64`.
///
/// # Errors
/// If the build backend is missing or fails.
pub(crate) fn with_programs(programs: &Path, platform: &str, out: &Path) -> Result<PathBuf> {
    let copy = copy_of_project(out, platform)?;
    let licences = "LICENSE-THIRD-PARTY";
    fs::copy(programs.join(licences), copy.path().join(licences))
        .with_context(|| format!("copy {licences}"))?;
    let mut build = hatchling(copy.path(), out)?;
    run(build.env("NODEGLASS_PROGRAMS", programs).env("NODEGLASS_PLATFORM", platform))?;
    one(out, &format!("nodeglass-{}-py3-none-{platform}.whl", env!("CARGO_PKG_VERSION")))
}

/// Packs the wheel of the client, which is for every platform.
///
/// # Errors
/// If the build backend is missing or fails, or the project has another form.
pub(crate) fn of_client(out: &Path) -> Result<PathBuf> {
    fs::create_dir_all(out)?;
    let copy = copy_of_project(out, CLIENT)?;
    let project = copy.path().join("pyproject.toml");
    fs::write(&project, client_project(&fs::read_to_string(&project)?)?)?;
    run(hatchling(copy.path(), out)?.env_remove("NODEGLASS_PROGRAMS"))?;
    one(out, &format!("{}-{}-py3-none-any.whl", CLIENT.replace('-', "_"), env!("CARGO_PKG_VERSION")))
}

fn copy_of_project(out: &Path, name: &str) -> Result<Scratch> {
    let copy = Scratch::new(out, name)?;
    run(Command::new("cp").arg("-R").arg(root().join("clients/python/.")).arg(copy.path()))?;
    Ok(copy)
}

/// The project file of the client alone: another name, and no commands, which would start nothing.
fn client_project(project: &str) -> Result<String> {
    let (before, scripts) =
        project.split_once("[project.scripts]\n").context("the commands of the package")?;
    let (_, after) = scripts.split_once("\n[").context("the end of the commands of the package")?;
    let named = before.replacen("\nname = \"nodeglass\"\n", &format!("\nname = \"{CLIENT}\"\n"), 1);
    ensure!(named != before, "the package has another name");
    Ok(format!("{named}[{after}"))
}

fn hatchling(project: &Path, out: &Path) -> Result<Command> {
    let mut command = Command::new(tools::python()?);
    command.current_dir(project);
    command.args(["-m", "hatchling", "build", "-t", "wheel", "-d"]).arg(out);
    Ok(command)
}

fn one(folder: &Path, name: &str) -> Result<PathBuf> {
    let wheel = folder.join(name);
    ensure!(wheel.is_file(), "the wheel {} was not built", wheel.display());
    Ok(wheel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_has_another_name_and_no_commands() {
        let project = fs::read_to_string(root().join("clients/python/pyproject.toml")).unwrap();
        let client = client_project(&project).unwrap();
        assert!(client.contains("name = \"nodeglass-client\"\n") && !client.contains("_program:main"));
        assert!(client.contains("[tool.hatch.build.hooks.custom]") && client.contains("[tool.pytest"));
    }

    #[test]
    fn the_wheels_have_the_version_of_the_programs() {
        let project = fs::read_to_string(root().join("clients/python/pyproject.toml")).unwrap();
        assert!(project.contains(&format!("\nversion = \"{}\"\n", env!("CARGO_PKG_VERSION"))));
    }
}
