//! Embeds the page: generates the list of its files for the compiler.
//!
//! It is taken from `$NODEGLASS_PAGE`, or from `dist/` at the workspace root, where `cargo xtask` puts
//! it. Without one the list is empty and the relay shows how to build it.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-env-changed=NODEGLASS_PAGE");
    println!("cargo:rerun-if-env-changed=CARGO_MANIFEST_DIR");
    for name in ["PROFILE", "TARGET"] {
        println!("cargo:rustc-env=NODEGLASS_{name}={}", env::var(name).map_err(io::Error::other)?);
    }
    let page = match env::var_os("NODEGLASS_PAGE") {
        Some(page) => PathBuf::from(page),
        // Asked now and not when this was compiled: two checkouts may share one target folder.
        None => {
            PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?).join("../dist")
        }
    };
    // Cargo takes a missing path for a changed one and would rebuild the relay each time; an empty
    // folder says the same and is left alone. Where it cannot be made, that is the price.
    let _ = fs::create_dir_all(&page);
    println!("cargo:rerun-if-changed={}", page.display());
    let mut files = Vec::new();
    if page.join("index.html").is_file() {
        collect(&page, &mut files)?;
        files.sort();
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    fs::write(out.join("page.rs"), list(&page, &files)?)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// The source of the list; a `.br` or `.gz` beside a file is another form of it, not a file of its own.
fn list(page: &Path, files: &[PathBuf]) -> io::Result<String> {
    let mut out = String::from("&[\n");
    for file in files.iter().filter(|file| !is_compressed(file, files)) {
        let name = file.strip_prefix(page).map_err(io::Error::other)?.to_string_lossy().into_owned();
        let sibling = |end: &str| {
            let path = with_end(file, end);
            if files.contains(&path) { format!("Some({})", include(&path)) } else { "None".to_owned() }
        };
        let (brotli, gzip) = (sibling("br"), sibling("gz"));
        // The relay rewrites the index. Of all other files, it decompresses what a client without compression requests.
        let is_needed = name == "index.html" || gzip == "None";
        let plain = if is_needed { format!("Some({})", include(file)) } else { "None".to_owned() };
        writeln!(out, "    PageFile {{ path: {name:?}, plain: {plain}, brotli: {brotli}, gzip: {gzip} }},")
            .map_err(io::Error::other)?;
    }
    out.push_str("]\n");
    Ok(out)
}

fn is_compressed(file: &Path, files: &[PathBuf]) -> bool {
    file.extension().is_some_and(|end| end == "br" || end == "gz") && files.contains(&file.with_extension(""))
}

fn with_end(file: &Path, end: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(".");
    path.push(end);
    path.into()
}

fn include(file: &Path) -> String {
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    format!("include_bytes!({:?})", file.display().to_string())
}
