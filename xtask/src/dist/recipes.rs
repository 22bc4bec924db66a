//! Fills the recipes in `packaging/recipes/` with version, address and checksums.

use super::{MACHINES, VERSION, checksums, folder};
use crate::shell::root;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// Recipes, and what their files are called; `VERSION` is replaced.
const RECIPES: [(&str, &str); 6] = [
    ("conda/recipe.yaml", "conda/recipe.yaml"),
    ("spack/package.py", "spack/packages/nodeglass/package.py"),
    ("easybuild/nodeglass.eb", "easybuild/nodeglass-VERSION.eb"),
    ("lmod/nodeglass.lua", "lmod/nodeglass/VERSION.lua"),
    ("apptainer/nodeglass.def", "apptainer/nodeglass.def"),
    ("docker/Dockerfile", "docker/Dockerfile"),
];

/// The home page in recipes that need one, unless an address is stated.
const HOMEPAGE: &str = "https://example.org/nodeglass";

/// Writes the recipes below `out`, for the archives there, which are to be downloaded from below `url`, or else are beside the recipes
/// wherever they are copied to. An archive of a processor that was not packed is left out of them.
pub(super) fn write(out: &Path, url: Option<&str>) -> Result<Vec<PathBuf>> {
    let (mut words, mut absent) = sources(url);
    for (machine, word) in MACHINES.into_iter().zip(["@SHA256_X86_64@", "@SHA256_AARCH64@"]) {
        let archive = out.join(format!("nodeglass-{VERSION}-linux-{machine}.tar.gz"));
        if archive.is_file() {
            words.push((word, checksums::sha256(&archive)?));
        } else {
            absent.push(word);
        }
    }
    ensure!(
        words.iter().any(|(word, _)| word.starts_with("@SHA256_")),
        "there is no archive in {}, whose checksum recipes state",
        out.display()
    );
    let written = RECIPES
        .into_iter()
        .map(|(from, to)| {
            let template = root().join("packaging/recipes").join(from);
            let template =
                fs::read_to_string(&template).with_context(|| format!("read {}", template.display()))?;
            let to = out.join("recipes").join(to.replace("VERSION", VERSION));
            fs::create_dir_all(to.parent().context("a folder of recipes")?)?;
            fs::write(&to, fill(&template, &words, &absent))?;
            Ok(to)
        })
        .collect();
    // Lmod ignores a modulefile that not everyone can read.
    folder::settle(&out.join("recipes"))?;
    written
}

/// Words that depend on the place of the archives, and those whose lines are left out.
fn sources(url: Option<&str>) -> (Vec<(&'static str, String)>, Vec<&'static str>) {
    let version = ("@VERSION@", VERSION.to_owned());
    match url.map(|url| url.trim_end_matches('/').to_owned()) {
        Some(url) => (vec![version, ("@HOMEPAGE@", url.clone()), ("@URL@", url)], vec!["@BESIDE@"]),
        None => {
            let beside = "`cargo xtask dist` was given no address".to_owned();
            (vec![version, ("@HOMEPAGE@", HOMEPAGE.to_owned()), ("@BESIDE@", beside)], vec!["@URL@"])
        }
    }
}

/// Replaces words, and leaves out lines that need an absent one.
fn fill(template: &str, words: &[(&str, String)], absent: &[&str]) -> String {
    let lines = template.lines().filter(|line| !absent.iter().any(|word| line.contains(word)));
    lines.fold(String::new(), |filled, line| {
        let line = words.iter().fold(line.to_owned(), |line, (word, value)| line.replace(word, value));
        filled + &line + "\n"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_replaced_and_lines_of_an_absent_archive_left_out() {
        let words = [("@VERSION@", "1.2".to_owned()), ("@SHA256_X86_64@", "ab".to_owned())];
        let filled =
            fill("a @VERSION@\nb @SHA256_X86_64@\nc @SHA256_AARCH64@\n", &words, &["@SHA256_AARCH64@"]);
        assert_eq!(filled, "a 1.2\nb ab\n");
    }

    #[test]
    fn recipes_without_an_address_name_no_folder_of_the_builder() {
        let folder = crate::scratch::Scratch::new(&std::env::temp_dir(), "recipes").unwrap();
        fs::write(folder.path().join(format!("nodeglass-{VERSION}-linux-x86_64.tar.gz")), "").unwrap();
        let with_url = |url| -> Vec<String> {
            let files = write(folder.path(), url).unwrap();
            files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
        };
        for text in with_url(None) {
            assert!(!text.contains(&folder.path().display().to_string()), "{text}");
            assert!(!["@URL", "@HOMEPAGE", "@BESIDE"].iter().any(|word| text.contains(word)), "{text}");
        }
        let downloaded = with_url(Some("https://mirror.example/n/"));
        assert!(downloaded.iter().any(|text| text.contains("https://mirror.example/n/nodeglass-")));
        assert!(!downloaded.iter().any(|text| text.contains(HOMEPAGE) || text.contains("getcwd")));
    }

    #[test]
    fn each_template_is_a_recipe() {
        let folder = root().join("packaging/recipes");
        let folders =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        for folder in folders {
            assert!(RECIPES.iter().any(|(from, _)| from.starts_with(&format!("{folder}/"))), "{folder}");
        }
    }
}
