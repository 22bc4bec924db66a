//! `relay wait-free --slurm`: waits until SLURM has that many free GPUs in one partition, also on nodes that no relay
//! watches.

use super::Answer;
use super::fit::{self, Placement};
use nodeglass_app::terminal;
use nodeglass_config::WaitFreeArgs;
use nodeglass_slurm::command::Client;
use nodeglass_slurm::command::Program;
use nodeglass_slurm::nodes::{self, AvailableGpus};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Interval of `scontrol show node`, which is two requests to the controller.
const POLL: Duration = Duration::from_secs(60);
/// Number of consecutive failures after which SLURM is no longer waited for.
const MAX_FAILURES: u32 = 5;

/// Waits.
///
/// # Errors
/// A complete sentence for the user: SLURM does not respond, or does not state what is in use.
pub(super) async fn wait(
    slurm: &mut impl Client,
    args: &WaitFreeArgs,
    partitions: &[String],
) -> anyhow::Result<Answer> {
    let end = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut failures = 0;
    let mut has_answered = false;
    loop {
        match slurm.run(Program::Scontrol, &nodes::args()).await {
            Ok(output) => {
                (failures, has_answered) = (0, true);
                if let Some(answer) = answer(&nodes::gpus_by_node(&output.out), args, partitions)? {
                    return Ok(answer);
                }
            }
            Err(error) => {
                failures += 1;
                if !has_answered || failures >= MAX_FAILURES {
                    anyhow::bail!(
                        "SLURM does not say which GPUs are free: {error}; `relay doctor` says what to do"
                    );
                }
                terminal::complain(format_args!("{error}; asking again in {} s", POLL.as_secs()));
            }
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            let late = format!("no partition had {} free for one job in time", demand(args));
            return Answer::not_met(late).into_json_list(args.json);
        }
        sleep(left.map_or(POLL, |left| POLL.min(left))).await;
    }
}

/// Returns the answer, if there is no need to wait.
fn answer(
    all: &[AvailableGpus],
    args: &WaitFreeArgs,
    partitions: &[String],
) -> anyhow::Result<Option<Answer>> {
    let placements = fit::placements(all, &args.gpus, partitions);
    if placements.is_empty() {
        let never = format!("no partition{} has {} for one job", of(partitions), demand(args));
        return Answer::not_met(never).into_json_list(args.json).map(Some);
    }
    let found: Vec<&Placement> = placements.iter().filter(|placement| placement.fits_now).collect();
    if found.is_empty() {
        let is_unknown = placements.iter().all(|placement| placement.free.is_none());
        anyhow::ensure!(
            !is_unknown,
            "SLURM does not state how many GPUs{} are in use (GresUsed of `scontrol --details show node`), so the \
             number of free ones is unknown",
            of(partitions)
        );
        return Ok(None);
    }
    if args.json {
        return Answer::json(&found).map(Some);
    }
    let lines = found.iter().map(|placement| format!("{}\n", placement.sbatch)).collect();
    let place = |placement: &&Placement| {
        format!("{} ({} × {})", placement.partition, placement.nodes, placement.gpus_per_node)
    };
    let places: Vec<String> = found.iter().map(place).collect();
    let notice = format!(
        "{} free now in {}; `relay fit` asks SLURM when a job would start",
        if args.gpus.count == 1 { "1 GPU is".to_owned() } else { format!("{} GPUs are", args.gpus.count) },
        places.join(", ")
    );
    Ok(Some(Answer { text: lines, notice: Some(notice), code: 0 }))
}

fn demand(args: &WaitFreeArgs) -> String {
    let kind = args.gpus.kind.as_ref().map_or_else(String::new, |kind| format!(" of type {kind}"));
    format!("{} GPUs{kind}", args.gpus.count)
}

/// The selected partitions.
fn of(partitions: &[String]) -> String {
    if partitions.is_empty() { String::new() } else { format!(" of {}", partitions.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::super::exit_code;
    use super::*;
    use async_trait::async_trait;
    use nodeglass_slurm::command::{CommandError, Output};
    use std::collections::VecDeque;

    /// Answers with these, then with the last.
    struct Slurm(VecDeque<Result<String, CommandError>>);

    #[async_trait]
    impl Client for Slurm {
        async fn run(&mut self, _: Program, _: &[String]) -> Result<Output, CommandError> {
            let next = if self.0.len() > 1 { self.0.pop_front() } else { self.0.front().cloned() };
            next.unwrap_or_else(|| Ok(String::new()))
                .map(|out| Output { out: out.into_bytes(), err: String::new() })
        }
    }

    /// A node with four GPUs, some of which are in use.
    fn node(name: &str, partition: &str, used: Option<u32>) -> String {
        let used = used.map_or_else(String::new, |used| format!(" GresUsed=gpu:h100:{used}(IDX:N/A)"));
        format!("NodeName={name} Gres=gpu:h100:4{used} State=MIXED Partitions={partition}\n")
    }

    fn failure() -> Result<String, CommandError> {
        Err(CommandError::TimedOut(Program::Scontrol, 10))
    }

    async fn waited(
        answers: impl IntoIterator<Item = Result<String, CommandError>>,
        gpus: &str,
        timeout: Option<u64>,
    ) -> (anyhow::Result<Answer>, u64) {
        let args = WaitFreeArgs {
            gpus: gpus.parse().unwrap(),
            slurm: true,
            free: Default::default(),
            timeout: timeout.map(Duration::from_secs),
            json: false,
        };
        let began = Instant::now();
        let answer = wait(&mut Slurm(answers.into_iter().collect()), &args, &["gpu".to_owned()]).await;
        (answer, began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn gpus_of_nodes_that_nobody_watches_are_waited_for() {
        let busy = node("a", "gpu", Some(2)) + &node("b", "gpu", Some(4)) + &node("c", "other", Some(0));
        let free = node("a", "gpu", Some(2)) + &node("b", "gpu", Some(2));
        let (answer, waited_s) = waited([Ok(busy), failure(), Ok(free)], "4:h100", None).await;
        let answer = answer.unwrap();
        assert_eq!(
            (answer.text.as_str(), answer.code),
            ("sbatch --partition=gpu --nodes=2 --gpus-per-node=h100:2\n", 0)
        );
        assert!(answer.notice.unwrap().starts_with("4 GPUs are free now in gpu (2 × 2)"));
        assert_eq!(waited_s, 120);
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_never_be_free_is_not_waited_for() {
        let nodes = || Ok(node("a", "gpu", Some(4)));
        for gpus in ["8", "2:a100"] {
            let (answer, waited_s) = waited([nodes()], gpus, None).await;
            assert_eq!((answer.unwrap().code, waited_s), (exit_code::NOT_MET, 0));
        }
        let (late, waited_s) = waited([nodes()], "4", Some(90)).await;
        assert_eq!((late.unwrap().code, waited_s), (exit_code::NOT_MET, 90));
    }

    #[tokio::test(start_paused = true)]
    async fn what_slurm_does_not_state_is_a_failure_and_not_a_wait() {
        let (unknown, _) = waited([Ok(node("a", "gpu", None))], "2", None).await;
        assert!(unknown.unwrap_err().to_string().contains("does not state how many GPUs of gpu are in use"));
        let (silent, waited_s) = waited([failure()], "2", None).await;
        assert!(silent.unwrap_err().to_string().contains("did not respond"));
        assert_eq!(waited_s, 0);
        let (lost, waited_s) = waited([Ok(node("a", "gpu", Some(4))), failure()], "2", None).await;
        assert!(lost.is_err());
        assert_eq!(waited_s, 300);
    }
}
