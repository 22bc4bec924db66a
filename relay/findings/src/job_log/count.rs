//! Parses progress from one line of a log: the formats of frameworks, and of tools that draw bars.

use super::duration::{self, DURATION};
use nodeglass_redact::mask;
use regex::{Captures, Regex, RegexSet};
use std::ops::Range;
use std::sync::LazyLock;

/// Maximum length of a line that is searched, in bytes.
const MAX_LINE: usize = 2_000;
/// Maximum length of a counter's name, in chars.
const MAX_LABEL: usize = 32;
/// Larger totals are not believed.
const MAX_TOTAL: f64 = 1e15;

/// The progress that a line states.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Count {
    /// Its format: percentages of a build and of the program after it are two counters.
    pub(super) format: Option<usize>,
    /// Unit of the counter, masked: `step`; empty for a bar without a name.
    pub(super) label: String,
    /// Number of units that are done; `None` if the line states an estimate alone, or only the number of an epoch.
    pub(super) done: Option<f64>,
    /// Total number of units.
    pub(super) total: Option<f64>,
    /// Whether it counts only after it has grown: `[3/8] ` may also be a rank.
    pub(super) is_weak: bool,
    /// Whether the bar is a part of what its label counts: `Fold 2/5:  45%|`.
    pub(super) is_part: bool,
    /// The epoch in which they are counted.
    pub(super) epoch: Option<Epoch>,
    /// Whether the line names an epoch and nothing else: what follows is within it.
    pub(super) is_header: bool,
    /// The number of steps of the whole run, which a line states once: `total steps 1000`.
    pub(super) run_steps: Option<f64>,
    /// The program's own estimate of when it will be done.
    pub(super) left: Option<Left>,
}

/// The number of an epoch, and of how many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Epoch {
    pub(super) number: f64,
    pub(super) total: Option<f64>,
}

/// A program's own estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Left {
    /// Seconds until the counter of the line is complete.
    Counter(f64),
    /// Seconds until the program is done.
    Program(f64),
    /// When the program will be done, in s since 1970 of the local clock.
    Until(i64),
}

/// A number: `1200`, `1,100`, `1_000`, `0.5`.
const NUMBER: &str = r"[0-9]+(?:[,_][0-9]{3})*(?:\.[0-9]+)?";
/// Prefixes that launchers write before each line: `3: ` (srun), `[rank0]: `, `[default0]:`, `(Worker pid=12) `
/// (Ray).
const RANK: &str = r"^(?:\[(?:rank|default|node|[0-9]+,)\s?[0-9]+\](?:<std(?:out|err)>)?:?\s?|[0-9]+: |\([^)]*pid=[^)]*\)\s)*";

