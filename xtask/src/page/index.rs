//! Renders `index.html`: replaces the assets that it declares for Trunk by references to hashed files.
//!
//! Trunk itself builds the same page from the same file (`trunk serve`). The relay's pages are built here, because
//! compiling Trunk takes longer than compiling the page, and because the content security policy allows no inline
//! script.

use anyhow::{Context, Result, bail};

/// An asset that the index declares with `data-trunk`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asset<'a> {
    /// The program (`rel="rust"`).
    Program,
    /// A style sheet, relative to the index (`rel="css"`).
    Style(&'a str),
    /// An icon, relative to the index (`rel="icon"`).
    Icon(&'a str),
}

/// Replaces each `<link data-trunk …>` by what `render` returns for it.
///
/// # Errors
/// If a link is of an unknown kind, or `render` fails.
pub(super) fn render(html: &str, mut render: impl FnMut(Asset<'_>) -> Result<String>) -> Result<String> {
    const LINK: &str = "<link data-trunk ";
    let (mut out, mut rest) = (String::new(), html);
    while let Some((before, link)) = rest.split_once(LINK) {
        let (attributes, after) = link.split_once('>').context("a link of the index does not end")?;
        out.push_str(before);
        out.push_str(&render(asset(attributes)?)?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn asset(attributes: &str) -> Result<Asset<'_>> {
    let href = attribute(attributes, "href").context("a link of the index has no href")?;
    match attribute(attributes, "rel") {
        Some("rust") => Ok(Asset::Program),
        Some("css") => Ok(Asset::Style(href)),
        Some("icon") => Ok(Asset::Icon(href)),
        other => bail!("the index links {href} as {other:?}, which is not supported"),
    }
}

fn attribute<'a>(attributes: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = attributes.split_once(&format!("{name}=\""))?;
    Some(value.split_once('"')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_declared_asset_is_replaced_in_its_place() {
        let html = "<head>\n<link data-trunk rel=\"rust\" href=\"Cargo.toml\" data-bin=\"app\">\n\
                    <link data-trunk rel=\"css\" href=\"styles/a.css\">\n\
                    <link data-trunk rel=\"icon\" href=\"i.svg\"></head>";
        let rendered = render(html, |asset| Ok(format!("[{asset:?}]"))).unwrap();
        assert_eq!(rendered, "<head>\n[Program]\n[Style(\"styles/a.css\")]\n[Icon(\"i.svg\")]</head>");
    }

    #[test]
    fn an_asset_of_an_unknown_kind_is_an_error() {
        let error = render("<link data-trunk rel=\"sass\" href=\"a.scss\">", |_| Ok(String::new()));
        assert!(error.unwrap_err().to_string().contains("a.scss"));
        assert!(render("<link data-trunk rel=\"css\"", |_| Ok(String::new())).is_err());
    }

    #[test]
    fn the_index_of_the_page_declares_its_program_styles_and_icon() {
        let html = include_str!("../../../frontend/index.html");
        let mut kinds = Vec::new();
        let rendered = render(html, |asset| {
            kinds.push(match asset {
                Asset::Program => "program",
                Asset::Style(_) => "style",
                Asset::Icon(_) => "icon",
            });
            Ok(String::new())
        });
        assert!(!rendered.unwrap().contains("data-trunk"));
        kinds.dedup();
        assert_eq!(kinds, ["program", "style", "icon"]);
    }
}
