//! Renders the documents that `docs/SUMMARY.md` lists as HTML without scripts, which the relay serves at `/help/`.

use crate::shell::root;
use anyhow::{Context, Result, bail};
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The list of the documents, which is the first page.
const SUMMARY: &str = "SUMMARY.md";
/// Documents with more sections than this begin with a list of them.
const FEW_SECTIONS: usize = 4;

/// Writes the site into a new folder.
///
/// # Errors
/// If a document that the summary lists cannot be read, or the folder cannot be written.
pub(super) fn write(folder: &Path) -> Result<()> {
    let tokens = read(&root().join("frontend/styles/tokens.css"))?;
    let style = read(&root().join("docs/site.css"))?;
    fs::create_dir_all(folder)?;
    fs::write(folder.join("style.css"), tokens + &style)?;
    let documents = listed(&read(&root().join("docs").join(SUMMARY))?)?;
    for document in &documents {
        let text = read(&root().join("docs").join(document))?;
        let file = folder.join(page_of(document));
        fs::create_dir_all(file.parent().context("a page is in a folder")?)?;
        fs::write(file, page(document, &text, &documents))?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("read {}", file.display()))
}

/// The summary, and the documents to which it links.
fn listed(summary: &str) -> Result<Vec<PathBuf>> {
    let mut documents = vec![PathBuf::from(SUMMARY)];
    for event in Parser::new(summary) {
        if let Event::Start(Tag::Link { dest_url, .. }) = event {
            match within(Path::new(SUMMARY), &dest_url) {
                Some(document) => documents.push(document),
                None => bail!("{SUMMARY} links to {dest_url}, which is outside of docs/"),
            }
        }
    }
    Ok(documents)
}

/// The path of a document's page in the site.
fn page_of(document: &Path) -> PathBuf {
    if document == Path::new(SUMMARY) { "index.html".into() } else { document.with_extension("html") }
}

/// The path below `docs/` to which a relative link leads; `None` outside of it.
fn within(from: &Path, link: &str) -> Option<PathBuf> {
    let mut path = from.parent()?.to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir if path.pop() => {}
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(path)
}

/// The target of a link in the site; `None` if it leads to a file that is not part of it.
fn target(from: &Path, link: &str, documents: &[PathBuf]) -> Option<String> {
    if link.contains("://") || link.starts_with('#') {
        return Some(link.to_owned());
    }
    let (path, anchor) = link.split_at(link.find('#').unwrap_or(link.len()));
    let document = within(from, path).filter(|document| documents.contains(document))?;
    let up = "../".repeat(from.components().count() - 1);
    Some(format!("{up}{}{anchor}", page_of(&document).display()))
}

/// A complete page.
fn page(document: &Path, text: &str, documents: &[PathBuf]) -> String {
    let up = "../".repeat(document.components().count() - 1);
    let (body, sections) = render(document, text, documents);
    let title = escaped(text.lines().next().unwrap_or_default().trim_start_matches("# "));
    let contents = if sections.len() > FEW_SECTIONS {
        let items: String =
            sections.iter().map(|(id, title)| format!("<li><a href=\"#{id}\">{title}</a></li>\n")).collect();
        format!("<ul>\n{items}</ul>\n")
    } else {
        String::new()
    };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title} · nodeglass</title>\n\
         <link rel=\"stylesheet\" href=\"{up}style.css\">\n</head>\n<body>\n\
         <nav><a href=\"{up}index.html\">Documentation</a>\n{contents}</nav>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// The HTML of a document, and its sections: ids, and titles in HTML.