/// Formats from specific to general; the first that matches a line applies. Each is a label and an expression. Groups:
/// `done` and `total` with an optional `done_scale` and `total_scale`, or `pct`; `label` overrides the label; `epoch` and
/// `epochs`, of how many; `weak`, empty, where the count must grow to be believed; the remaining time as `left` or
/// `left2` (of the counter), `eta` (of the program), or `until` (a date); `rest`, what is not done; `last_epoch`, empty,
/// where epochs count from zero to the one behind the slash. A format without `done` and `pct` excludes its lines.
const FORMATS: &[(&str, &str)] = &[
    // Evaluations between epochs are not the program's progress; WeNet's batches are `EPOCH/BATCH`.
    ("", r"\b(?:Epoch|Iter)\((?:val|test)\)|\b(?:TRAIN|CV) Batch [0-9]"),
    // Downloads by tqdm; pip, AWS and containers; rsync and scp; wget; curl; Git.
    (
        "download",
        r"%\s?\|[^|]*\|\s*(?P<done>S)(?P<done_scale>[kKMGT]?)i?B?/(?P<total>S)(?P<total_scale>[kKMGT]?)i?B?\s*\[[^<\]]*<(?:(?P<left>D))?[^,\]]*,\s*[0-9.?]+\s?[kKMGT]?i?B/s",
    ),
    (
        "download",
        r"(?P<done>S)\s?(?:(?P<done_scale>[kKMGT]?)i?B\s?)?/\s?~?(?P<total>S)\s?(?P<total_scale>[kKMGT]?)i?B\s*(?:\[[^\]]*\]\s*[0-9]{1,3}\s?%\s*)?(?:[(|•·,]|at\s)?\s*[0-9.]+\s?[kKMGT]?i?B/s",
    ),
    ("download", r"\b(?P<pct>[0-9]{1,3})%\s+(?:[0-9.]+[kKMGT]?B\s+)?[0-9.]+\s?[kKMGT]?i?B/s\s+(?P<left>C)"),
    ("download", r"\b(?P<pct>[0-9]{1,3})%\[[=>+<\s]*\]"),
    ("download", r"^\s*[0-9]+K[\s.,]{10,}\s(?P<pct>[0-9]{1,3})%\s+[0-9.]+[KMG]?\s+(?P<left>D)$"),
    ("download", r"^\s*(?P<pct>[0-9]{1,3})(?:\s+[0-9.]+[kKMGTP]?){7}(?:\s+[0-9:-]+){2}\s+(?P<left>C)\s"),
    (
        "download",
        r"\b(?:Receiving|Counting|Compressing) objects:\s+[0-9]+% \((?P<done>N)/(?P<total>N)\)|\b(?:Resolving deltas|Updating files|Filtering content):\s+(?P<pct>[0-9]{1,3})% \(",
    ),
    // tqdm; torchtune, YOLO, Lightning, vLLM and others by their labels.
    (
        "",
        r"^(?P<label>.*?)\s*[0-9]{1,3}(?:\.[0-9]+)?%\s?(?:Completed )?\|(?:[^|]*\|)?\s*(?P<done>N)(?P<done_scale>[kKMGT]?)i?B?/(?P<total>N)(?P<total_scale>[kKMGT]?)i?B?\s*\[(?:[^<\]]*<(?P<left>D))?",
    ),
    ("", r"^\s*(?P<done>N)/(?P<total>N)\s\[[0-9:]+<(?P<left>D),"),
    // Julia's ProgressMeter.
    ("", r"^(?P<label>.*?)\s*(?P<pct>[0-9]{1,3})%\s?\|[^|]*\|\s+ETA:\s+(?P<left>D)"),
    // alive-progress, progressbar2.
    (
        "",
        r"^(?P<label>[^|]*?)\s*\|[^|]*\|\s*(?P<done>N)/(?P<total>N)\s\[[0-9]{1,3}%\](?:.*\beta: (?P<left>D))?",
    ),
    ("", r"\((?P<done>N) of (?P<total>N)\)\s*\|[^|]*\|(?:.*\bETA:\s+(?P<left>D))?"),
    // Keras 2 and 3: within the epoch of the line before.
    ("batch", r"^\s*(?P<done>N)/(?P<total>N)\s+\[[=>.]{10,}\](?: - ETA: (?P<left>D))?"),
    ("batch", r"^\s*(?P<done>N)/(?P<total>N)\s+━{10,}\s+(?P<left>D)\s"),
    // Lightning with rich.
    (
        "",
        r"^(?P<label>Epoch [0-9]+/[0-9]+)\s+[━╸╺─]{4,}\s+(?P<done>N)/(?P<total>N)\s+[0-9:]+\s•\s(?P<left>C)(?P<last_epoch>)",
    ),
    // rich, and what is made with it: with counts, with a percentage alone.
    (
        "",
        r"^(?P<label>[^━]*?)\s*(?:[0-9]{1,3}%)?\s*[━╸╺─]{4,}\s+(?:[0-9]{1,3}%\s+)?(?P<done>N)/(?P<total>N)(?:\s+[0-9:]+\s[•·]?\s?(?P<left>C)|\s[^<]*<\s?(?P<left2>D))?",
    ),
    ("%", r"[━╸╺]{4,}\s+(?P<pct>[0-9]{1,3}(?:\.[0-9]+)?)%"),
    // torchvision: the time that is left in the epoch; mmcv, ImageNet examples: in the training.
    ("", r"Epoch:\s*\[(?P<epoch>[0-9]+)\]\s+\[\s*(?P<done>N)/(?P<total>N)\]\s+eta:\s*(?P<left>D)"),
    ("", r"Epoch:?\s?(?:\(train\))?\s*\[(?P<epoch>[0-9]+)\]\s*\[\s*(?P<done>N)/(?P<total>N)\]"),
    ("iter", r"Iter\(train\)\s*\[\s*(?P<done>N)/(?P<total>N)\]"),
    // Swin; MetricLogger of any name.
    (
        "",
        r"\[(?P<epoch>[0-9]+)/(?P<epochs>[0-9]+)\]\s*\[\s*(?P<done>N)/(?P<total>N)\](?:\s+eta:?\s+(?P<left>D))?",
    ),
    ("", r"^(?P<label>.*[A-Za-z]):?\s+\[\s*(?P<done>N)/(?P<total>N)\]\s+eta:\s*(?P<left>D)"),
    // NeMo, PaddleSeg: the iterations of the run, although the line names an epoch.
    ("iteration", r"\bTraining epoch [0-9]+, iteration (?P<done>N)/(?P<total>N)"),
    ("iter", r"\[TRAIN\] epoch: [0-9]+, iter: (?P<done>N)/(?P<total>N)(?:.*\bETA (?P<left>C))?"),
    // VITS; timm, OpenCLIP, and the examples of PyTorch.
    ("%", r"\bEpoch:?\s*(?P<epoch>[0-9]+):?\s*[\[(]\s*(?P<pct>[0-9]{1,3})%[\])]"),
    ("", r"\bTrain(?: Epoch)?:\s*(?P<epoch>[0-9]+)\s*\[\s*(?P<done>N)/(?P<total>N)\s*\("),
    // fairseq.
    ("", r"\bepoch\s+(?P<epoch>[0-9]+):\s+(?P<done>N)\s*/\s*(?P<total>N)\b"),
    // GROMACS, NAMD, AMBER, OpenMM.
    (
        "step",
        r"^step\s+(?P<done>N),? (?:will finish (?P<until>[A-Z][a-z]{2} [A-Z][a-z]{2} +[0-9]+ [0-9:]+ [0-9]{4})|remaining wall clock time:\s+(?P<eta>[0-9.]+ s))",
    ),
    ("step", r"^TIMING:\s+(?P<done>N)\s.*?(?P<eta>[0-9.]+ hours) remaining"),
    ("step", r"Total steps\s*:\s*(?P<total>N)\s*\|\s*Completed\s*:\s*(?P<done>N)"),
    ("%", r"^(?P<pct>[0-9]+\.[0-9]+)%(?:,|\s+)[0-9]+(?:,|\s+)-?[0-9.]+(?:.*[,\s](?P<eta>C)$)?"),
    // CatBoost, joblib, nerfstudio.
    ("iteration", r"^(?P<done>[0-9]+):\s+learn:.*\bremaining:\s+(?P<eta>D)"),
    ("task", r"\[Parallel\([^)]*\)\]: Done\s+(?P<done>N) out of\s+(?P<total>N).*\bremaining:\s+(?P<eta>D)"),
    ("%", r"^[0-9]+ \((?P<pct>[0-9.]+)%\)\s+[0-9.]+ ms\s+(?P<eta>D)"),
    // CLU of Flax; Fluent; ESPnet; ORCA; Spark; rclone.
    (
        "step",
        r"(?:\bsteps/s, |(?i:\bprogress)\W{1,3})[0-9.]+% \((?P<done>N)/(?P<total>N)\)(?:, ETA: (?P<left>D))?",
    ),
    ("iteration", r"^\s*(?P<done>[0-9]+)(?:\s+-?[0-9.]+e[+-][0-9]+){3,}\s+(?P<eta>C)\s+(?P<rest>[0-9]+)$"),
    ("epoch", r"\b(?P<done>[0-9]+)/(?P<total>[0-9]+)epoch started\. Estimated time to finish: (?P<eta>D)"),
    ("", r"\bdisplaced (?P<label>[a-z]{3,})\s+(?P<done>N) \(of\s+(?P<total>N)\)"),
    ("task", r"\[Stage [0-9]+:[=>\s]*\((?P<done>N) \+ [0-9]+\) / (?P<total>N)\]"),
    ("%", r"Transferred:\s+[0-9.]+ \S+ / [0-9.]+ \S+, (?P<pct>[0-9]+)%.*\bETA (?P<left>D)"),
    // GNU parallel with --eta and --bar; PIConGPU.
    ("task", r"^ETA: (?P<eta>[0-9]+\s?s) Left: (?P<rest>[0-9]+) AVG: \S+\s+\S+?:[0-9]+/(?P<done>[0-9]+)/"),
    ("task", r"^\s*[0-9]{1,3}% (?P<done>[0-9]+):(?P<rest>[0-9]+)=(?P<eta>[0-9]+s)"),
    ("%", r"^\s*(?P<pct>[0-9]{1,3}) % =\s+[0-9]+ \| time elapsed:"),
    // StyleGAN.
    ("kimg", r"^tick\s+[0-9]+\s+kimg\s+(?P<done>N)\s"),
    // SpeechBrain: the epoch of the bar that follows.
    ("", r"Going into epoch (?P<epoch>[0-9]+)$"),
    // Snakemake, Nextflow, CMake, Ninja.
    ("step", r"^(?P<done>N) of (?P<total>N) steps \([0-9.]+%\) done"),
    ("task", r"\[\s*[0-9]{1,3}%\] (?P<done>N) of (?P<total>N)"),
    ("%", r"^\[\s*(?P<pct>[0-9]{1,3})%\] (?:Building|Linking|Built|Generating)\b"),
    ("target", r"^\[(?P<done>N)/(?P<total>N)\] (?:Building|Linking|Compiling|Generating|Copying|Running)\b"),
    // Other builds, quantization of llama.cpp; pytest.
    ("item", r"^\[\s*(?P<done>N)\s?/\s?(?P<total>N)\]\s(?P<weak>)"),
    ("%", r"^\S+(?:::\S+)? (?:[.FEsxX]+|[A-Z]+) *\[ {0,2}(?P<pct>[0-9]{1,3})%\]$"),
    // Bars of blocks; click; R's text bars.
    (
        "",
        r"^(?P<label>[^█▓▒░■□\[|]*?)[\[|\s]*[█▉▊▋▌▍▎▏▓▒░■□]{3,}[\s\-·.]*[\]|]?\s+(?P<done>N)\s?/\s?(?P<total>N)(?:\s|$)",
    ),
    ("%", r"[█▉▊▋▌▍▎▏▓▒░■□]{3,}[\s\-·.]*[\]|]?\s+(?P<pct>[0-9]{1,3}(?:\.[0-9]+)?)\s?%"),
    ("%", r"\[[#=>\-\s.]{5,}\]\s+(?P<pct>[0-9]{1,3}(?:\.[0-9]+)?)%(?:\s+(?P<left>C))?"),
    ("%", r"^\s*\|[=\s-]{10,}\|\s+(?P<pct>[0-9]{1,3})%$"),
    // Sentences.
    ("%", r"(?i)\bprog(?:ress)?\b[^0-9a-z]{0,12}(?P<pct>[0-9]{1,3}(?:\.[0-9]+)?)\s?%"),
    ("%", r"(?i)(?P<pct>[0-9]{1,3}(?:\.[0-9]+)?)\s?% (?:completed?|done|finished|processed)\b"),
    (
        "%",
        r"(?i)\b(?:processed|completed|finished|simulated|trained|basecalling)[\s:>]+(?P<pct>[0-9]{1,3}(?:\.[0-9]+)?)\s?%(?:\s\[[^<\]]*<(?P<left>D))?",
    ),
    (
        "",
        r"(?i)\b(?:processed|completed|finished|trained|done)[\s:]+(?P<done>N)(?P<done_scale>[kM]?)\s*(?:/|of|out of)\s*(?P<total>N)(?P<total_scale>[kM]?)\s+(?P<label>[a-z]{3,})",
    ),
    (
        "",
        r"(?i)\b(?:process(?:ing|ed)|computing)\s+(?P<label>[a-z]+)\s+[#\[(]?(?P<done>N)\s*(?:/|of|out of)\s*(?P<total>N)(?:[\s:,;\])]|\.\s|\.*$)",
    ),
];

