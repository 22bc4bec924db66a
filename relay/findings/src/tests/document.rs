//! `docs/FINDINGS.md` describes every kind as the catalogue does.

use nodeglass_protocol::finding::FindingKind;
use nodeglass_rules::text;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/FINDINGS.md");
const HEADER: &str = "| kind | found when | within | usual meaning | what to do |";

/// The table of all kinds as `docs/FINDINGS.md` has it; `cargo xtask generate` renews it.
#[test]
fn the_document_describes_every_kind() {
    let row = |kind: &FindingKind| {
        let within = text::exact_span(kind.found_within_ms() / 1_000);
        let (condition, meaning, advice) = (kind.condition(), kind.meaning(), kind.advice());
        format!("| `{}` | {condition} | {within} | {meaning} | {advice} |", kind.name())
    };
    let rows: Vec<String> = FindingKind::ALL.iter().map(row).collect();
    let table = format!("{HEADER}\n|---|---|---|---|---|\n{}\n", rows.join("\n"));
    let document = std::fs::read_to_string(DOCUMENT).unwrap();
    if std::env::var_os("NODEGLASS_FREEZE").is_some() {
        let (before, rest) = document.split_once(HEADER).unwrap();
        let after = rest.find("\n\n").map_or("", |end| &rest[end..]);
        std::fs::write(DOCUMENT, format!("{before}{}{after}", table.trim_end())).unwrap();
        return;
    }
    assert!(
        document.contains(table.trim_end()),
        "docs/FINDINGS.md is out of date: run `cargo xtask generate`"
    );
}
