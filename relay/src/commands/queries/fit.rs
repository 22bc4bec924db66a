//! `relay fit`: where SLURM would start a job with a given number of GPUs, with the line for sbatch.
//!
//! Free GPUs by node come from `scontrol show node`; when a job would really start, with its priority, reservations and
//! limits, only SLURM knows: `sbatch --test-only` is asked, which submits nothing.

use super::{Answer, clock, exit_code, table};
use nodeglass_config::{FitArgs, GpuDemand};
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::Text;
use nodeglass_slurm::command::{Client, CommandError, Commands, Program};
use nodeglass_slurm::nodes::{self, AvailableGpus};
use serde::Serialize;
use std::collections::BTreeMap;

/// Maximum number of placements that SLURM is asked about.
const MAX_QUESTIONS: usize = 4;

/// Distance of a start, in s, from which SLURM does not expect it: for jobs without a time limit it assumes an end
/// that is years away.
const NO_USEFUL_TIME_S: u64 = 366 * 86_400;

/// A way to place the GPUs in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Placement {
    /// The partition.
    pub(super) partition: String,
    /// Type of the GPUs; empty if the site gives none.
    kind: String,
    /// Number of nodes.
    pub(super) nodes: u32,
    /// GPUs of each.
    pub(super) gpus_per_node: u32,
    /// Whether they are free at this moment.
    pub(super) fits_now: bool,
    /// GPUs that are free in the partition; `None` if SLURM does not state it of all.
    pub(super) free: Option<u32>,
    /// All GPUs of the partition.
    total: u32,
    /// The start by SLURM.
    #[serde(flatten)]
    start: Start,
    /// The line for sbatch.
    pub(super) sbatch: String,
}

/// SLURM's statement about the start of a placement. The variants are in the order of the output.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "start", rename_all = "snake_case")]
enum Start {
    /// It would start.
    At {
        /// When, in s since 1970.
        starts_at_s: u64,
    },
    /// It would start, at a time that SLURM does not state.
    Accepted,
    /// It would start after jobs without a time limit, whose end nobody knows.
    Unlimited,
    /// SLURM was not asked: others are better, and it is asked about few.
    NotAsked,
    /// It would not start.
    Refused {
        /// The reason.
        refused: String,
    },
}

impl Start {
    fn is_known(&self) -> bool {
        matches!(self, Self::At { .. } | Self::Accepted | Self::Unlimited)
    }
}

/// Queries SLURM and returns the answer.
///
/// # Errors
/// SLURM does not respond.
pub async fn answer(args: FitArgs, cluster: Option<String>, partitions: &[String]) -> anyhow::Result<Answer> {
    let mut commands = Commands::new().for_cluster(cluster);
    let out = commands.run(Program::Scontrol, &nodes::args()).await.map_err(unanswered)?.out;
    let mut placements = placements(&nodes::gpus_by_node(&out), &args.gpus, partitions);
    let now_s = Clock::wall_ms() / 1_000;
    for placement in placements.iter_mut().take(MAX_QUESTIONS) {
        placement.start = match commands.run(Program::Sbatch, &test_args(placement)).await {
            Ok(output) => {
                start_of(start(&output.err).or_else(|| start(&String::from_utf8_lossy(&output.out))), now_s)
            }
            Err(CommandError::Failed(_, why)) => Start::Refused { refused: refusal(&why) },
            Err(error) => return Err(unanswered(error)),
        }
    }
    // What starts first comes first; what SLURM refuses last.
    placements.sort_by_key(|placement| (placement.start.clone(), !placement.fits_now));
    let code = code(&placements);
    if args.json {
        return Ok(Answer { code, ..Answer::json(&placements)? });
    }
    Ok(text(&placements, &args.gpus, now_s, code))
}

/// Interprets a stated start.
fn start_of(stated_s: Option<u64>, now_s: u64) -> Start {
    match stated_s {
        Some(starts_at_s) if starts_at_s.saturating_sub(now_s) >= NO_USEFUL_TIME_S => Start::Unlimited,
        Some(starts_at_s) => Start::At { starts_at_s },
        None => Start::Accepted,
    }
}

/// 0 only if SLURM would start one.
fn code(placements: &[Placement]) -> u8 {
    match placements.iter().any(|placement| placement.start.is_known()) {
        true => 0,
        false => exit_code::NOT_MET,
    }
}

fn unanswered(error: CommandError) -> anyhow::Error {
    anyhow::anyhow!("SLURM does not say where a job would start: {error}; `relay doctor` says what to do")
}

