//! Splits the page's program into two files: what the first view needs, and the rest, which is loaded
//! after it.
//!
//! The page itself defines the rest (`frontend/src/view/rest.rs`). The program is split before
//! wasm-bindgen, along the call graph and data references, which the linker keeps (`--emit-relocs`).

use crate::shell::{run, target};
use crate::tools::{PageTools, Scratch, WASM};
use anyhow::{Context, Result};
use base64ct::{Base64, Encoding as _};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// Cargo's name of the program, and Trunk's of its files.
const PROGRAM: &str = "nodeglass-frontend";
/// The script that loads the rest, as named by the splitter.
const LOADER: &str = "__wasm_split.js";
/// The rest, as named by the splitter after the page's name for it.
const REST: &str = "split_rest.wasm";
/// Placeholder for the hash of the rest, until its final content is known.
const UNSEALED: &str = "sha256-unsealed";

/// The final files depend on these.
const FINISHED_BY: [&[u8]; 2] =
    [include_bytes!("page.rs"), include_bytes!("../pins/binaryen/package-lock.json")];

/// Replaces Trunk's file by the two, named by hash.
pub(crate) fn split(tools: &PageTools, dist: &Path) -> Result<()> {
    let whole = target().join(WASM).join("wasm").join(PROGRAM).with_extension("wasm");
    let bytes = fs::read(&whole).with_context(|| format!("read {}", whole.display()))?;
    let scratch = Scratch::new(&target(), "page")?;
    let (parts, bound) = (scratch.path().join("parts"), scratch.path().join("bound"));
    run(tools.command("wasm-split-cli").arg(&whole).arg(&parts).args(["--out-name", "page"]))?;
    let mut bind = tools.command("wasm-bindgen");
    bind.args([
        "--target",
        "web",
        "--no-typescript",
        "--keep-lld-exports",
        "--out-name",
        "page",
        "--out-dir",
    ]);
    run(bind.arg(&bound).arg(parts.join("page.wasm")))?;

    let (mut script, loader) = (read(&bound.join("page.js"))?.into_bytes(), read(&parts.join(LOADER))?);
    let mut first = fs::read(bound.join("page_bg.wasm")).context("take the first part")?;
    number_names(&mut script, &mut first);
    let script = String::from_utf8(script).context("read the script")?;
    let name = Names::of(&[&bytes, script.as_bytes(), loader.as_bytes(), FINISHED_BY[0], FINISHED_BY[1]]);
    fs::write(dist.join(&name.script), with_loader(&script, &loader, &name)?)?;
    fs::write(dist.join(&name.first), first)?;
    fs::copy(parts.join(REST), dist.join(&name.rest)).context("take the rest: does the page name one?")?;
    take_the_place_of_one(dist, &name)
}

/// Embeds the hash of the rest into the script: when it is loaded, another program may listen on the
/// relay's address, and the page's code has access to its key.
pub(crate) fn seal(dist: &Path) -> Result<()> {
    let (mut script, mut hash) = (None, None);
    for entry in fs::read_dir(dist)? {
        let path = entry?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match file.rsplit_once('.') {
            Some((name, "js")) if name.starts_with("page-") => script = Some(path),
            Some((name, "wasm")) if name.starts_with("rest-") => {
                hash = Some(Sha256::digest(fs::read(&path)?))
            }
            _ => {}
        }
    }
    let (script, hash) = script.zip(hash).context("the page has no second file")?;
    let sealed = format!("sha256-{}", Base64::encode_string(&hash));
    fs::write(&script, put(&read(&script)?, UNSEALED, &sealed)?).context("seal the script")
}

/// Length of the hash in names that wasm-bindgen generates.
const DIGITS: usize = 16;

/// Replaces these hashes by numbers, consistently in both files: two hundred hashes are 4 kB that do not
/// compress.
fn number_names(script: &mut [u8], program: &mut [u8]) {
    let mut numbers = BTreeMap::new();
    for file in [script, program] {
        for place in hashes(file) {
            let next = numbers.len();
            let number = *numbers.entry(file[place.clone()].to_vec()).or_insert(next);
            file[place].copy_from_slice(format!("{number:0DIGITS$}").as_bytes());
        }
    }
}

/// Positions of exactly as many hexadecimal digits as a hash has, after `_` or `h`.
fn hashes(file: &[u8]) -> Vec<Range<usize>> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_hash = |place: &Range<usize>| {
        file[place.start..].iter().take_while(|byte| is_digit(byte)).take(DIGITS + 1).count() == DIGITS
    };
    let before = file.iter().enumerate().filter(|(_, byte)| matches!(byte, b'_' | b'h'));
    before.map(|(at, _)| at + 1..at + 1 + DIGITS).filter(is_hash).collect()
}

/// The names of the files: a browser caches a file by name forever.
struct Names {
    script: String,
    first: String,
    rest: String,
}

