//! Builds the page into `dist/`: optimised, pre-compressed, without inline scripts, and with the documents below `help/`.

mod index;
mod site;

use crate::scratch::Scratch;
use crate::shell::{cargo, long_step, root, run, step, target};
use crate::tools::{WASM, wasm_opt, wasm_target};
use anyhow::{Context, Result, anyhow, bail};
use index::Asset;
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use wasm_bindgen_cli_support::{Bindgen, Output};

/// The package and program of the page.
const PROGRAM: &str = "nodeglass-frontend";

/// The page's sources; a change of one triggers a build.
const INPUTS: &[&str] = &[
    "frontend",
    "protocol/src",
    "protocol/Cargo.toml",
    "rules/src",
    "rules/Cargo.toml",
    "Cargo.lock",
    "Cargo.toml",
    "Trunk.toml",
    "rust-toolchain.toml",
    "xtask/src/page",
    "xtask/pins/binaryen",
    ".cargo/config.toml",
];
/// The documents, which are part of optimised pages only.
const DOCUMENTS: &[&str] = &["docs"];
/// WASM features that today's Rust emits by default and every browser since 2022 supports;
/// `--all-features` would let the optimiser use what some browsers do not support yet.
const WASM_FEATURES: &[&str] = &[
    "--enable-bulk-memory",
    "--enable-bulk-memory-opt",
    "--enable-multivalue",
    "--enable-mutable-globals",
    "--enable-nontrapping-float-to-int",
    "--enable-reference-types",
    "--enable-sign-ext",
];
/// File types worth compressing.
const COMPRESSIBLE: &[&str] = &["html", "js", "css", "wasm", "svg", "json", "webmanifest"];

/// The trade-off between the time of a build, and the size and speed of its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// For users: optimised as a whole, and compressed with the highest level.
    Optimised,
    /// Optimised, with function names, for profiling.
    Profiled,
    /// For `run`, tests and development: compiled in parallel, and not optimised further. An up-to-date optimised page is
    /// used instead.
    Quick,
}

impl Build {
    /// The Cargo profile.
    fn profile(self) -> &'static str {
        match self {
            Self::Optimised | Self::Profiled => "wasm",
            Self::Quick => "wasm-quick",
        }
    }

    /// Brotli's quality.
    fn compression(self) -> i32 {
        match self {
            Self::Optimised | Self::Profiled => 11,
            Self::Quick => 5,
        }
    }
}

/// Builds the page into `dist/`, unless it is up to date.
pub(crate) fn build(build: Build) -> Result<()> {
    build_beside(build, || Ok(()))
}

/// Builds the page into `dist/`, and does `other` work at the same time. If the page is up to date, it is not built.
///
/// The page appears when both are done: a relay that is compiled meanwhile embeds the previous one, or none.
pub(crate) fn build_beside(build: Build, other: impl FnOnce() -> Result<()>) -> Result<()> {
    let (dist, stamp) = (root().join("dist"), target().join("page.stamp"));
    let (inputs, documents) = (fingerprint(INPUTS)?, fingerprint(DOCUMENTS)?);
    let last = fs::read_to_string(&stamp).ok().filter(|_| dist.join("index.html").is_file());
    let stamp_of = |build: Build| match build {
        Build::Quick => format!("{inputs} {build:?}"),
        Build::Optimised | Build::Profiled => format!("{inputs} {documents} {build:?}"),
    };
    let is = |build: Build| last.as_deref() == Some(&stamp_of(build));
    if is(build) || (build == Build::Quick && is(Build::Optimised)) {
        return Ok(());
    }
    let bundle = std::thread::scope(|scope| {
        let page = scope.spawn(|| bundle(build));
        let other = other();
        let page = page.join().map_err(|_| anyhow!("the build of the page panicked"))?;
        other.and(page)
    })?;
    bundle.commit(&dist)?;
    touch(&dist.join("index.html"))?;
    fs::write(stamp, stamp_of(build)).context("note which sources the page is of")
}

/// Sets the modification time to now. Cargo compares the page's files with the time at which it last ran the relay's
/// build script, which may be later than the time at which they were written.
fn touch(file: &Path) -> Result<()> {
    let opened = fs::File::options().append(true).open(file);
    opened
        .and_then(|file| file.set_modified(SystemTime::now()))
        .with_context(|| format!("set the modification time of {}", file.display()))
}

/// Compiles the page; returns the folder of its files.
fn bundle(build: Build) -> Result<Scratch> {
    wasm_target()?;
    let wasm_opt = if build == Build::Quick { None } else { Some(wasm_opt()?) };
    long_step("compiling the page", "2 min the first time", || compile(build))?;
    step("bundling and compressing the page", || {
        let bundle = Scratch::new(&target(), "page")?;
        assemble(bundle.path(), build, wasm_opt.as_deref())?;
        Ok(bundle)
    })
}

