//! Renders a profiler's samples as a flame graph, with the most expensive functions.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Width of the graph, in pixels.
const WIDTH: f64 = 1_200.0;
/// Height of a frame.
const ROW: f64 = 17.0;
/// Narrower frames are left out.
const NARROWEST: f64 = 2.0;
/// Approximate width of a letter.
const LETTER: f64 = 6.3;

/// A function at its position in the call tree.
#[derive(Debug, Default)]
pub struct Frame {
    own_ms: f64,
    calls: BTreeMap<String, Frame>,
}

impl Frame {
    /// From the result of `Profiler.stop`, without idle time.
    pub fn of_profile(profile: &Value) -> Result<Self> {
        let nodes = profile["nodes"].as_array().context("a profile has nodes")?;
        let id = |value: &Value| value.as_u64().context("an id is a number");
        let (mut own_ms, mut name, mut above) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for node in nodes {
            let this = id(&node["id"])?;
            name.insert(this, short(node["callFrame"]["functionName"].as_str().unwrap_or_default()));
            for child in node["children"].as_array().into_iter().flatten() {
                above.insert(id(child)?, this);
            }
        }
        let samples = profile["samples"].as_array().context("a profile has samples")?;
        let deltas = profile["timeDeltas"].as_array().context("a profile has times")?;
        for (sample, delta) in samples.iter().zip(deltas) {
            *own_ms.entry(id(sample)?).or_insert(0.0) += delta.as_f64().unwrap_or(0.0).max(0.0) / 1e3;
        }
        let mut root = Self::default();
        for (mut at, ms) in own_ms {
            let mut path = Vec::new();
            while let Some(up) = above.get(&at) {
                path.extend(name.get(&at).cloned());
                at = *up;
            }
            if path.last().is_some_and(|top| !matches!(top.as_str(), "(idle)" | "(program)")) {
                let leaf = path
                    .into_iter()
                    .rev()
                    .fold(&mut root, |frame, name| frame.calls.entry(name).or_default());
                leaf.own_ms += ms;
            }
        }
        Ok(root)
    }

    /// Adds time in the last of these functions, each of which called the next.
    pub fn add<'a>(&mut self, calls: impl Iterator<Item = &'a str>, ms: f64) {
        let leaf = calls.fold(self, |frame, name| frame.calls.entry(short(name)).or_default());
        leaf.own_ms += ms;
    }

    /// The subtree below the first call of a function with this suffix; the whole tree if there is none.
    pub fn below(self, end: &str) -> Self {
        let mut row = vec![&self];
        while !row.is_empty() {
            let found = row.iter().find_map(|frame| frame.calls.iter().find(|(name, _)| name.ends_with(end)));
            if let Some((name, _)) = found {
                let name = name.clone();
                let mut all = Self::default();
                self.gather(&name, &mut all);
                return all;
            }
            row = row.into_iter().flat_map(|frame| frame.calls.values()).collect();
        }
        self
    }

    /// Merges the callees of all positions of a function.
    fn gather(self, name: &str, into: &mut Self) {
        for (called, frame) in self.calls {
            if called == name {
                into.merge(frame);
            } else {
                frame.gather(name, into);
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.own_ms += other.own_ms;
        for (name, frame) in other.calls {
            self.calls.entry(name).or_default().merge(frame);
        }
    }

    /// Writes the flame graph, and prints the most expensive functions.
    pub fn show(&self, path: &str, title: &str, per: f64) -> Result<()> {
        println!("{title}; by themselves:");
        for (name, ms) in self.top(40) {
            println!("{:8.3} ms  {name}", ms / per);
        }
        std::fs::write(path, self.svg(title, per)).with_context(|| format!("write {path}"))
    }

    /// Time in it and its callees.
    pub fn all_ms(&self) -> f64 {
        self.own_ms + self.calls.values().map(Self::all_ms).sum::<f64>()
    }

    /// The functions with the largest own time, over all positions.
    pub fn top(&self, count: usize) -> Vec<(String, f64)> {
        let mut by_name = BTreeMap::new();
        self.own("", &mut by_name);
        let mut top: Vec<_> = by_name.into_iter().collect();
        top.sort_by(|a, b| b.1.total_cmp(&a.1));
        top.truncate(count);
        top
    }

    fn own(&self, name: &str, into: &mut BTreeMap<String, f64>) {
        *into.entry(name.to_owned()).or_default() += self.own_ms;
        self.calls.iter().for_each(|(name, frame)| frame.own(name, into));
    }

    /// The flame graph with a title; times are divided by `per`.
    pub fn svg(&self, title: &str, per: f64) -> String {
        let scale = WIDTH / self.all_ms().max(f64::MIN_POSITIVE);
        let (mut body, mut deepest) = (String::new(), 0);
        self.draw(0.0, 0, scale, per, &mut body, &mut deepest);
        let height = (deepest as f64 + 2.0).mul_add(ROW, 12.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" \
             font-size=\"10.5\"><rect width=\"100%\" height=\"100%\" fill=\"#fffdf7\"/>\
             <text x=\"6\" y=\"14\">{}</text>\n{body}</svg>\n",
            escaped(title)
        )
    }

    fn draw(&self, left: f64, depth: usize, scale: f64, per: f64, out: &mut String, deepest: &mut usize) {
        let mut left = left;
        for (name, frame) in &self.calls {
            let ms = frame.all_ms();
            let width = ms * scale;
            if width >= NARROWEST {
                *deepest = depth.max(*deepest);
                let top = (depth as f64 + 1.0).mul_add(ROW, 6.0);
                let hue =
                    name.bytes().fold(17_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
                        % 45;
                let words: String =
                    escaped(&name.chars().take((width / LETTER) as usize).collect::<String>());
                let _ = writeln!(
                    out,
                    "<g><title>{} · {:.2} ms</title><rect x=\"{left:.1}\" y=\"{top:.0}\" width=\"{:.1}\" height=\"16\" \
                     fill=\"hsl({},80%,74%)\"/><text x=\"{:.1}\" y=\"{:.0}\">{words}</text></g>",
                    escaped(name),
                    ms / per,
                    width - 0.5,
                    12 + hue,
                    left + 2.0,
                    top + 12.0,
                );
                frame.draw(left, depth + 1, scale, per, out, deepest);
            }
            left += width;
        }
    }
}

/// A function's name without hashes, type arguments, and all but the end of its path.
fn short(name: &str) -> String {
    if name.is_empty() {
        return "(a script)".to_owned();
    }
    // Some names in the page's program are still mangled.
    let name = &rustc_demangle::demangle(name).to_string();
    let mut depth = 0_u32;
    let mut plain = String::new();
    for (at, letter) in name.char_indices() {
        match letter {
            // `<impl …>` and `<T as …>` begin a path and are shortened.
            '<' => depth += 1,
            '>' if !name[..at].ends_with('-') => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    let inner = || {
        let kept: String = name.chars().filter(|letter| !matches!(letter, '<' | '>')).collect();
        kept.split(" as ").next().unwrap_or_default().to_owned()
    };
    let plain = if plain.starts_with("::") {
        format!("{}{plain}", inner().rsplit("::").next().unwrap_or_default())
    } else {
        plain
    };
    let is_hash = |part: &&str| {
        part.len() == 17 && part.starts_with('h') && part[1..].bytes().all(|b| b.is_ascii_hexdigit())
    };
    let parts: Vec<&str> = plain.split("::").filter(|part| !is_hash(part) && !part.is_empty()).collect();
    let from = parts.len().saturating_sub(3);
    parts[from..].join("::")
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