impl Names {
    /// All three change together: they only match each other.
    fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        parts.iter().for_each(|part| hash.update(Sha256::digest(part)));
        let hash = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>();
        Self {
            script: format!("page-{hash}.js"),
            first: format!("page-{hash}_bg.wasm"),
            rest: format!("rest-{hash}.wasm"),
        }
    }
}

/// wasm-bindgen's script including the loader of the rest, to save a request.
fn with_loader(script: &str, loader: &str, name: &Names) -> Result<String> {
    let import = format!("import * as import1 from \"./{LOADER}\"");
    let script = cut(script, &import)?.replace("'page_bg.wasm'", &format!("'{}'", name.first));
    let loader = cut(loader, "import { initSync } from \"./page.js\";")?;
    let asked = format!("fetch(new URL(\"./{REST}\", import.meta.url))");
    let rest = &name.rest;
    let sealed = format!("fetch(new URL(\"./{rest}\", import.meta.url), {{ integrity: \"{UNSEALED}\" }})");
    let loader = put(&loader, &asked, &sealed)?.replace("export const ", "const ");
    let joined = format!("{script}\n{loader}\nconst import1 = {{ __wasm_split_load_rest }};\n");
    Ok(joined.lines().filter(|line| is_code(line)).fold(String::new(), |out, line| out + line + "\n"))
}

/// Returns whether a line is code: the tools generate long comments.
fn is_code(line: &str) -> bool {
    !line.trim_start().starts_with("//") && !line.trim().is_empty()
}

fn cut(text: &str, part: &str) -> Result<String> {
    put(text, part, "")
}

fn put(text: &str, part: &str, other: &str) -> Result<String> {
    let (before, after) = text.split_once(part).with_context(|| format!("there is no {part:?}"))?;
    Ok(format!("{before}{other}{after}"))
}

/// Replaces references to the single program by the first part.
fn take_the_place_of_one(dist: &Path, name: &Names) -> Result<()> {
    for entry in fs::read_dir(dist)? {
        let path = entry?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if file.starts_with(PROGRAM) {
            fs::remove_file(&path)?;
            let other = if file.ends_with(".js") { &name.script } else { &name.first };
            let index = dist.join("index.html");
            fs::write(&index, read(&index)?.replace(&file, other))?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_becomes_part_of_the_script() {
        let script =
            "import * as import1 from \"./__wasm_split.js\"\nnew URL('page_bg.wasm');\nexport { initSync };";
        let loader = "import { initSync } from \"./page.js\";\n\n    // It is explained.\n\
                      export const __wasm_split_load_rest = () => fetch(new URL(\"./split_rest.wasm\", import.meta.url));";
        let name = Names::of(&[b"program"]);
        let joined = with_loader(script, loader, &name).unwrap();
        assert!(!joined.contains("import ") && !joined.contains("// "), "{joined}");
        assert!(joined.contains(&format!("'{}'", name.first)), "{joined}");
        let sealed =
            format!("new URL(\"./{}\", import.meta.url), {{ integrity: \"{UNSEALED}\" }})", name.rest);
        assert!(joined.contains(&sealed), "{joined}");
        assert!(with_loader("", loader, &name).is_err());
    }

    #[test]
    fn the_script_says_what_the_rest_must_be() {
        let dist = std::env::temp_dir().join(format!("nodeglass-seal-{}", std::process::id()));
        fs::create_dir_all(&dist).unwrap();
        fs::write(dist.join("page-1.js"), format!("{{ integrity: \"{UNSEALED}\" }}")).unwrap();
        fs::write(dist.join("rest-1.wasm"), "abc").unwrap();
        seal(&dist).unwrap();
        let script = read(&dist.join("page-1.js")).unwrap();
        fs::remove_dir_all(&dist).unwrap();
        assert_eq!(script, "{ integrity: \"sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=\" }");
    }

    #[test]
    fn script_and_program_still_know_each_others_functions() {
        let mut script =
            b"__wbg_new_0123456789abcdef __wbg_of_fedcba9876543210 invoke__h00112233445566ff".to_vec();
        let mut program = b"\x1a__wbg_of_fedcba9876543210\0_0123456789abcdef0 _0123456789abcdef".to_vec();
        number_names(&mut script, &mut program);
        let (script, program) = (String::from_utf8(script).unwrap(), String::from_utf8(program).unwrap());
        assert_eq!(script, "__wbg_new_0000000000000000 __wbg_of_0000000000000001 invoke__h0000000000000002");
        assert_eq!(program, "\x1a__wbg_of_0000000000000001\0_0123456789abcdef0 _0000000000000000");
    }

    #[test]
    fn all_names_change_when_any_part_does() {
        let (one, other) = (Names::of(&[b"a", b"b"]), Names::of(&[b"a", b"c"]));
        assert!(one.script != other.script && one.first != other.first && one.rest != other.rest);
    }
}
