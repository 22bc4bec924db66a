//! Builds the page into `dist/`: optimised, pre-compressed, and without inline scripts.

use crate::shell::{long_step, root, run, step, target};
use crate::tools::PageTools;
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

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
    "xtask/src/page.rs",
    ".cargo/config.toml",
];
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

/// Whether the page's program contains function names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// No: they are large and only needed for inspection.
    Dropped,
    /// Yes, for profiling.
    Kept,
}

/// Builds the page into `dist/`, unless it is up to date.
pub(crate) fn build(tools: &PageTools) -> Result<()> {
    build_with(tools, Names::Dropped)
}

/// The same, with or without names.
pub(crate) fn build_with(tools: &PageTools, names: Names) -> Result<()> {
    let (dist, stamp) = (root().join("dist"), target().join("page.stamp"));
    let inputs = format!("{} {names:?}", fingerprint(INPUTS)?);
    if dist.join("index.html").is_file() && fs::read_to_string(&stamp).is_ok_and(|last| last == inputs) {
        return Ok(());
    }
    // Removed first, so that an incomplete build is not mistaken for a complete one.
    let _ = fs::remove_file(&stamp);
    long_step("building the page", "3 min the first time", || {
        let mut trunk = tools.command("trunk");
        // Its errors are clearer without the stack of its own build.
        trunk.args(["build", "--release", "--offline"]).env("RUST_BACKTRACE", "0");
        run(&mut trunk)
    })?;
    step("optimising and compressing the page", || finish(tools, &dist, names))?;
    fs::create_dir_all(target())?;
    fs::write(stamp, inputs).context("note which sources the page is of")
}

fn finish(tools: &PageTools, dist: &Path, names: Names) -> Result<()> {
    externalise(dist)?;
    for wasm in files(dist)?.iter().filter(|file| has_extension(file, &["wasm"])) {
        let small = wasm.with_extension("wasm.small");
        let mut optimise = tools.command("wasm-opt");
        // `-Oz` is 4 % smaller, but larger by 1 kB once it is compressed.
        optimise.arg("-Os").args(WASM_FEATURES).arg(wasm).arg("-o").arg(&small);
        run(optimise.args((names == Names::Kept).then_some("-g")))?;
        fs::rename(small, wasm)?;
    }
    for file in files(dist)?.iter().filter(|file| has_extension(file, COMPRESSIBLE)) {
        compress(file)?;
    }
    Ok(())
}

/// Moves Trunk's inline module script into a file, as the content security policy requires.
fn externalise(dist: &Path) -> Result<()> {
    let index = dist.join("index.html");
    let html = fs::read_to_string(&index).context("read the page that trunk built")?;
    let (html, scripts) = without_inline_scripts(&html)?;
    for script in scripts {
        fs::write(dist.join(script.name), script.body)?;
    }
    fs::write(index, html)?;
    Ok(())
}

/// A former inline script.
struct Script {
    name: String,
    body: String,
}