/// Returns the placements of the GPUs, one per partition and type, those that fit now first.
pub(super) fn placements(all: &[AvailableGpus], demand: &GpuDemand, partitions: &[String]) -> Vec<Placement> {
    let mut by_place: BTreeMap<(&str, &str), Vec<&AvailableGpus>> = BTreeMap::new();
    for gpus in all.iter().filter(|gpus| demand.kind.as_ref().is_none_or(|kind| *kind == gpus.kind)) {
        for name in gpus.partitions.iter().filter(|name| partitions.is_empty() || partitions.contains(name)) {
            by_place.entry((name, &gpus.kind)).or_default().push(gpus);
        }
    }
    let place = |((partition, kind), nodes): ((&str, &str), Vec<&AvailableGpus>)| {
        let free = nodes.iter().try_fold(0_u32, |sum, gpus| Some(sum.saturating_add(gpus.free?)));
        let total = nodes.iter().fold(0_u32, |sum, gpus| sum.saturating_add(gpus.total));
        let now = split(demand.count, nodes.iter().filter_map(|gpus| gpus.free));
        let (count, gpus_per_node) =
            now.or_else(|| split(demand.count, nodes.iter().map(|gpus| gpus.total)))?;
        let colon = if kind.is_empty() { "" } else { ":" };
        Some(Placement {
            sbatch: format!(
                "sbatch --partition={partition} --nodes={count} --gpus-per-node={kind}{colon}{gpus_per_node}"
            ),
            partition: partition.to_owned(),
            kind: kind.to_owned(),
            nodes: count,
            gpus_per_node,
            fits_now: now.is_some(),
            free,
            total,
            start: Start::NotAsked,
        })
    };
    let mut placements: Vec<_> = by_place.into_iter().filter_map(place).collect();
    placements.sort_by_key(|placement| (!placement.fits_now, placement.nodes));
    placements
}

/// The smallest number of nodes with equally many GPUs each, and how many; `None` if there are too few.
fn split(count: u32, by_node: impl Iterator<Item = u32> + Clone) -> Option<(u32, u32)> {
    let divisors = (1..=count).filter(|nodes| count.is_multiple_of(*nodes));
    divisors
        .map(|nodes| (nodes, count / nodes))
        .find(|(nodes, each)| by_node.clone().filter(|free| free >= each).count() as u64 >= u64::from(*nodes))
}

fn test_args(placement: &Placement) -> Vec<String> {
    let options = placement.sbatch.split(' ').skip(1).map(str::to_owned);
    options.chain(["--test-only", "--wrap=true"].map(str::to_owned)).collect()
}

/// The start that `sbatch --test-only` states, in s since 1970: `sbatch: Job 24 to start at 1795586845 using …`.
fn start(text: &str) -> Option<u64> {
    let after = text.split(" to start at ").nth(1)?;
    let word = after.split_whitespace().next()?;
    word.parse().ok().or_else(|| {
        let at = humantime::parse_rfc3339_weak(word).ok()?;
        at.duration_since(std::time::UNIX_EPOCH).ok().map(|since| since.as_secs())
    })
}

/// SLURM's reason without the name of its program.
fn refusal(why: &str) -> String {
    let line = why.lines().find(|line| !line.trim().is_empty()).unwrap_or(why);
    let line = line.trim().trim_start_matches("sbatch: ").trim_start_matches("error: ");
    Text::new(line.trim_start_matches("allocation failure: ")).to_string()
}