/// `Epoch [3/10]`, `step: 1,200/5,000`, `iteration 1200 of 5000`, `step 5k/10k`; `other` follows in dates and other
/// numbers.
static NAMED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(&r#"(?i)(?-u:\b)(?P<work>(?:eval|val|test)[a-z]*[\]\s_:-]{1,3})?(?:(?:max|train|env|current|total|num|opt|learner)_)?(?P<label>epoch|(global[_ ]?)?step|timestep|iter(ation)?|batch|round|episode|update|frame|chunk|generation|sweep|cycle|image|sample|query|event|progress)s?(?-u:\b)["']?\s*[:=#]?\s*["'\[(]?\s*(?P<done>N)(?P<done_scale>[kM]?)\s*(/|of)\s*(?P<total>N)(?P<total_scale>[kM]?)(?P<other>[/\w]|\.[0-9])?"#
    .replace(">N)", ">[0-9]+(?:[,_][0-9]{3})*)"))
    .ok()
});

/// The epoch of a bar by its label: `Epoch 3`, `Train epoch [3/10]`; YOLO's `3/100  7.21G`.
static EPOCH: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?i)(?-u:\b)(?:epoch["']?\s*[:=#]?\s*[\[(]?\s*(?P<epoch>[0-9]+)(?:\s*(?:/|of)\s*(?P<epochs>[0-9]+))?(?P<fraction>\.[0-9])?)|^\s*(?P<epoch2>[0-9]+)/(?P<epochs2>[0-9]+)\s+[0-9.]+G\s"#).ok()
});