/// Replaces inline scripts by references, and removes integrity hashes of files that are optimised later.
fn without_inline_scripts(html: &str) -> Result<(String, Vec<Script>)> {
    let (mut out, mut scripts, mut rest) = (String::new(), Vec::new(), html);
    while let Some(start) = rest.find("<script") {
        let (before, tag) = rest.split_at(start);
        let open = tag.find('>').context("a script tag does not end")? + 1;
        let close = tag.find("</script>").context("a script does not end")?;
        out.push_str(before);
        let body = relative(tag[open..close].trim());
        if body.is_empty() {
            out.push_str(&tag[..close]);
        } else {
            let name = format!("start-{}.js", &hex(&Sha256::digest(&body))[..16]);
            write!(out, r#"<script type="module" src="{}{name}">"#, base_of(&body))?;
            scripts.push(Script { name, body: format!("{body}\n") });
        }
        out.push_str("</script>");
        rest = &tag[close + "</script>".len()..];
    }
    out.push_str(rest);
    Ok((without_attribute(&out, "integrity"), scripts))
}

/// A script that loads the page's program relative to itself: `fetch` would resolve a relative path
/// against the page.
fn relative(script: &str) -> String {
    const OPTION: &str = "module_or_path: ";
    let Some((before, rest)) = script.split_once(OPTION) else { return script.to_owned() };
    let end = rest[1..].find(['\'', '"']).map_or(0, |end| end + 2);
    format!("{before}{OPTION}new URL({}, import.meta.url){}", &rest[..end], &rest[end..])
}

/// The folder of a script's modules (`from '/base/x.js'` → `/base/`), which it is placed in.
fn base_of(script: &str) -> &str {
    let path = script.split_once("from ").and_then(|(_, rest)| rest.get(1..)?.split(['\'', '"']).next());
    path.and_then(|path| path.rsplit_once('/').map(|(base, _)| &path[..=base.len()])).unwrap_or("/")
}

/// Removes an attribute. The page's files are part of the same binary as the page, so that integrity
/// hashes protect nothing.
fn without_attribute(html: &str, name: &str) -> String {
    let marker = format!(" {name}=\"");
    let mut parts = html.split(marker.as_str());
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(part.split_once('"').map_or("", |(_, rest)| rest));
    }
    out
}

/// Writes `.br` and `.gz` files with maximum compression.
fn compress(file: &Path) -> Result<()> {
    let plain = fs::read(file)?;
    let mut brotli = Vec::new();
    let params =
        brotli::enc::BrotliEncoderParams { quality: 11, lgwin: 22, lgblock: 24, ..Default::default() };
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

    const PAGE: &str = r#"<html><head>
<script type="module">
import init, * as bindings from './app-1.js';
init({ module_or_path: './app-1_bg.wasm' });
</script><link rel="modulepreload" href="./app-1.js" integrity="sha384-AAA" crossorigin="anonymous">
<script src="/theme.js"></script></head></html>"#;

    #[test]
    fn a_change_of_each_crate_of_the_page_triggers_a_build() {
        let mut crates = vec!["frontend".to_owned()];
        while let Some(name) = crates.pop() {
            let is_input = |path: &str| INPUTS.contains(&path);
            assert!(is_input(&name) || is_input(&format!("{name}/src")), "{name} is no input of the page");
            let manifest = fs::read_to_string(root().join(&name).join("Cargo.toml")).unwrap();
            let ours = manifest.lines().filter_map(|line| line.strip_prefix("nodeglass-")?.split_once('.'));
            crates.extend(ours.map(|(name, _)| name.to_owned()));
        }
    }

    #[test]
    fn no_inline_script_is_left_in_the_page() {
        let (html, scripts) = without_inline_scripts(PAGE).unwrap();
        assert_eq!(scripts.len(), 1);
        assert!(scripts[0].body.starts_with("import init"));
        let program = "module_or_path: new URL('./app-1_bg.wasm', import.meta.url) });";
        assert!(scripts[0].body.contains(program), "{}", scripts[0].body);
        assert!(
            html.contains(&format!(r#"<script type="module" src="./{}"></script>"#, scripts[0].name)),
            "{html}"
        );
        assert!(html.contains(r#"<script src="/theme.js"></script></head>"#), "{html}");
        assert!(!html.contains("import init"), "{html}");
    }

    #[test]
    fn hashes_of_files_that_change_afterwards_are_dropped() {
        let (html, _) = without_inline_scripts(PAGE).unwrap();
        assert!(html.contains(r#"href="./app-1.js" crossorigin="anonymous">"#), "{html}");
    }

    #[test]
    fn a_script_is_next_to_the_modules_that_it_loads() {
        assert_eq!(base_of("import init from '/a/b/x.js';"), "/a/b/");
        assert_eq!(base_of("import init from \"./x.js\";"), "./");
        assert_eq!(base_of("console.log(1)"), "/");
    }
}
