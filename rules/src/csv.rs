//! Cells of comma-separated values, for the page's exports and the command line.

/// Quotes a text for spreadsheets. Some take a text that begins like a formula for one, also after spaces or with
/// full-width signs: an apostrophe makes it text. Some split it at semicolons even between quotes.
pub fn cell(text: &str) -> String {
    let is_formula = |part: &str| {
        let first = part.trim_start_matches(' ');
        first.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'])
    };
    let guarded = |part: &str| format!("{}{part}", if is_formula(part) { "'" } else { "" });
    if is_formula(text) || text.contains([',', '"', '\n', '\r', ';', '\t']) {
        let parts: String = text.split_inclusive(';').map(guarded).collect();
        return format!("\"{}\"", parts.replace('"', "\"\""));
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t15_a_cell_that_looks_like_a_formula_is_text() {
        for evil in ["=cmd()", "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "  =1", "＝1"] {
            let out = cell(evil);
            assert!(out.starts_with("\"'") && out.ends_with('"'), "{out}");
        }
        assert_eq!(cell("a \"b\", c"), "\"a \"\"b\"\", c\"");
        assert_eq!(cell("train.py"), "train.py");
        assert_eq!(cell("x; =1;y"), "\"x;' =1;y\"");
    }
}