fn render(document: &Path, text: &str, documents: &[PathBuf]) -> (String, Vec<(String, String)>) {
    let mut events: Vec<Event<'_>> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
    let mut sections = Vec::new();
    // Whether each link that is open leads somewhere in the site.
    let mut open_links = Vec::new();
    for index in 0..events.len() {
        let title = title_at(&events[index..]);
        let event = match &mut events[index] {
            Event::Start(Tag::Heading { id, level, .. }) => {
                let slug = slug(&title);
                *id = Some(slug.clone().into());
                if *level as usize == 2 {
                    sections.push((slug, escaped(&title)));
                }
                continue;
            }
            Event::Start(Tag::Link { dest_url, .. }) => {
                let target = target(document, dest_url, documents);
                open_links.push(target.is_some());
                match target {
                    Some(target) => {
                        *dest_url = CowStr::from(target);
                        continue;
                    }
                    None => Event::Text("".into()),
                }
            }
            Event::End(TagEnd::Link) if open_links.pop() == Some(false) => Event::Text("".into()),
            // Pictures are not part of the site; their descriptions are.
            Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) => Event::Text("".into()),
            _ => continue,
        };
        events[index] = event;
    }
    let mut body = String::new();
    html::push_html(&mut body, events.into_iter());
    // The content policy allows no inline styles, and wide tables scroll by themselves.
    let body = body.replace(" style=\"text-align: ", " class=\"");
    let body = body.replace("<table>", "<div class=\"table\"><table>").replace("</table>", "</table></div>");
    (body, sections)
}

/// The HTML of plain text.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    html::push_html(&mut out, std::iter::once(Event::Text(text.into())));
    out
}

/// The text of the heading with which these events begin; empty if they begin otherwise.
fn title_at(events: &[Event<'_>]) -> String {
    if !matches!(events.first(), Some(Event::Start(Tag::Heading { .. }))) {
        return String::new();
    }
    let heading = events.iter().take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))));
    let text = heading.filter_map(|event| match event {
        Event::Text(text) | Event::Code(text) => Some(&**text),
        _ => None,
    });
    text.collect()
}

/// The anchor of a heading, as GitHub makes it.
fn slug(title: &str) -> String {
    let dashed = title.trim().to_lowercase().replace(' ', "-");
    dashed.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::files;
    use crate::scratch::Scratch;

    /// Values of an attribute in an HTML file.
    fn values<'a>(html: &'a str, attribute: &str) -> impl Iterator<Item = &'a str> {
        let start = format!(" {attribute}=\"");
        html.split(&start).skip(1).filter_map(|rest| rest.split('"').next()).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn every_link_of_the_site_resolves_and_nothing_is_inline() {
        let site = Scratch::new(&std::env::temp_dir(), "site").unwrap();
        write(site.path()).unwrap();
        let (mut links, mut packed) = (0, 0);
        for file in files(site.path()).unwrap() {
            let text = read(&file).unwrap();
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            std::io::Write::write_all(&mut gzip, text.as_bytes()).unwrap();
            packed += gzip.finish().unwrap().len();
            assert!(!text.contains("<script") && !text.contains(" style="), "{}", file.display());
            for link in values(&text, "href").filter(|link| !link.contains("://")) {
                let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = if path.is_empty() { file.clone() } else { file.parent().unwrap().join(path) };
                let there = fs::read_to_string(&target).unwrap_or_default();
                let leads =
                    !there.is_empty() && (anchor.is_empty() || values(&there, "id").any(|id| id == anchor));
                assert!(leads, "{} links to {link}", file.display());
                links += 1;
            }
        }
        assert!(links > 200, "only {links} links were found");
        assert!(packed < 200_000, "the site has {packed} bytes");
    }

    #[test]
    fn links_to_files_outside_of_the_site_become_their_text() {
        let documents = ["SUMMARY.md", "a.md", "b/c.md"].map(PathBuf::from);
        let (html, sections) = render(
            Path::new("b/c.md"),
            "## A `<b>`, c\n[in](../a.md#x) [out](../../src/x.rs) ![picture](../p.webp)\n\n|n|\n|-:|\n|1|\n",
            &documents,
        );
        assert_eq!(sections, [("a-b-c".to_owned(), "A &lt;b&gt;, c".to_owned())]);
        assert!(html.contains("<h2 id=\"a-b-c\">"), "{html}");
        assert!(html.contains("<a href=\"../a.html#x\">in</a> out picture"), "{html}");
        assert!(html.contains("<td class=\"right\">1</td>"), "{html}");
    }
}
