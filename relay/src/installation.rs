//! How this relay was installed, by what lies around it, and the command that updates it.

use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// A way of installing nodeglass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Built in a checkout of the sources.
    Sources,
    /// The package for Debian.
    Deb,
    /// The package for RPM distributions.
    Rpm,
    /// A conda package.
    Conda,
    /// `pip install`, in an environment or for the user.
    Pip,
    /// An environment of pipx.
    Pipx,
    /// An environment of uv, or one of its tools.
    Uv,
    /// Spack.
    Spack,
    /// EasyBuild.
    Easybuild,
    /// An environment module of the site.
    Module,
    /// An archive that was unpacked.
    Archive,
}

/// How a relay was installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Installation {
    /// The way.
    pub method: Method,
    /// The folder that has the relay, or the prefix that was installed.
    pub folder: PathBuf,
    /// The command, or what else to do, for a newer version.
    pub update: String,
    /// The command that installs it to stay, if it lies in a cache that its tool clears.
    #[serde(skip)]
    pub install: Option<&'static str>,
}

impl Installation {
    fn new(method: Method, folder: &Path, update: impl Into<String>) -> Self {
        Self { method, folder: folder.to_owned(), update: update.into(), install: None }
    }

    /// The installation of this program.
    ///
    /// It reads the file system, which may hang.
    pub fn of_this_program() -> std::io::Result<Self> {
        let variable = |name: &str| std::env::var(name).ok();
        Ok(Self::find(&std::env::current_exe()?, Path::new("/"), variable))
    }

    /// The installation of the program at `path`, where `root` is the root of the file system, and `variable` reads the
    /// environment.
    fn find(path: &Path, root: &Path, variable: impl Fn(&str) -> Option<String>) -> Self {
        let folder = path.parent().unwrap_or(root);
        if let Some(sources) = folder.ancestors().find(|folder| folder.join("xtask/pins").is_dir()) {
            let update = format!("cd {} && git pull && cargo xtask run", sources.display());
            return Self::new(Method::Sources, sources, update);
        }
        if folder == root.join("usr/lib/nodeglass") {
            return match root.join("var/lib/dpkg/info/nodeglass.list").exists() {
                true => Self::new(Method::Deb, folder, "sudo apt install ./nodeglass_VERSION.deb"),
                false => Self::new(Method::Rpm, folder, "sudo dnf install ./nodeglass-VERSION.rpm"),
            };
        }
        if folder.join("easybuild").is_dir() {
            return Self::new(Method::Easybuild, folder, "module avail nodeglass");
        }
        if let Some(found) = folder.parent().and_then(in_prefix) {
            return found;
        }
        // Of a colon-separated list of NAME/VERSION.
        let loaded = variable("LOADEDMODULES").unwrap_or_default();
        if loaded.split(':').any(|module| module == "nodeglass" || module.starts_with("nodeglass/")) {
            return Self::new(Method::Module, folder, "module avail nodeglass");
        }
        let update = format!("unpack the newer archive, and replace the files in {}", folder.display());
        Self::new(Method::Archive, folder, update)
    }
}

/// The installation in a prefix that has the relay in a folder such as `bin`.
fn in_prefix(prefix: &Path) -> Option<Installation> {
    let within = |name: &str| prefix.join(name);
    let found = |method, update: String| Some(Installation::new(method, prefix, update));
    if names(&within("conda-meta")).any(|name| name.starts_with("nodeglass-")) {
        return found(
            Method::Conda,
            format!("conda update --prefix {} --channel CHANNEL nodeglass", prefix.display()),
        );
    }
    if within(".spack").is_dir() {
        return found(Method::Spack, "spack install nodeglass && spack load nodeglass".to_owned());
    }
    if let Ok(settings) = fs::read_to_string(within("pyvenv.cfg")) {
        return Some(in_environment(prefix, &settings));
    }
    let is_by_pip = names(&within("lib")).filter(|name| name.starts_with("python")).any(|python| {
        let packages = within("lib").join(python).join("site-packages");
        names(&packages).any(|name| name.starts_with("nodeglass-") && name.ends_with(".dist-info"))
    });
    is_by_pip.then(|| Installation::new(Method::Pip, prefix, "pip install --upgrade NEW.whl"))
}

/// An environment of Python, whose place and `pyvenv.cfg` tell which program made it.
fn in_environment(prefix: &Path, settings: &str) -> Installation {
    let is_below = |name: &str| prefix.ancestors().any(|folder| folder.ends_with(name));
    let is_of_uv = settings.lines().any(|line| line.starts_with("uv ="));
    let python = prefix.join("bin/python");
    let found = |method, update: &str| Installation::new(method, prefix, update);
    // `pipx run` and `uvx` keep an environment for a while, and install nothing.
    // Older versions of pipx take a file without a folder for the name of a package.
    if is_below(".cache/pipx") || is_below("pipx/.cache") {
        let install = Some("pipx install ./FILE");
        Installation { install, ..found(Method::Pipx, "pipx run --spec ./NEW.whl nodeglass") }
    } else if is_below("pipx") {
        found(Method::Pipx, "pipx install --force ./NEW.whl")
    } else if is_below("uv/tools") {
        found(Method::Uv, "uv tool install --force NEW.whl")
    } else if is_of_uv && is_below("archive-v0") {
        let install = Some("uv tool install ./FILE");
        Installation { install, ..found(Method::Uv, "uvx --from NEW.whl nodeglass") }
    } else if is_of_uv {
        found(Method::Uv, &format!("uv pip install --python {} NEW.whl", python.display()))
    } else {
        found(Method::Pip, &format!("{} -m pip install --upgrade NEW.whl", python.display()))
    }
}

