//! Controls jobs with `scancel` and `scontrol`, and returns SLURM's own error messages.

use super::command::{self, Client, CommandError, Commands, Output, Program};
use async_trait::async_trait;
use nodeglass_protocol::Text;
use nodeglass_protocol::job::{Job, JobState, Parent};
use nodeglass_protocol::request::JobAction;

/// Controls jobs: SLURM, or a scripted cluster.
#[async_trait]
pub trait JobController: Send + Sync + 'static {
    /// Executes an action on a job of the user.
    ///
    /// # Errors
    /// A complete sentence, usually SLURM's own.
    async fn execute(&self, job: &Job, action: JobAction) -> Result<Text, Text>;
}

/// Controls jobs with SLURM's commands.
#[derive(Clone, Debug, Default)]
pub struct SlurmJobControl<C = Commands>(C);

impl<C: Client> SlurmJobControl<C> {
    /// Runs the commands with `client`.
    pub fn new(client: C) -> Self {
        Self(client)
    }
}

#[async_trait]
impl<C: Client + Clone + Sync> JobController for SlurmJobControl<C> {
    async fn execute(&self, job: &Job, action: JobAction) -> Result<Text, Text> {
        if let Some(why) = pointless(job, action) {
            return Err(why);
        }
        let (program, args) = command(job, action);
        match self.0.clone().run(program, &args).await {
            Ok(output) => match complaint(&output) {
                Some(why) => Err(why),
                None => Ok(done(job, action)),
            },
            Err(CommandError::Failed(program, why)) => Err(format!("{program} failed: {why}").into()),
            Err(error) => Err(format!("{error}; it is not known whether the action was executed").into()),
        }
    }
}

/// The command line of an action. Contains numbers only, so that nothing can be mistaken for an option.
fn command(job: &Job, action: JobAction) -> (Program, Vec<String>) {
    let id = job.id.to_string();
    // The pending rest of an array has the id of the whole array, which would include its running tasks.
    let is_rest = matches!(job.part_of, Some(Parent::Array { task: None, .. }));
    let args: Vec<&str> = match action {
        JobAction::Cancel if is_rest => vec!["--state=PENDING", &id],
        JobAction::Cancel => vec![&id],
        JobAction::Hold => vec!["hold", &id],
        JobAction::Release => vec!["release", &id],
        JobAction::Requeue => vec!["requeue", &id],
    };
    let program = if action == JobAction::Cancel { Program::Scancel } else { Program::Scontrol };
    (program, args.into_iter().map(str::to_owned).collect())
}

/// Some failures exit with 0.
fn complaint(output: &Output) -> Option<Text> {
    output.err.contains("error").then(|| command::error_message(&output.err).into())
}

/// SLURM silently accepts a hold or release of a running job, without any effect.
fn pointless(job: &Job, action: JobAction) -> Option<Text> {
    let waits = job.state == JobState::Pending;
    let matters = !matches!(action, JobAction::Hold | JobAction::Release) || waits;
    (!matters).then(|| format!("job {} is not pending: only a pending job can be held", job.label).into())
}

/// The message for an accepted action. Its effect shows in the job list.
fn done(job: &Job, action: JobAction) -> Text {
    let verb = match action {
        JobAction::Cancel => "cancel",
        JobAction::Hold => "hold",
        JobAction::Release => "release",
        JobAction::Requeue => "requeue",
    };
    format!("SLURM accepted the order to {verb} job {}", job.label).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use std::sync::{Arc, Mutex};

    /// Returns the given answer and records what was run.
    #[derive(Clone)]
    struct Script {
        answer: Result<Output, CommandError>,
        ran: Arc<Mutex<Vec<String>>>,
    }

    #[async_trait]
    impl Client for Script {
        async fn run(&mut self, program: Program, args: &[String]) -> Result<Output, CommandError> {
            self.ran.lock().unwrap().push(format!("{program} {}", args.join(" ")));
            self.answer.clone()
        }
    }

    async fn run(
        answer: Result<Output, CommandError>,
        job: &Job,
        action: JobAction,
    ) -> (Result<Text, Text>, String) {
        let script = Script { answer, ran: Arc::default() };
        let outcome = SlurmJobControl::new(script.clone()).execute(job, action).await;
        let ran = script.ran.lock().unwrap().join("; ");
        (outcome, ran)
    }

    fn job() -> Job {
        Job::new(JobId(17), "alice".into(), JobState::Pending)
    }

    #[tokio::test]
    async fn a_job_that_runs_is_neither_held_nor_released() {
        let running = Job { state: JobState::Running, ..job() };
        for action in [JobAction::Hold, JobAction::Release] {
            let (outcome, ran) = run(Ok(Output::default()), &running, action).await;
            assert!(outcome.unwrap_err().as_str().contains("is not pending"));
            assert_eq!(ran, "", "SLURM would accept it");
        }
        assert!(run(Ok(Output::default()), &running, JobAction::Requeue).await.0.is_ok());
    }

    #[tokio::test]
    async fn each_action_is_one_command_with_the_job_id() {
        for (action, command) in [
            (JobAction::Cancel, "scancel 17"),
            (JobAction::Hold, "scontrol hold 17"),
            (JobAction::Release, "scontrol release 17"),
            (JobAction::Requeue, "scontrol requeue 17"),
        ] {
            let (outcome, ran) = run(Ok(Output::default()), &job(), action).await;
            assert!(outcome.is_ok_and(|error| error.as_str().contains("17")), "{action:?}");
            assert_eq!(ran, command);
        }
    }

    #[tokio::test]
    async fn the_waiting_rest_of_an_array_is_cancelled_without_its_running_tasks() {
        let rest = Job { part_of: Some(Parent::Array { job: JobId(17), task: None }), ..job() };
        assert_eq!(
            run(Ok(Output::default()), &rest, JobAction::Cancel).await.1,
            "scancel --state=PENDING 17"
        );
    }

    #[tokio::test]
    async fn slurms_error_message_is_returned_verbatim() {
        let error = CommandError::Failed(Program::Scancel, "error: Access/permission denied".into());
        let (outcome, _) = run(Err(error), &job(), JobAction::Cancel).await;
        assert_eq!(outcome, Err("scancel failed: error: Access/permission denied".into()));
        let output =
            Output { err: "scancel: error: Kill job error on job id 17\n".into(), ..Output::default() };
        let (outcome, _) = run(Ok(output), &job(), JobAction::Cancel).await;
        assert_eq!(outcome, Err("error: Kill job error on job id 17".into()));
        let (outcome, _) =
            run(Err(CommandError::TimedOut(Program::Scancel, 10)), &job(), JobAction::Cancel).await;
        assert!(outcome.unwrap_err().as_str().contains("not known whether"));
    }
}
