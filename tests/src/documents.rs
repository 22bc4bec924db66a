//! Examples in the documents, so that tests run what these show.

use anyhow::{Context, Result};

/// The first code block of a language below a heading (`## VS Code`).
///
/// # Errors
/// If the section has none.
pub fn example<'a>(document: &'a str, heading: &str, language: &str) -> Result<&'a str> {
    let (_, section) = document.split_once(&format!("\n{heading}\n")).with_context(|| heading.to_owned())?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let (_, block) = section
        .split_once(&format!("```{language}\n"))
        .with_context(|| format!("no {language} below {heading}"))?;
    Ok(block.split("```").next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_that_of_its_section() {
        let document = "# T\n\n## A\n\n```sh\na\n```\n\n## B\n\n```sh\nb\n```\n";
        assert_eq!(example(document, "## B", "sh").unwrap(), "b\n");
        assert!(example(document, "## A", "json").is_err() && example(document, "## C", "sh").is_err());
    }
}