fn text(placements: &[Placement], demand: &GpuDemand, now_s: u64, code: u8) -> Answer {
    let kind = demand.kind.as_ref().map_or(String::new(), |kind| format!(" of type {kind}"));
    if placements.is_empty() {
        return Answer::not_met(format!("no partition has {} GPUs{kind} for one job", demand.count));
    }
    let row = |placement: &Placement| {
        let start = match &placement.start {
            Start::At { starts_at_s } => match starts_at_s.saturating_sub(now_s) {
                0..=60 => "now".to_owned(),
                in_s => format!("in {}", clock(in_s)),
            },
            Start::Accepted => "accepted, time not stated".to_owned(),
            Start::Unlimited => "no useful time: jobs without a time limit run there".to_owned(),
            Start::NotAsked => "SLURM was not asked; try --partition".to_owned(),
            Start::Refused { refused } => refused.clone(),
        };
        vec![
            placement.partition.clone(),
            placement.kind.clone(),
            format!(
                "{}/{}",
                placement.free.map_or_else(|| "?".to_owned(), |free| free.to_string()),
                placement.total
            ),
            format!("{} × {}", placement.nodes, placement.gpus_per_node),
            start,
        ]
    };
    let header = ["PARTITION", "TYPE", "FREE", "NODES × GPUS", "STARTS"];
    let mut out = table(&header, placements.iter().map(row).collect(), 2);
    if let Some(best) = placements.iter().find(|placement| placement.start.is_known()) {
        out += &format!("\n{}\n", best.sbatch);
    }
    Answer { text: out, notice: None, code }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(node: &str, partitions: &[&str], kind: &str, (free, total): (u32, u32)) -> AvailableGpus {
        let partitions = partitions.iter().map(|name| (*name).to_owned()).collect();
        AvailableGpus { node: node.to_owned(), partitions, kind: kind.to_owned(), total, free: Some(free) }
    }

    fn demand(text: &str) -> GpuDemand {
        text.parse().unwrap()
    }

    #[test]
    fn gpus_are_placed_on_few_nodes_with_equally_many_each() {
        assert_eq!(split(8, [8, 8].into_iter()), Some((1, 8)));
        assert_eq!(split(8, [7, 4, 4].into_iter()), Some((2, 4)));
        assert_eq!(split(6, [3, 2, 2, 2].into_iter()), Some((3, 2)));
        assert_eq!(split(8, [3, 3, 1].into_iter()), None);
        assert_eq!(split(7, [1; 7].into_iter()), Some((7, 1)));
    }

    #[test]
    fn each_partition_and_type_has_a_placement_and_its_line() {
        let all = [
            gpus("a1", &["a100", "debug"], "a100", (2, 4)),
            gpus("a2", &["a100"], "a100", (4, 4)),
            gpus("h1", &["h100"], "h100", (0, 8)),
            gpus("x1", &["old"], "", (1, 1)),
        ];
        let four = placements(&all, &demand("4"), &[]);
        let lines: Vec<_> =
            four.iter().map(|placement| (placement.fits_now, placement.sbatch.as_str())).collect();
        assert_eq!(
            lines,
            [
                (true, "sbatch --partition=a100 --nodes=1 --gpus-per-node=a100:4"),
                (false, "sbatch --partition=debug --nodes=1 --gpus-per-node=a100:4"),
                (false, "sbatch --partition=h100 --nodes=1 --gpus-per-node=h100:4"),
            ]
        );
        assert_eq!(
            placements(&all, &demand("1"), &["old".to_owned()])[0].sbatch,
            "sbatch --partition=old --nodes=1 --gpus-per-node=1"
        );
        assert!(placements(&all, &demand("2:v100"), &[]).is_empty());
        assert_eq!(text(&[], &demand("2:v100"), 0, 0).code, exit_code::NOT_MET);
    }

    #[test]
    fn the_start_and_the_reason_are_those_of_slurm() {
        assert_eq!(
            start("sbatch: Job 24 to start at 1795586845 using 1 processors on nodes n1 in partition gpu"),
            Some(1_795_586_845)
        );
        assert_eq!(
            start("sbatch: Job 24 to start at 2026-11-25T06:07:25 using 1 processors"),
            Some(1_795_586_845)
        );
        assert_eq!(start("allocation failure"), None);
        // The year 2154.
        assert_eq!(start_of(Some(5_806_000_000), 1_795_586_845), Start::Unlimited);
        assert_eq!(start_of(Some(1_795_590_000), 1_795_586_845), Start::At { starts_at_s: 1_795_590_000 });
        let why = "sbatch: error: allocation failure: Requested node configuration is not available";
        assert_eq!(refusal(why), "Requested node configuration is not available");
        let mut placement = placements(&[gpus("n", &["gpu"], "", (2, 2))], &demand("2"), &[]).remove(0);
        let shown =
            |placement: &Placement| text(std::slice::from_ref(placement), &demand("2"), 1_000, 0).text;
        placement.start = Start::At { starts_at_s: 1_010 };
        assert!(shown(&placement).contains("now"));
        placement.start = Start::At { starts_at_s: 4_723 };
        assert!(shown(&placement).contains("in 1:02:03"), "{}", shown(&placement));
        placement.start = Start::Unlimited;
        assert!(shown(&placement).contains("no useful time") && !shown(&placement).contains(" in "));
        placement.start = Start::At { starts_at_s: 4_723 };
        let json = serde_json::to_value(&placement).unwrap();
        assert_eq!((&json["start"], &json["starts_at_s"]), (&"at".into(), &4_723.into()));
    }

    #[test]
    fn what_slurm_was_not_asked_about_is_not_startable() {
        let all: Vec<_> = ["a", "b"].map(|name| gpus(name, &[name], "", (2, 2))).into();
        let mut two = placements(&all, &demand("2"), &[]);
        two[0].start = Start::Refused { refused: "Invalid account".to_owned() };
        assert_eq!((&two[1].start, code(&two)), (&Start::NotAsked, exit_code::NOT_MET));
        let shown = text(&two, &demand("2"), 1_000, code(&two)).text;
        assert!(shown.contains("Invalid account") && !shown.contains("sbatch"), "{shown}");
        two[1].start = Start::Accepted;
        assert_eq!(code(&two), 0);
    }

    #[test]
    fn unknown_free_gpus_are_neither_free_nor_zero() {
        let unknown = AvailableGpus { free: None, ..gpus("n", &["gpu"], "", (0, 4)) };
        let found = placements(&[unknown], &demand("2"), &[]);
        assert_eq!((found[0].fits_now, found[0].free), (false, None));
        let shown = text(&found, &demand("2"), 1_000, 0).text;
        assert!(shown.contains("?/4"), "{shown}");
    }
}