/// A step of which the total is not stated: `iter: 2019`.
static STEP: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?i)(?-u:\b)(?:current_)?(?P<label>step|iter|iteration|batch|update)s?(?-u:\b)["'\s:=#\[]{0,4}(?P<done>[0-9]{1,15})"#).ok()
});

/// The time that is left for the whole program, by its name: `eta: 1:12:25`, `remaining time: 2.8 hours`.
static ETA: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let source = r#"(?i)(?-u:\b)(?:eta|(?:time|wall[- ]?time)[_ ](?:left|remaining)|remaining(?:[_ ]time)?|time to (?:finish|complet(?:e|ion)))(?: \([a-z:]+\))?["']?\s*(?P<named>[:=])?\s*["']?(?P<eta>D)"#;
    Regex::new(&expand(source)).ok()
});

/// Time left, before its name: `3.5 hours left`.
static LEFT: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&expand(r"(?i)(?P<eta>D)\s?(?:left|remaining|to go)(?-u:\b)")).ok());

/// Replaces the abbreviations of [`FORMATS`]: `N` a number, `S` a size, `D` a duration, `C` a duration with colons.
fn expand(source: &str) -> String {
    source
        // A Unicode boundary would make the set leave its DFA at the first non-ASCII byte: in every bar.
        .replace(r"\b", r"(?-u:\b)")
        .replace(">N)", &format!(">{NUMBER})"))
        .replace(">S)", r">[0-9]+(?:\.[0-9]+)?)")
        .replace(">D)", &format!(">{DURATION})"))
        .replace(">C)", r">[0-9]+(?::[0-9]{1,2}){1,3})")
}

