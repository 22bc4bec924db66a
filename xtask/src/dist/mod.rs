//! Makes what is released: programs that need nothing but a glibc as old as RHEL 7's, with the page as part of the relay,
//! packed for each way to install them.

mod checksums;
mod folder;
mod licences;
mod linux_packages;
mod recipes;
mod sbom;
mod trial;

use crate::pins::Pinned;
use crate::shell::{long_step, output_of, root, run, step, target};
use crate::tools::{self, home};
use crate::wheel;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use linux_packages::NFPM;

/// The oldest glibc on which Rust's standard library runs, from RHEL 7 (2014).
const GLIBC: &str = "2.17";
/// Processors, as in `uname -m`, of login nodes and GPU nodes: x86-64, and ARM as in NVIDIA Grace.
const MACHINES: [&str; 2] = ["x86_64", "aarch64"];
/// The profile of probes for tests.
const UNOPTIMISED: &str = "unoptimised";
const ZIGBUILD: Pinned = Pinned { name: "zigbuild", shown_by: "bin/cargo-zigbuild" };
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What can be made, as the command line names it.
const KINDS: [&str; 6] = ["archive", "wheel", "deb", "rpm", "recipes", "sbom"];

/// What `cargo xtask dist` makes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Some of [`KINDS`]; all if empty.
    kinds: Vec<&'static str>,
    /// Programs of this machine that were built before, instead of release builds for every processor.
    programs: Option<PathBuf>,
    /// The folder of the results.
    out: PathBuf,
    /// Where the recipes download the archives from; unless stated, they take those beside them.
    url: Option<String>,
    /// Name and address of the maintainer of the `.deb` and `.rpm`.
    maintainer: Option<String>,
}

impl Options {
    /// Parses the arguments of `cargo xtask dist`.
    ///
    /// # Errors
    /// A sentence about the invalid argument.
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let out = target().join("dist");
        let mut options = Self { kinds: Vec::new(), programs: None, out, url: None, maintainer: None };
        let mut args = args.iter();
        let absolute = |path: &String| std::path::absolute(path).context("the current folder");
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--programs" => {
                    options.programs = Some(absolute(args.next().context("--programs needs a folder")?)?);
                }
                "--out" => options.out = absolute(args.next().context("--out needs a folder")?)?,
                "--url" => options.url = Some(args.next().context("--url needs an address")?.clone()),
                "--maintainer" => {
                    options.maintainer =
                        Some(args.next().context("--maintainer needs NAME <ADDRESS>")?.clone());
                }
                kind => match KINDS.iter().find(|known| **known == kind) {
                    Some(kind) => options.kinds.push(kind),
                    None => bail!("{kind:?} is not among {}", KINDS.join(", ")),
                },
            }
        }
        Ok(options)
    }

    fn makes(&self, kind: &str) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }
}

/// Programs of one processor type.
struct Programs {
    machine: &'static str,
    folder: PathBuf,
}

/// What a release states about the libraries in it.
struct Notices {
    /// The bill of materials.
    bill: String,
    /// Their licence texts.
    licences: String,
}

impl Notices {
    fn collect() -> Result<Self> {
        let libraries = sbom::libraries()?;
        Ok(Self { bill: sbom::of(&libraries)?, licences: licences::collect(&libraries)? })
    }
}

/// Packs the programs for each processor type, with the probes of all, and tries out those for this machine in a clean root file
/// system.
///
/// # Errors
/// If a tool is missing, or a build or the trial run fails.
pub(crate) fn pack(options: &Options) -> Result<()> {
    let built = match &options.programs {
        Some(folder) => vec![Programs { machine: this_machine()?, folder: folder.clone() }],
        None => build_for_release()?,
    };
    let notices = step("listing the libraries and their licences", Notices::collect)?;
    let mut packed = Vec::new();
    for of in &built {
        let folder = folder::fill(of, &built, &notices, &options.out)?;
        let files = pack_folder(&folder, of.machine, options)?;
        if options.programs.is_none() && of.machine == std::env::consts::ARCH {
            trial::try_out(&files)?;
        }
        packed.extend(files);
    }
    if options.makes("wheel") {
        packed.push(step("packing the wheel of the Python client", || wheel::of_client(&options.out))?);
    }
    if options.makes("recipes") {
        packed.extend(step("filling the recipes", || recipes::write(&options.out, options.url.as_deref()))?);
    }
    if options.makes("sbom") {
        let file = options.out.join(sbom::file_name());
        fs::write(&file, &notices.bill)?;
        packed.push(file);
    }
    packed.push(checksums::write(&options.out, &packed)?);
    for file in packed {
        println!("  {}", file.display());
    }
    Ok(())
}