fn compile(build: Build) -> Result<()> {
    run(cargo().args([
        "build",
        "--locked",
        "--package",
        PROGRAM,
        "--target",
        WASM,
        "--profile",
        build.profile(),
    ]))
}

/// Generates the JavaScript bindings of the program, optimises it, and writes the complete page.
fn assemble(bundle: &Path, build: Build, wasm_opt: Option<&Path>) -> Result<()> {
    let (js, wasm) = bindings(bundle, build)?;
    let wasm = match wasm_opt {
        Some(wasm_opt) => optimise(wasm_opt, bundle, &wasm, build)?,
        None => wasm,
    };
    let hash = digest(&[js.as_slice(), wasm.as_slice()].concat());
    let (js_name, wasm_name) = (format!("{PROGRAM}-{hash}.js"), format!("{PROGRAM}-{hash}_bg.wasm"));
    let start = start_script(&js_name, &wasm_name);
    let start_name = format!("start-{}.js", digest(start.as_bytes()));
    fs::write(bundle.join(&js_name), js)?;
    fs::write(bundle.join(&wasm_name), wasm)?;
    fs::write(bundle.join(&start_name), start)?;

    let frontend = root().join("frontend");
    let html = fs::read_to_string(frontend.join("index.html")).context("read the page's index")?;
    let html = index::render(&html, |asset| {
        Ok(match asset {
            Asset::Program => format!(
                "<link rel=\"modulepreload\" href=\"./{js_name}\" crossorigin=\"anonymous\">\n    \
                 <link rel=\"preload\" href=\"./{wasm_name}\" crossorigin=\"anonymous\" as=\"fetch\" \
                 type=\"application/wasm\">\n    \
                 <script type=\"module\" src=\"./{start_name}\"></script>"
            ),
            Asset::Style(path) => {
                format!("<link rel=\"stylesheet\" href=\"./{}\">", copy(&frontend.join(path), bundle)?)
            }
            Asset::Icon(path) => {
                format!("<link rel=\"icon\" href=\"./{}\">", copy(&frontend.join(path), bundle)?)
            }
        })
    })?;
    fs::write(bundle.join("index.html"), html)?;
    if build != Build::Quick {
        site::write(&bundle.join("help"))?;
    }
    for file in files(bundle)?.iter().filter(|file| has_extension(file, COMPRESSIBLE)) {
        compress(file, build.compression())?;
    }
    Ok(())
}

/// Generates the JavaScript module and the program that it loads, and writes the scripts that dependencies bring along.
fn bindings(bundle: &Path, build: Build) -> Result<(Vec<u8>, Vec<u8>)> {
    let program = target().join(WASM).join(build.profile()).join(format!("{PROGRAM}.wasm"));
    let mut bindings = Bindgen::new();
    bindings.input_path(&program).web(true)?.typescript(false).omit_default_module_path(true);
    let mut bindings = bindings.remove_name_section(build != Build::Profiled).generate_output()?;
    for (path, script) in snippets(&bindings) {
        let path = bundle.join("snippets").join(path);
        fs::create_dir_all(path.parent().context("a script is in a folder")?)?;
        fs::write(path, script)?;
    }
    Ok((bindings.js().as_bytes().to_vec(), bindings.wasm_mut().emit_wasm()))
}

/// Scripts of dependencies, which the module imports by their path below `snippets/`.
fn snippets(bindings: &Output) -> impl Iterator<Item = (PathBuf, &str)> {
    let inline = bindings.snippets().iter().flat_map(|(folder, scripts)| {
        let path = move |index| Path::new(folder).join(format!("inline{index}.js"));
        scripts.iter().enumerate().map(move |(index, script)| (path(index), script.as_str()))
    });
    inline.chain(bindings.local_modules().iter().map(|(path, script)| (path.into(), script.as_str())))
}

/// Starts the program, which is loaded relative to the script: `fetch` would resolve a relative path against the
/// page.
fn start_script(js: &str, wasm: &str) -> String {
    format!(
        "import init from './{js}';\n\
         init({{ module_or_path: new URL('./{wasm}', import.meta.url) }});\n"
    )
}