/// [`FORMATS`], compiled.
struct Formats {
    all: Vec<Regex>,
    /// Matches all of them in one pass.
    set: RegexSet,
}

static COMPILED: LazyLock<Option<Formats>> = LazyLock::new(|| {
    let sources: Vec<String> = FORMATS.iter().map(|(_, source)| expand(source)).collect();
    let all = sources.iter().map(|source| Regex::new(source).ok()).collect::<Option<_>>()?;
    Some(Formats { all, set: RegexSet::new(&sources).ok()? })
});

/// Returns what a line states about progress.
pub(super) fn parse(line: &str) -> Option<Count> {
    if line.len() > MAX_LINE || !line.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Some formats begin with a number and a colon as well.
    let count = match format_of(line).or_else(|| format_of(without_rank(line)?)) {
        Some((at, found)) => of_format(at, &found)?,
        None => {
            let run = RunSteps::of(line);
            let count = named(line).or_else(|| step(line, run.as_ref())).or_else(|| with_estimate(line));
            let in_epoch = |count: &Count| {
                count.total.is_some() && count.epoch.is_some_and(|epoch| epoch.total.is_none())
            };
            let left = eta(line, count.is_some()).map(|left| match left {
                // Presumably of the epoch, because the line does not state how many there are.
                Left::Program(left_s) if count.as_ref().is_some_and(in_epoch) => Left::Counter(left_s),
                left => left,
            });
            let run_steps = run.filter(|run| !run.is_maximum || count.is_some()).map(|run| run.steps);
            let is_known = left.is_some() || run_steps.is_some();
            return Some(Count { left, run_steps, ..count.or(is_known.then(Count::default))? });
        }
    };
    // A bar that is complete states the time that it took.
    let is_complete = count.total.is_some() && count.done == count.total;
    let left = count.left.or_else(|| if is_complete { None } else { eta(line, true) });
    Some(Count { left, ..count })
}

/// The number of a step that a line states, of how many or not: `step 1201 loss 2.09`, `iter 250: loss …`.
pub(super) fn step_number(line: &str) -> Option<u64> {
    STEP.as_ref()?.captures(line)?["done"].parse().ok()
}

/// Returns whether a format is a bar, which programs draw for a part of their work as well as for all of it.
pub(super) fn is_bar(format: usize) -> bool {
    FORMATS.get(format).is_some_and(|(label, source)| {
        matches!(*label, "" | "batch") && (source.contains("?P<left>") || source.contains('█'))
    })
}