/// Packs the folder of one processor type in each form.
fn pack_folder(folder: &Path, machine: &str, options: &Options) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if options.makes("archive") {
        files.push(step(&format!("packing the archive for {machine}"), || folder::archive(folder))?);
    }
    if options.makes("wheel") {
        let platform = format!("manylinux2014_{machine}");
        files.push(step(&format!("packing the wheel for {machine}"), || {
            wheel::with_programs(folder, &platform, &options.out)
        })?);
    }
    for format in ["deb", "rpm"].into_iter().filter(|format| options.makes(format)) {
        files.push(step(&format!("packing the .{format} for {machine}"), || {
            linux_packages::pack(folder, machine, format, options)
        })?);
    }
    Ok(files)
}

fn build_for_release() -> Result<Vec<Programs>> {
    crate::page::build(crate::page::Build::Optimised)?;
    let relay = ["--package", "nodeglass-relay", "--features", "nodeglass-relay/vendored-openssl"];
    long_step("building relay and probe for each processor", "15 min", || {
        build(&[&["--release", "--package", "node-probe"], &relay[..]].concat(), "release")
    })
}

/// Builds the probes without optimisation, for tests. Returns the folder of `node-probe-MACHINE` files.
///
/// # Errors
/// If a tool cannot be installed, or the build fails.
pub(crate) fn probes_for_tests() -> Result<PathBuf> {
    let built = step("building the probe for each processor", || {
        build(&["--package", "node-probe", "--profile", UNOPTIMISED], UNOPTIMISED)
    })?;
    let folder = target().join("portable/probes");
    fs::create_dir_all(&folder)?;
    for of in &built {
        fs::copy(of.folder.join("node-probe"), folder.join(format!("node-probe-{}", of.machine)))?;
    }
    Ok(folder)
}

/// Builds packages for all processor types. They have a target folder of their own: another selection of
/// packages would unify features differently, and rebuild the dependencies of all other builds.
fn build(flags: &[&str], profile: &str) -> Result<Vec<Programs>> {
    let bin = ZIGBUILD.by_pip(&home()?)?.join("bin");
    let folder = target().join("portable");
    let mut command = Command::new(bin.join("cargo-zigbuild"));
    // It finds zig as a module of the first Python.
    command.current_dir(root()).env("PATH", path_with(&bin)?).arg("zigbuild").args(flags);
    for machine in MACHINES {
        tools::rust_target(&rust_target(machine))?;
        command.args(["--target", &format!("{}.{GLIBC}", rust_target(machine))]);
    }
    if let Some(commit) = output_of("git", &["rev-parse", "HEAD"]).filter(|_| profile == "release") {
        command.env("NODEGLASS_COMMIT", commit);
    }
    // Names of functions are a fifth of the relay. Not in the profile: that of the page inherits it, and must keep them.
    command.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    run(command.arg("--target-dir").arg(&folder))?;
    Ok(MACHINES
        .map(|machine| Programs { machine, folder: folder.join(rust_target(machine)).join(profile) })
        .into())
}

fn rust_target(machine: &str) -> String {
    format!("{machine}-unknown-linux-gnu")
}

fn path_with(first: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::join_paths(std::iter::once(first.to_owned()).chain(std::env::split_paths(&path)))?)
}

/// The processor of this machine.
fn this_machine() -> Result<&'static str> {
    let known = MACHINES.into_iter().find(|machine| *machine == std::env::consts::ARCH);
    known.context(
        "nothing is packed for the processor of this machine, which has to run the relay for its documents",
    )
}

/// The time in everything packed, in seconds since 1970: `SOURCE_DATE_EPOCH`, as the Reproducible Builds project defines it, or
/// else that of the last commit.
fn epoch() -> Result<u64> {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    let epoch = given.or_else(|| output_of("git", &["log", "-1", "--format=%ct"]));
    let epoch = epoch.context("this is no git checkout: set SOURCE_DATE_EPOCH to the time of the sources")?;
    epoch.parse().with_context(|| format!("{epoch:?} is not a time in seconds since 1970"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options> {
        Options::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn everything_is_packed_unless_kinds_are_named() {
        let all = parse(&[]).unwrap();
        assert!(KINDS.iter().all(|kind| all.makes(kind)) && all.programs.is_none());
        let some = parse(&["deb", "--programs", "/p", "--out", "/o"]).unwrap();
        assert!(some.makes("deb") && !some.makes("rpm"));
        assert_eq!((some.programs, some.out), (Some("/p".into()), "/o".into()));
        assert!(parse(&["msi"]).unwrap_err().to_string().contains("deb, rpm, recipes"));
    }

    #[test]
    fn the_folder_of_a_tool_precedes_the_path() {
        let path = path_with(Path::new("/tools/bin")).unwrap();
        assert_eq!(std::env::split_paths(&path).next().unwrap(), Path::new("/tools/bin"));
    }
}
