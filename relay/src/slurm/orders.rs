//! An order about a job is one run of `scancel` or `scontrol`, whose own words are the answer.

use super::query::{self, Client, Commands, Printed, Program, QueryError};
use async_trait::async_trait;
use nodeglass_protocol::Text;
use nodeglass_protocol::ask::JobOrder;
use nodeglass_protocol::job::{Job, JobState, Parent};

/// Whoever takes orders about jobs: SLURM, or a script.
#[async_trait]
pub trait JobOrders: Send + Sync + 'static {
    /// Carries out an order about a job of the user's own.
    ///
    /// # Errors
    /// One sentence why not, mostly SLURM's own.
    async fn give(&self, job: &Job, order: JobOrder) -> Result<Text, Text>;
}

/// Gives orders by SLURM's own commands.
#[derive(Clone, Debug, Default)]
pub struct SlurmOrders<C = Commands>(C);

impl<C: Client> SlurmOrders<C> {
    /// Orders that are given through `client`.
    pub fn new(client: C) -> Self {
        Self(client)
    }
}

#[async_trait]
impl<C: Client + Clone + Sync> JobOrders for SlurmOrders<C> {
    async fn give(&self, job: &Job, order: JobOrder) -> Result<Text, Text> {
        if let Some(why) = pointless(job, order) {
            return Err(why);
        }
        let (program, args) = command(job, order);
        match self.0.clone().ask(program, &args).await {
            Ok(printed) => match complaint(&printed) {
                Some(why) => Err(why),
                None => Ok(done(job, order)),
            },
            Err(QueryError::Said(program, why)) => Err(format!("{program} said: {why}").into()),
            Err(error) => Err(format!("{error}; it is not known whether the order was carried out").into()),
        }
    }
}

/// What is run for an order. Numbers only: nothing of it can be taken for an option.
fn command(job: &Job, order: JobOrder) -> (Program, Vec<String>) {
    let id = job.id.to_string();
    // The waiting rest of an array has the number of the whole array, whose tasks that run are not meant.
    let is_rest = matches!(job.part_of, Some(Parent::Array { task: None, .. }));
    let words: Vec<&str> = match order {
        JobOrder::Cancel if is_rest => vec!["--state=PENDING", &id],
        JobOrder::Cancel => vec![&id],
        JobOrder::Hold => vec!["hold", &id],
        JobOrder::Release => vec!["release", &id],
        JobOrder::Requeue => vec!["requeue", &id],
    };
    let program = if order == JobOrder::Cancel { Program::Scancel } else { Program::Scontrol };
    (program, words.into_iter().map(str::to_owned).collect())
}

/// Some refusals exit with 0.
fn complaint(printed: &Printed) -> Option<Text> {
    printed.err.contains("error").then(|| query::sentence(&printed.err).into())
}

/// SLURM takes a hold or release of a job that runs without a word, and nothing comes of it.
fn pointless(job: &Job, order: JobOrder) -> Option<Text> {
    let waits = job.state == JobState::Pending;
    let matters = !matches!(order, JobOrder::Hold | JobOrder::Release) || waits;
    (!matters)
        .then(|| format!("job {} does not wait any more: only a waiting job can be held", job.label).into())
}

/// What is known then: that SLURM took the order. What comes of it is seen in the list.
fn done(job: &Job, order: JobOrder) -> Text {
    let verb = match order {
        JobOrder::Cancel => "cancel",
        JobOrder::Hold => "hold",
        JobOrder::Release => "release",
        JobOrder::Requeue => "requeue",
    };
    format!("SLURM took the order to {verb} job {}", job.label).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use std::sync::{Arc, Mutex};

    /// Answers as it is told, and writes down what was run.
    #[derive(Clone)]
    struct Script {
        answer: Result<Printed, QueryError>,
        ran: Arc<Mutex<Vec<String>>>,
    }

    #[async_trait]
    impl Client for Script {
        async fn ask(&mut self, program: Program, args: &[String]) -> Result<Printed, QueryError> {
            self.ran.lock().unwrap().push(format!("{program} {}", args.join(" ")));
            self.answer.clone()
        }
    }

    async fn give(
        answer: Result<Printed, QueryError>,
        job: &Job,
        order: JobOrder,
    ) -> (Result<Text, Text>, String) {
        let script = Script { answer, ran: Arc::default() };
        let outcome = SlurmOrders::new(script.clone()).give(job, order).await;
        let ran = script.ran.lock().unwrap().join("; ");
        (outcome, ran)
    }

    fn job() -> Job {
        Job::new(JobId(17), "alice".into(), JobState::Pending)
    }

    #[tokio::test]
    async fn a_job_that_runs_is_neither_held_nor_released() {
        let running = Job { state: JobState::Running, ..job() };
        for order in [JobOrder::Hold, JobOrder::Release] {
            let (outcome, ran) = give(Ok(Printed::default()), &running, order).await;
            assert!(outcome.unwrap_err().as_str().contains("does not wait any more"));
            assert_eq!(ran, "", "SLURM would say yes to it");
        }
        assert!(give(Ok(Printed::default()), &running, JobOrder::Requeue).await.0.is_ok());
    }

    #[tokio::test]
    async fn each_order_is_one_command_with_the_number_of_the_job() {
        for (order, command) in [
            (JobOrder::Cancel, "scancel 17"),
            (JobOrder::Hold, "scontrol hold 17"),
            (JobOrder::Release, "scontrol release 17"),
            (JobOrder::Requeue, "scontrol requeue 17"),
        ] {
            let (outcome, ran) = give(Ok(Printed::default()), &job(), order).await;
            assert!(outcome.is_ok_and(|said| said.as_str().contains("17")), "{order:?}");
            assert_eq!(ran, command);
        }
    }

    #[tokio::test]
    async fn the_waiting_rest_of_an_array_is_cancelled_without_its_running_tasks() {
        let rest = Job { part_of: Some(Parent::Array { job: JobId(17), task: None }), ..job() };
        assert_eq!(
            give(Ok(Printed::default()), &rest, JobOrder::Cancel).await.1,
            "scancel --state=PENDING 17"
        );
    }

    #[tokio::test]
    async fn slurms_refusal_is_told_in_its_own_words() {
        let said = QueryError::Said(Program::Scancel, "error: Access/permission denied".into());
        let (outcome, _) = give(Err(said), &job(), JobOrder::Cancel).await;
        assert_eq!(outcome, Err("scancel said: error: Access/permission denied".into()));
        let printed =
            Printed { err: "scancel: error: Kill job error on job id 17\n".into(), ..Printed::default() };
        let (outcome, _) = give(Ok(printed), &job(), JobOrder::Cancel).await;
        assert_eq!(outcome, Err("error: Kill job error on job id 17".into()));
        let (outcome, _) =
            give(Err(QueryError::Silent(Program::Scancel, 10)), &job(), JobOrder::Cancel).await;
        assert!(outcome.unwrap_err().as_str().contains("not known whether"));
    }
}