/// Returns whether a line states a fraction of an epoch, as programs do that count their steps through all epochs:
/// `{'loss': 1.8231, 'epoch': 0.04}`.
pub(super) fn has_epoch_fraction(line: &str) -> bool {
    let is_fraction = |text: &str| {
        let text = text.trim_start_matches(['\'', '"']);
        let rest = text.trim_start_matches(|char: char| char.is_ascii_digit());
        rest.len() < text.len() && rest.starts_with('.')
    };
    let mut after = ["'epoch': ", "\"epoch\": "].into_iter().filter_map(|key| line.split_once(key));
    after.any(|(_, value)| is_fraction(value))
}

/// The position in [`FORMATS`] of the first that a line matches.
fn format_of(line: &str) -> Option<(usize, Captures<'_>)> {
    let formats = COMPILED.as_ref()?;
    let at = formats.set.matches(line).iter().next()?;
    Some((at, formats.all.get(at)?.captures(line)?))
}

/// The line without what a launcher wrote before it, if it did.
fn without_rank(line: &str) -> Option<&str> {
    static PREFIX: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(RANK).ok());
    let end = PREFIX.as_ref()?.find(line)?.end();
    (end > 0).then(|| &line[end..])
}

fn of_format(at: usize, found: &Captures<'_>) -> Option<Count> {
    let text = |name: &str| found.name(name).map(|text| text.as_str());
    let raw_label = text("label").map(|label| without_rank(label).unwrap_or(label));
    let epoch = match text("epoch") {
        Some(number) => {
            let number = number.parse().ok().filter(|number| *number < MAX_TOTAL)?;
            let total = text("epochs").and_then(|total| total.parse().ok());
            Some(Epoch { number, total: total.filter(|total| (number..MAX_TOTAL).contains(total)) })
        }
        None => raw_label.and_then(epoch_in),
    };
    let is_part = epoch.is_none() && raw_label.is_some_and(ends_with_fraction);
    let epoch = match (epoch, found.name("last_epoch")) {
        (Some(Epoch { number, total: Some(last) }), Some(_)) => {
            Some(Epoch { number: number + 1.0, total: Some(last + 1.0) })
        }
        (epoch, _) => epoch,
    };
    let (done, total) = match text("pct") {
        Some(pct) => (pct.parse().ok()?, Some(100.0)),
        None => {
            let Some(done) = text("done") else {
                return epoch.map(|epoch| Count { epoch: Some(epoch), is_header: true, ..Count::default() });
            };
            let done = scaled(done, text("done_scale").or_else(|| text("total_scale")))?;
            let rest = text("rest").and_then(|rest| Some(done + rest.parse::<f64>().ok()?));
            match text("total") {
                Some(total) => (done, Some(scaled(total, text("total_scale"))?)),
                None => (done, rest),
            }
        }
    };
    if total.is_some_and(|total| total <= 1.0 || done > total || total >= MAX_TOTAL) || done >= MAX_TOTAL {
        return None;
    }
    let label = match raw_label {
        Some(raw) => label_of(raw),
        None => FORMATS.get(at)?.0.to_owned(),
    };
    let is_complete = total.is_some_and(|total| done >= total);
    let counter = text("left").or_else(|| text("left2")).and_then(duration::parse).map(Left::Counter);
    let program = || text("eta").and_then(duration::parse).map(Left::Program);
    let until = || text("until").and_then(duration::parse_date).map(Left::Until);
    // A bar that is complete states the time that it took.
    let left = counter.filter(|_| !is_complete).or_else(program).or_else(until);
    let (format, done, is_weak) = (Some(at), Some(done), found.name("weak").is_some());
    Some(Count { format, label, done, total, is_weak, is_part, epoch, left, ..Count::default() })
}

/// The counts that a line names: a step, within an epoch if it names one as well.
fn named(line: &str) -> Option<Count> {
    let mut count: Option<Count> = None;
    for found in NAMED.as_ref()?.captures_iter(line).filter(|found| found.name("other").is_none()) {
        let text = |name: &str| found.name(name).map(|text| text.as_str());
        let done = scaled(&found["done"], text("done_scale"))?;
        let total = scaled(&found["total"], text("total_scale"))?;
        if total <= 1.0 || done > total || total >= MAX_TOTAL {
            continue;
        }
        let work = text("work").map_or("", |work| work.trim_end_matches([']', ' ', '_', ':', '-']));
        let label = format!("{work} {}", &found["label"]).trim_start().to_lowercase();
        let known = count.get_or_insert_default();
        if label == "epoch" {
            let is_last = found
                .get(0)
                .is_some_and(|whole| line[whole.end()..].trim_matches([' ', ']', ')', ':']).is_empty());
            known.is_header = known.done.is_none() && is_last;
            known.epoch = known.epoch.or(Some(Epoch { number: done, total: Some(total) }));
        } else if known.done.is_none() {
            known.is_header = false;
            (known.label, known.done, known.total) = (label, Some(done), Some(total));
            // The epoch may be named before the count, without a total.
            let before = found.get(0).map_or("", |whole| &line[..whole.start()]);
            known.epoch = known.epoch.or_else(|| epoch_in(before));
        }
    }
    count
}

