//! The recipes that `cargo xtask dist` fills: each is read by its own rules, and followed as far as it needs no other tool.

use super::installed;
use anyhow::{Context, Result, ensure};
use nodeglass_tests::relay::binary;
use nodeglass_tests::release::{one, output, pack, scripts};
use nodeglass_tests::{skip, test_tools};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Everything for a release, and the folder that its archive contains.
struct Release {
    out: TempDir,
    archive: String,
    sha256: String,
    unpacked: PathBuf,
}

impl Release {
    fn pack() -> Result<Self> {
        // Lmod ignores hidden folders.
        let (programs, out) = (tempfile::tempdir()?, tempfile::Builder::new().prefix("release-").tempdir()?);
        scripts(programs.path())?;
        let files = pack(programs.path(), out.path(), &["archive", "deb", "recipes"])?;
        let archive = one(&files, ".tar.gz")?;
        let sums = fs::read_to_string(one(&files, "SHA256SUMS")?)?;
        output(
            Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(out.path()),
        )?;
        let name = archive.file_name().and_then(|name| name.to_str()).context("a name")?.to_owned();
        let line = sums.lines().find(|line| line.ends_with(&name)).context("its checksum")?;
        let sha256 = line.split(' ').next().unwrap_or_default().to_owned();
        let unpacked = out.path().join("unpacked");
        fs::create_dir(&unpacked)?;
        output(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&unpacked))?;
        let unpacked = unpacked.join(name.trim_end_matches(".tar.gz"));
        Ok(Self { out, archive: name, sha256, unpacked })
    }

    fn recipe(&self, path: &str) -> PathBuf {
        self.out.path().join("recipes").join(path)
    }

    fn text(&self, path: &str) -> Result<String> {
        let text = fs::read_to_string(self.recipe(path)).with_context(|| path.to_owned())?;
        ensure!(!["@VERSION", "@URL", "@SHA"].iter().any(|word| text.contains(word)), "{path}: {text}");
        Ok(text)
    }

    /// What a Python script prints for a recipe; it has `path`, and `sha256` and `archive` of the archive.
    fn python(&self, python: &Path, path: &str, script: &str) -> Result<String> {
        let head = "import sys\npath, sha256, archive = sys.argv[1:]\ntext = open(path).read()\n";
        let mut command = Command::new(python);
        command.args(["-c", &(head.to_owned() + script)]).arg(self.recipe(path));
        output(command.arg(&self.sha256).arg(&self.archive))
    }
}

/// The version of the relay that was built.
fn version() -> Result<String> {
    installed(&binary("relay")?, &["--version"])
}

const CONDA: &str = "
import yaml
recipe = yaml.safe_load(text)
assert set(recipe) <= {'schema_version', 'context', 'package', 'source', 'build', 'requirements', 'tests', 'about'}, recipe
(source,) = [one['then'] for one in recipe['source']]
assert source['sha256'] == sha256 and source['url'].endswith('/' + archive), source
assert recipe['package']['name'] == 'nodeglass' and recipe['about']['license'] == 'MIT OR Apache-2.0'
print('\\n'.join(recipe['build']['script']))
";

#[test]
fn the_conda_recipe_installs_the_programs_of_the_archive() -> Result<()> {
    let Some(python) = test_tools::jupyter() else { return Ok(()) };
    if test_tools::nfpm().is_none() {
        return Ok(());
    }
    let release = Release::pack()?;
    let script = release.python(&python, "conda/recipe.yaml", CONDA)?;
    let prefix = tempfile::tempdir()?;
    let mut build = Command::new("sh");
    output(build.args(["-euc", &script]).env("PREFIX", prefix.path()).current_dir(&release.unpacked))?;
    for program in ["relay", "nodeglass"] {
        ensure!(installed(&prefix.path().join("bin").join(program), &["--version"])? == version()?);
    }
    for file in ["bin/nvl", "share/man/man1/relay.1.gz"] {
        ensure!(prefix.path().join(file).is_file(), "{file}");
    }
    Ok(())
}