/// The names in a folder; none if it cannot be read.
fn names(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Method and update of `program` in a file system with these files.
    fn find(program: &str, files: &[(&str, &str)], modules: &str) -> (Method, String) {
        let found = installation(program, files, modules);
        (found.method, found.update)
    }

    fn installation(program: &str, files: &[(&str, &str)], modules: &str) -> Installation {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let variable = |name: &str| (name == "LOADEDMODULES").then(|| modules.to_owned());
        let found = Installation::find(&root.path().join(program), root.path(), variable);
        assert!(found.folder.starts_with(root.path()));
        Installation { update: found.update.replace(&root.path().display().to_string(), ""), ..found }
    }

    #[test]
    fn each_package_manager_is_recognised_by_what_it_leaves() {
        let method = |program: &str, files: &[(&str, &str)]| find(program, files, "").0;
        let dpkg = ("var/lib/dpkg/info/nodeglass.list", "");
        assert_eq!(method("usr/lib/nodeglass/relay", &[dpkg]), Method::Deb);
        assert_eq!(method("usr/lib/nodeglass/relay", &[]), Method::Rpm);
        assert_eq!(method("c/bin/relay", &[("c/conda-meta/nodeglass-0.1.0-0.json", "")]), Method::Conda);
        assert_eq!(method("s/bin/relay", &[("s/.spack/spec.json", "")]), Method::Spack);
        assert_eq!(method("e/relay", &[("e/easybuild/easybuild.log", "")]), Method::Easybuild);
        assert_eq!(method("src/target/release/relay", &[("src/xtask/pins/nfpm.txt", "")]), Method::Sources);
        assert_eq!(method("home/alice/nodeglass-0.1.0/relay", &[]), Method::Archive);
    }

    #[test]
    fn environments_of_python_are_distinguished_by_who_made_them() {
        let find = |program: &str, files: &[(&str, &str)]| find(program, files, "");
        let (method, update) = find("v/bin/relay", &[("v/pyvenv.cfg", "home = /usr/bin\n")]);
        assert_eq!(
            (method, update.as_str()),
            (Method::Pip, "/v/bin/python -m pip install --upgrade NEW.whl")
        );
        assert_eq!(find("v/bin/relay", &[("v/pyvenv.cfg", "uv = 0.9.1\n")]).0, Method::Uv);
        let pipx = ("share/pipx/venvs/nodeglass/pyvenv.cfg", "");
        assert_eq!(find("share/pipx/venvs/nodeglass/bin/relay", &[pipx]).0, Method::Pipx);
        let uv = ("share/uv/tools/nodeglass/pyvenv.cfg", "uv = 0.9.1\n");
        let (method, update) = find("share/uv/tools/nodeglass/bin/relay", &[uv]);
        assert_eq!((method, update.as_str()), (Method::Uv, "uv tool install --force NEW.whl"));
        let update = |program: &str, file: (&str, &str)| find(program, &[file]).1;
        let cached = (".cache/pipx/79203/pyvenv.cfg", "");
        assert_eq!(update(".cache/pipx/79203/bin/relay", cached), "pipx run --spec ./NEW.whl nodeglass");
        let cached = (".local/pipx/.cache/79203/pyvenv.cfg", "");
        assert_eq!(
            update(".local/pipx/.cache/79203/bin/relay", cached),
            "pipx run --spec ./NEW.whl nodeglass"
        );
        let cached = (".cache/uv/archive-v0/EQ9Z/pyvenv.cfg", "uv = 0.9.1\n");
        assert_eq!(update(".cache/uv/archive-v0/EQ9Z/bin/relay", cached), "uvx --from NEW.whl nodeglass");
        let user = (".local/lib/python3.11/site-packages/nodeglass-0.1.0.dist-info/METADATA", "");
        assert_eq!(find(".local/bin/relay", &[user]).0, Method::Pip);
        // conda's own Python has no such file, and pip may install there.
        let in_conda = ("c/lib/python3.12/site-packages/nodeglass-0.1.0.dist-info/METADATA", "");
        assert_eq!(find("c/bin/relay", &[("c/conda-meta/python-3.12.json", ""), in_conda]).0, Method::Pip);
    }

    #[test]
    fn a_cache_is_distinguished_from_an_installation() {
        let install = |program: &str, file: (&str, &str)| installation(program, &[file], "").install;
        let pipx =
            |folder: &str| install(&format!("{folder}/bin/relay"), (&format!("{folder}/pyvenv.cfg"), ""));
        assert_eq!(pipx(".cache/pipx/79203"), Some("pipx install ./FILE"));
        assert_eq!(pipx(".local/pipx/.cache/79203"), Some("pipx install ./FILE"));
        assert_eq!(pipx(".local/share/pipx/venvs/nodeglass"), None);
        let uv = |folder: &str| {
            install(&format!("{folder}/bin/relay"), (&format!("{folder}/pyvenv.cfg"), "uv = 0.9.1\n"))
        };
        assert_eq!(uv(".cache/uv/archive-v0/EQ9Z"), Some("uv tool install ./FILE"));
        assert_eq!(uv(".local/share/uv/tools/nodeglass"), None);
    }

    #[test]
    fn a_loaded_module_is_named_unless_the_files_say_more() {
        assert_eq!(find("opt/n/relay", &[], "gcc/13:nodeglass/0.1.0").0, Method::Module);
        assert_eq!(find("opt/n/relay", &[], "gcc/13:nodeglass-tools/1").0, Method::Archive);
        let spack = ("s/.spack/spec.json", "");
        assert_eq!(find("s/bin/relay", &[spack], "nodeglass/0.1.0").0, Method::Spack);
    }
}