/// A step of which the line states no total.
fn step(line: &str, run: Option<&RunSteps>) -> Option<Count> {
    let is_other = |found: &Captures<'_>| {
        let start = found.get(0).map_or(0, |whole| whole.start());
        run.is_none_or(|run| !run.range.contains(&start))
    };
    let found = STEP.as_ref()?.captures_iter(line).find(is_other)?;
    let (label, done) = (found["label"].to_lowercase(), found["done"].parse().ok()?);
    Some(Count { label, done: Some(done), ..Count::default() })
}

/// A count of which the line states when it ends, but not what is counted: `[12/400] a.pdb, 3 min left`.
fn with_estimate(line: &str) -> Option<Count> {
    static FRACTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let source = r"(?:^|[\s\[(:=|])(?P<done>N)\s?/\s?(?P<total>N)(?:[\s\]),;:|]|$)";
        Regex::new(&source.replace(">N)", ">[0-9]+(?:[,_][0-9]{3})*)")).ok()
    });
    let found = FRACTION.as_ref()?.captures(line)?;
    eta(line, true)?;
    let (done, total) = (scaled(&found["done"], None)?, scaled(&found["total"], None)?);
    let count = Count { done: Some(done), total: Some(total), ..Count::default() };
    (total > 1.0 && done <= total && total < MAX_TOTAL).then_some(count)
}

/// The number of steps of the whole run, and where a line states it.
struct RunSteps {
    steps: f64,
    range: Range<usize>,
    /// Whether the line calls it the maximum, which may be the maximum of something else: it counts beside a step.
    is_maximum: bool,
}

impl RunSteps {
    /// `Total optimization steps = 3,000`, `total steps 1000`, `50000 steps,  100.0 ps.`, `"max_steps": 5000`,
    /// `Training for 25000 kimg...`
    fn of(line: &str) -> Option<Self> {
        static STEPS: LazyLock<Option<Regex>> = LazyLock::new(|| {
            let source = r#"(?i)(?-u:\b)(?:total|(?P<max>max))[ _](?:(?:optimization|training|train)[ _])?steps["']?\s*[:=]?\s*(?P<a>N)|^(?P<b>N) steps,\s+[0-9.]+ ps|^Training for (?P<c>N) kimg"#;
            Regex::new(&source.replace(">N)", &format!(">{NUMBER})"))).ok()
        });
        let found = STEPS.as_ref()?.captures(line)?;
        let steps = scaled(["a", "b", "c"].iter().find_map(|group| found.name(group))?.as_str(), None)?;
        let known = Self { steps, range: found.get(0)?.range(), is_maximum: found.name("max").is_some() };
        (2.0..MAX_TOTAL).contains(&steps).then_some(known)
    }
}

/// The remaining time that a line states. On a line without a count, it must be named: `eta: 1:12:25`.
fn eta(line: &str, has_count: bool) -> Option<Left> {
    let named = ETA.as_ref()?.captures(line).filter(|found| has_count || found.name("named").is_some());
    // What is before `remaining` may be the time that has elapsed, if another one follows.
    let found = named.or_else(|| LEFT.as_ref().filter(|_| has_count)?.captures(line))?;
    Some(Left::Program(duration::parse(&found["eta"])?))
}

/// Returns whether a label ends with a count of its own: `Episode [1/2]:`.
fn ends_with_fraction(label: &str) -> bool {
    let end = label.trim_end_matches([':', ' ', ']', ')']);
    let Some((before, last)) = end.rsplit_once('/') else { return false };
    !last.is_empty()
        && last.bytes().all(|byte| byte.is_ascii_digit())
        && before.ends_with(|c: char| c.is_ascii_digit())
}

fn epoch_in(label: &str) -> Option<Epoch> {
    let found = EPOCH.as_ref()?.captures(label).filter(|found| found.name("fraction").is_none())?;
    let number = |name: &str, other: &str| {
        found.name(name).or_else(|| found.name(other)).and_then(|text| text.as_str().parse::<f64>().ok())
    };
    let number_below = |name, other| number(name, other).filter(|number| *number < MAX_TOTAL);
    let (number, total) = (number_below("epoch", "epoch2")?, number_below("epochs", "epochs2"));
    Some(Epoch { number, total: total.filter(|total| *total > 1.0 && number <= *total) })
}