const SPACK: &str = "
import ast
tree = ast.parse(text)
(package,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
assert package.name == 'Nodeglass' and [base.id for base in package.bases] == ['Package'] and ast.get_docstring(package)
assert any(isinstance(node, ast.Assign) and node.targets[0].id == 'homepage' for node in package.body)
calls = {node.func.id for node in ast.walk(package) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
assert {'license', 'version', 'install', 'install_tree'} <= calls, calls
assert any(isinstance(node, ast.FunctionDef) and [arg.arg for arg in node.args.args] == ['self', 'spec', 'prefix']
           for node in package.body)
(archives,) = [ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)]
(hashes,) = archives.values()
assert list(hashes.values()) == [sha256] and archive.endswith(f'-linux-{list(hashes)[0]}.tar.gz'), hashes
";

const EASYBUILD: &str = "
import os, platform
values = {'SYSTEM': {'name': 'system', 'version': 'system'}}
known = set(values)
exec(compile(text, path, 'exec'), values)
words = {'name': values['name'], 'version': values['version'], 'arch': platform.machine()}
assert [source % words for source in values['sources']] == [archive]
assert values['checksums'] == [{archive: sha256}], values['checksums']
assert os.path.basename(path) == '%(name)s-%(version)s.eb' % words
assert {'easyblock', 'homepage', 'description', 'toolchain', 'moduleclass'} <= set(values)
print('\\n'.join(values['sanity_check_paths']['files']))
";

#[test]
fn the_recipes_of_spack_and_easybuild_state_archive_and_checksum() -> Result<()> {
    let Some(python) = test_tools::jupyter() else { return Ok(()) };
    if test_tools::nfpm().is_none() {
        return Ok(());
    }
    let release = Release::pack()?;
    release.python(&python, "spack/packages/nodeglass/package.py", SPACK)?;
    let easyconfig = format!("easybuild/nodeglass-{}.eb", env!("CARGO_PKG_VERSION"));
    let files = release.python(&python, &easyconfig, EASYBUILD)?;
    ensure!(files.lines().count() >= 3, "{files}");
    for file in files.lines() {
        ensure!(release.unpacked.join(file).is_file(), "{file} is not in the archive");
    }
    Ok(())
}

#[test]
fn the_modulefile_puts_the_relay_on_the_path_in_lmod() -> Result<()> {
    let init = Path::new("/usr/share/lmod/lmod/init/sh");
    if !init.is_file() {
        skip::skip("Lmod is not installed");
        return Ok(());
    }
    if test_tools::nfpm().is_none() {
        return Ok(());
    }
    let release = Release::pack()?;
    let root = tempfile::tempdir()?;
    fs::create_dir(root.path().join("nodeglass"))?;
    fs::rename(&release.unpacked, root.path().join("nodeglass").join(env!("CARGO_PKG_VERSION")))?;
    let mut shell = Command::new("sh");
    shell.args(["-euc", ". \"$0\"; module load nodeglass; nodeglass --version; echo \"$LOADEDMODULES\""]);
    shell.arg(init).env("MODULEPATH", release.recipe("lmod")).env("NODEGLASS_ROOT", root.path());
    let home = tempfile::tempdir()?;
    let printed = output(shell.env("HOME", home.path()))?;
    let expected = format!("{}nodeglass/{}\n", version()?, env!("CARGO_PKG_VERSION"));
    ensure!(printed == expected, "{printed}");
    let absent =
        output(shell.env("NODEGLASS_ROOT", "/nowhere")).err().context("it loads without the archive")?;
    ensure!(absent.to_string().contains("/nowhere/nodeglass/"), "{absent}");
    Ok(())
}

#[test]
fn the_recipes_of_containers_name_files_of_the_release() -> Result<()> {
    if test_tools::nfpm().is_none() {
        return Ok(());
    }
    let release = Release::pack()?;
    let arch = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "amd64",
    };
    let exists = |name: &str| -> Result<()> {
        ensure!(release.out.path().join(name).is_file(), "{name} is not in the release");
        Ok(())
    };
    let dockerfile = release.text("docker/Dockerfile")?;
    let instruction = |name: &str| {
        let mut lines = dockerfile.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        lines.next().with_context(|| format!("no {name}: {dockerfile}"))
    };
    exists(&instruction("COPY")?.split(' ').next().unwrap_or_default().replace("${TARGETARCH}", arch))?;
    ensure!(instruction("ENTRYPOINT")? == "[\"nodeglass\"]" && instruction("USER")? == "nodeglass");
    let definition = release.text("apptainer/nodeglass.def")?;
    let files = definition.split("%files\n").nth(1).context("%files")?.lines().next().unwrap_or_default();
    exists(files.replace("{{ ARCH }}", arch).split_whitespace().next().unwrap_or_default())?;
    for section in ["%arguments", "%post", "%runscript", "%test", "%labels", "%help"] {
        ensure!(definition.lines().filter(|line| *line == section).count() == 1, "{section}");
    }
    Ok(())
}