fn optimise(wasm_opt: &Path, scratch: &Path, wasm: &[u8], build: Build) -> Result<Vec<u8>> {
    let (large, small) = (scratch.join("large.wasm"), scratch.join("small.wasm"));
    fs::write(&large, wasm)?;
    // `-Oz` is 4 % smaller, but larger by 1 kB once it is compressed.
    let mut command = Command::new(wasm_opt);
    command.arg("-Os").args(WASM_FEATURES).arg(&large).arg("-o").arg(&small);
    run(command.args((build == Build::Profiled).then_some("-g")))?;
    let optimised = fs::read(&small)?;
    fs::remove_file(large)?;
    fs::remove_file(small)?;
    Ok(optimised)
}

/// Copies a file under a name that contains a hash of its content; returns the name.
fn copy(file: &Path, bundle: &Path) -> Result<String> {
    let content = fs::read(file).with_context(|| format!("read {}", file.display()))?;
    let text = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let name = format!("{}-{}.{}", text(file.file_stem()), digest(&content), text(file.extension()));
    fs::write(bundle.join(&name), content)?;
    Ok(name)
}

fn digest(content: &[u8]) -> String {
    hex(&Sha256::digest(content))[..16].to_owned()
}

/// Writes `.br` and `.gz` files.
fn compress(file: &Path, quality: i32) -> Result<()> {
    let plain = fs::read(file)?;
    let mut brotli = Vec::new();
    let params = brotli::enc::BrotliEncoderParams { quality, lgwin: 22, lgblock: 24, ..Default::default() };
    brotli::BrotliCompress(&mut plain.as_slice(), &mut brotli, &params)?;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&plain)?;
    let gzip = gzip.finish()?;
    fs::write(sibling(file, "br"), &brotli)?;
    fs::write(sibling(file, "gz"), &gzip)?;
    if has_extension(file, &["wasm", "js", "css"]) {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        println!("  {name}: {} bytes, {} brotli, {} gzip", plain.len(), brotli.len(), gzip.len());
    }
    Ok(())
}

fn sibling(file: &Path, extension: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

fn has_extension(file: &Path, extensions: &[&str]) -> bool {
    file.extension().is_some_and(|extension| extensions.iter().any(|one| extension == *one))
}

/// A hash over files and folders: names and contents.
fn fingerprint(inputs: &[&str]) -> Result<String> {
    let mut hash = Sha256::new();
    for input in inputs.iter().map(|input| root().join(input)).filter(|input| input.exists()) {
        for file in files(&input)? {
            let content = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
            hash.update(file.strip_prefix(root()).unwrap_or(&file).as_os_str().as_encoded_bytes());
            hash.update((content.len() as u64).to_be_bytes());
            hash.update(content);
        }
    }
    Ok(hex(&hash.finalize()))
}

/// All files at or below a path, sorted.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("read the folder {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            match path.file_name().and_then(|name| name.to_str()) {
                Some("target" | ".git" | "dist") => {}
                None => bail!("{} has a name that is not UTF-8", path.display()),
                _ if path.is_dir() => folders.push(path),
                _ => found.push(path),
            }
        }
    }
    found.sort();
    Ok(found)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_each_crate_of_the_page_triggers_a_build() {
        let mut crates = vec!["frontend".to_owned()];
        while let Some(name) = crates.pop() {
            let is_input = |path: &str| INPUTS.contains(&path);
            assert!(is_input(&name) || is_input(&format!("{name}/src")), "{name} is no input of the page");
            let manifest = fs::read_to_string(root().join(&name).join("Cargo.toml")).unwrap();
            // Others are not part of the page.
            let (dependencies, _) = manifest.split_once("[dev-dependencies]").unwrap_or((&manifest, ""));
            let ours =
                dependencies.lines().filter_map(|line| line.strip_prefix("nodeglass-")?.split_once('.'));
            crates.extend(ours.map(|(name, _)| name.to_owned()));
        }
    }

    #[test]
    fn the_program_is_loaded_relative_to_its_script() {
        let script = start_script("app-1.js", "app-1_bg.wasm");
        assert!(script.starts_with("import init from './app-1.js';"), "{script}");
        assert!(script.contains("new URL('./app-1_bg.wasm', import.meta.url)"), "{script}");
    }

    #[test]
    fn a_copy_is_named_by_its_content() {
        let folder = Scratch::new(&std::env::temp_dir(), "copy").unwrap();
        let file = folder.path().join("a.css");
        fs::write(&file, "a {}").unwrap();
        let name = copy(&file, folder.path()).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join(&name)).unwrap(), "a {}");
        assert_eq!(name, copy(&file, folder.path()).unwrap());
        fs::write(&file, "b {}").unwrap();
        assert_ne!(name, copy(&file, folder.path()).unwrap());
        assert!(
            name.starts_with("a-") && name.ends_with(".css") && name.len() == "a-.css".len() + 16,
            "{name}"
        );
    }
}
