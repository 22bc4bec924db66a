//! Reads traces of real GPUs as a probe would have sampled them, once a second.

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::GpuSample;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Variable that names the folder of the traces.
const VARIABLE: &str = "NODEGLASS_TRACES";
/// Their default place, next to the checkout.
const SIBLING_FOLDER: &str = "../shared/data/traces";
/// GPUs of a node that replays a trace.
pub const GPUS: usize = 8;
/// A period without any work counts as idle from this many seconds on.
const IDLE_S: usize = 30;

/// The activity of a node's eight GPUs, second by second.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Name of its file, without extensions.
    pub name: String,
    /// Whether they were busy.
    pub busy: bool,
    /// The readings of each GPU for each second.
    pub seconds: Vec<Vec<GpuSample>>,
}

/// All available traces, each divided into its busy and idle periods.
///
/// # Errors
/// If one cannot be read.
pub fn all() -> Result<Vec<Trace>> {
    Ok(whole()?.iter().flat_map(|(name, seconds)| stretches(name, seconds)).collect())
}

/// All available traces by name, as they were recorded: the readings of each GPU for each second.
///
/// # Errors
/// If one cannot be read.
pub fn whole() -> Result<Vec<(String, Vec<Vec<GpuSample>>)>> {
    let Some(folder) = folder() else { return Ok(Vec::new()) };
    let entries = std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.to_string_lossy().ends_with(".csv.gz"));
    files.sort();
    let named = |file: PathBuf| {
        let seconds = read(&file).with_context(|| format!("read the trace {}", file.display()))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy().replace(".csv.gz", "");
        Ok((name, seconds))
    };
    files.into_iter().map(named).collect()
}

fn folder() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(|root| root.join(SIBLING_FOLDER));
    std::env::var_os(VARIABLE).map(PathBuf::from).or(beside).filter(|folder| folder.is_dir())
}

/// The readings of each GPU at each whole second.
fn read(file: &Path) -> Result<Vec<Vec<GpuSample>>> {
    let text = BufReader::new(GzDecoder::new(std::fs::File::open(file)?));
    let mut lines = text.lines().filter(|line| line.as_ref().is_ok_and(|line| !line.starts_with('#')));
    let head = lines.next().context("it is empty")??;
    let column = |name: &str| head.split(',').position(|column| column == name);
    let columns = Columns {
        time: column("t_s").context("it has no time")?,
        gpu: column("gpu").context("it names no GPU")?,
        util: column("util_pct"),
        memory: column("mem_used_mib"),
        temp: column("temp_c"),
        power: column("power_w"),
        sm: column("sm_mhz"),
        mem_clock: column("mem_mhz"),
    };
    let mut seconds: Vec<Vec<GpuSample>> = Vec::new();
    let mut now: Vec<GpuSample> = Vec::new();
    for line in lines {
        let line = line?;
        let cells: Vec<&str> = line.split(',').collect();
        let (second, gpu) = (number(&cells, Some(columns.time)).unwrap_or(0.0) as usize, cells[columns.gpu]);
        // The last reading before a second is its value.
        while seconds.len() < second {
            seconds.push(now.clone());
        }
        let gpu: usize = gpu.parse().context("a GPU has a number")?;
        now.resize(now.len().max(gpu + 1), GpuSample::default());
        now[gpu] = columns.sample(&cells);
    }
    seconds.retain(|gpus| gpus.len() == now.len());
    Ok(seconds)
}

/// Column of each quantity.
struct Columns {
    time: usize,
    gpu: usize,
    util: Option<usize>,
    memory: Option<usize>,
    temp: Option<usize>,
    power: Option<usize>,
    sm: Option<usize>,
    mem_clock: Option<usize>,
}

impl Columns {
    fn sample(&self, cells: &[&str]) -> GpuSample {
        let reading = |column, unit: f64| match number(cells, column) {
            Some(value) => Reading::Value((value * unit).round() as u64),
            None => Reading::Unsupported,
        };
        GpuSample {
            util_pct: reading(self.util, 1.0),
            mem_used_bytes: reading(self.memory, 1_048_576.0),
            temp_c: reading(self.temp, 1.0),
            power_mw: reading(self.power, 1_000.0),
            sm_clock_mhz: reading(self.sm, 1.0),
            mem_clock_mhz: reading(self.mem_clock, 1.0),
            ..GpuSample::default()
        }
    }
}

fn number(cells: &[&str], column: Option<usize>) -> Option<f64> {
    cells.get(column?)?.parse().ok()
}

/// Eight GPUs of one kind of period each; a trace of fewer GPUs is replayed several times with offsets.
fn stretches(name: &str, seconds: &[Vec<GpuSample>]) -> Vec<Trace> {
    let works =
        |gpus: &Vec<GpuSample>| gpus.iter().any(|gpu| gpu.util_pct.value().is_some_and(|util| *util > 0));
    let mut found = [(false, Vec::new()), (true, Vec::new())];
    for stretch in seconds.chunk_by(|before, after| works(before) == works(after)) {
        let idle = !works(&stretch[0]) && stretch.len() >= IDLE_S;
        found[usize::from(!idle)].1.extend_from_slice(stretch);
    }
    let long = found.into_iter().filter(|(_, seconds)| seconds.len() >= IDLE_S);
    long.map(|(busy, seconds)| Trace { name: name.to_owned(), busy, seconds: of_eight(&seconds) }).collect()
}

fn of_eight(seconds: &[Vec<GpuSample>]) -> Vec<Vec<GpuSample>> {
    let sets = GPUS.div_ceil(seconds[0].len());
    let at = |second: usize, set: usize| &seconds[(second + set * seconds.len() / sets) % seconds.len()];
    let node = |second| (0..sets).flat_map(|set| at(second, set).clone()).take(GPUS).collect();
    (0..seconds.len()).map(node).collect()
}