/// The name of a bar: its first words, without times, levels and values, which change with every line.
fn label_of(raw: &str) -> String {
    // As a whole: a part of a secret is not recognized.
    let masked = mask::command(raw);
    let is_value = |word: &&str| word.contains(|c: char| c.is_ascii_digit() || c == '|');
    let mut words = Vec::new();
    for word in masked.split_whitespace().skip_while(is_value) {
        if is_value(&word) {
            // `Loss: 0.91` names a value, and not what is counted.
            if word.trim_end_matches(['.', ':']).contains('.') {
                words.pop();
            }
            break;
        }
        words.push(word.trim_matches([':', '[', ']', '(', ')', ',', '-']));
    }
    let label = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    label.chars().take(MAX_LABEL).collect()
}

fn scaled(number: &str, scale: Option<&str>) -> Option<f64> {
    let factor = match scale.unwrap_or_default() {
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => 1.0,
    };
    Some(number.replace([',', '_'], "").parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_compiles() {
        assert!(COMPILED.is_some());
        assert!(NAMED.is_some() && EPOCH.is_some() && STEP.is_some() && ETA.is_some() && LEFT.is_some());
    }

    fn parsed(line: &str) -> Option<(String, f64, f64)> {
        let count = parse(line)?;
        match count.epoch {
            Some(epoch) if count.done.is_none() => Some(("epoch".to_owned(), epoch.number, epoch.total?)),
            _ => Some((count.label, count.done?, count.total?)),
        }
    }

    #[test]
    fn counters_of_frameworks_are_recognized() {
        for (line, label, done, total) in [
            (" 45%|████▌     | 450/1000 [01:23<01:41,  5.43it/s, loss=0.1]", "", 450.0, 1000.0),
            ("Epoch 3:  45%|####5     | 450/1000 [01:23<01:41,  5.43it/s]", "Epoch", 450.0, 1000.0),
            ("Map:  10%|█         | 1.00k/10.0k [00:01<00:09]", "Map", 1000.0, 10000.0),
            (
                " iteration     1200/    5000 | consumed samples: 307200 | loss 2.1",
                "iteration",
                1200.0,
                5000.0,
            ),
            ("Epoch [3/10], Step [100/600], Loss: 0.31", "step", 100.0, 600.0),
            ("step: 1,200/5,000 loss 2.1", "step", 1200.0, 5000.0),
            ("Step 12 of 40", "step", 12.0, 40.0),
            ("step 5/10k loss 1.0", "step", 5.0, 10_000.0),
            ("epoch 3/10.", "epoch", 3.0, 10.0),
            ("Epoch 3/10: loss 0.2", "epoch", 3.0, 10.0),
            ("progress: 45.2 %", "%", 45.2, 100.0),
            ("37% complete", "%", 37.0, 100.0),
        ] {
            assert_eq!(parsed(line), Some((label.to_owned(), done, total)), "{line}");
        }
    }

    #[test]
    fn the_time_that_is_left_is_not_the_elapsed_one() {
        for (line, left_s) in [
            ("step 12/2000 elapsed 120.1s  remaining 1900.2s", Some(1900.2)),
            ("step 12/2000 [2.1 min elapsed, ~3.5 min left]", Some(210.0)),
            ("step 12/2000 elapsed 120.1s", None),
        ] {
            assert_eq!(parse(line).unwrap().left, left_s.map(Left::Program), "{line}");
        }
        assert_eq!(parse("lease renewed, 5 m left"), None);
    }

    #[test]
    fn a_number_without_bounds_is_not_believed() {
        let digits = "9".repeat(400);
        assert_eq!(parse(&format!("total steps {digits}")).and_then(|count| count.run_steps), None);
        assert_eq!(parse(&format!("Epoch: [{digits}] [ 1/20]")), None);
        assert_eq!(parse("total steps 1,000").unwrap().run_steps, Some(1_000.0));
    }

    #[test]
    fn other_fractions_are_none() {
        for line in [
            "GPU 3/8 ready",
            "2026/11/26 10:00",
            "Last update: 01/10/2026 10:00:00",
            "batch 3/12.5 s",
            "step 5/10ms",
            "loss 0.3",
            "step 1200",
            "epoch 12/10",
            "acc 45 %",
            "epoch 1/1",
            "",
        ] {
            assert_eq!(parsed(line), None, "{line}");
        }
    }
}
