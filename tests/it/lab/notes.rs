//! Notes that a job writes on its node, without a network and before any relay runs, reach pages and the database.

use anyhow::{Context, Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::note::{Note, NoteEdit, NoteRequest, NoteSource};
use nodeglass_protocol::picture::Picture;
use nodeglass_protocol::request::{Request, Response};
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_tests::client::Client;
use nodeglass_tests::lab::{LoginRelay, Site};
use rustix::process::Signal;

/// A shell and Python write notes, and each of two ranks one of its own; then the job waits.
const SCRIPT: &str = r#"mkdir -p -m 700 ~/.nodeglass-notes
echo "epoch 1" >> ~/.nodeglass-notes/$SLURM_JOB_ID
python3 -c 'import os
with open(os.path.expanduser("~/.nodeglass-notes/") + os.environ["SLURM_JOB_ID"], "a") as notes:
    print("epoch 2", file=notes)'
srun -n2 bash -c 'echo "ready" >> ~/.nodeglass-notes/$SLURM_JOB_ID.$SLURM_PROCID'
sleep 600"#;

fn texts(picture: &Picture) -> Vec<String> {
    let text = |note: &Note| match note.rank {
        Some(rank) => format!("{} {rank}", note.text),
        None => note.text.to_string(),
    };
    let mut texts: Vec<_> = picture.notes.iter().map(text).collect();
    texts.sort();
    texts
}

async fn client(relay: &LoginRelay, job: JobId) -> Result<Client> {
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    client.subscribe(&[Topic::Overview, Topic::Job(job)]).await?;
    Ok(client)
}

#[tokio::test]
async fn notes_of_a_jobs_script_are_shown_once_also_after_a_restart_of_the_relay() -> Result<()> {
    let Some(site) = Site::up_or_skip(1)? else { return Ok(()) };
    let job = site.lab.sbatch("alice", &["-n2", "--gres=gpu:2"], SCRIPT)?;
    site.lab.wait_until(job, "RUNNING")?;
    let topic = Topic::Job(job);
    let relay = site.relay("alice")?;
    let mut page = client(&relay, job).await?;
    let written = ["epoch 1", "epoch 2", "ready 0", "ready 1"];
    page.until(&topic, "the notes of the script", |known| texts(&known.picture) == written).await?;

    // Further ones: on the login node by the relay's command, and from a shell in the job without a relay.
    let id = job.to_string();
    site.run_relay("alice", &["note", "lowered the rate", "--job", &id])?;
    let in_job = "echo 'epoch 3' >> ~/.nodeglass-notes/".to_owned() + &id;
    site.lab.text("gpu-node-01", "alice", &["bash", "-c", &in_job])?;
    let more = ["epoch 1", "epoch 2", "epoch 3", "lowered the rate", "ready 0", "ready 1"];
    let picture = page.until(&topic, "all notes", |known| texts(&known.picture) == more).await?;
    let notes = picture.notes.clone();
    let of_job = notes.iter().find(|note| note.text == "epoch 1".into()).context("the first note")?.clone();
    ensure!(of_job.source == NoteSource::Job && of_job.job == Some(job), "{of_job:?}");
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis() as u64;
    ensure!((1..600_000).contains(&(now_ms - of_job.at_ms)), "{of_job:?} is not of the last minutes");

    // One is edited, another deleted; a killed relay has lost neither, and its successor's probe reads all again.
    let edit = NoteEdit { text: Some("first epoch".into()), ..NoteEdit::default() };
    let answer = page.request(Request::Note(NoteRequest::Edit { id: of_job.id, edit })).await?;
    ensure!(matches!(&answer, Response::Note(saved) if saved.is_stored), "{answer:?}");
    let ready = notes.iter().find(|note| note.rank == Some(1)).context("the note of a rank")?;
    let answer = page.request(Request::Note(NoteRequest::Delete(ready.id))).await?;
    ensure!(matches!(answer, Response::Done(_)), "{answer:?}");
    relay.signal(Signal::KILL)?;
    drop((page, relay));
    let relay = site.relay("alice")?;
    let mut page = client(&relay, job).await?;
    let left = ["epoch 2", "epoch 3", "first epoch", "lowered the rate", "ready 0"];
    page.until(&topic, "the notes again", |known| texts(&known.picture) == left).await?;
    let in_job = "echo 'epoch 4' >> ~/.nodeglass-notes/".to_owned() + &id;
    site.lab.text("gpu-node-01", "alice", &["bash", "-c", &in_job])?;
    let with_last = [&left[..3], &["epoch 4"], &left[3..]].concat();
    let mut with_last: Vec<_> = with_last.into_iter().map(str::to_owned).collect();
    with_last.sort();
    let picture = page.until(&topic, "a later note", |known| texts(&known.picture) == with_last).await?;
    let again = picture.notes.iter().find(|note| note.id == of_job.id).context("the edited note")?;
    ensure!(again.at_ms == of_job.at_ms, "its time has changed: {again:?}");
    let list = site.run_relay("alice", &["note", "--list", "--job", &id])?;
    ensure!(
        list.contains("lowered the rate") && list.contains("rank 0") && !list.contains("rank 1"),
        "{list}"
    );
    let report = site.run_relay("alice", &["report", &id])?;
    ensure!(report.contains("\nNotes\n") && report.contains("first epoch"), "{report}");

    // A file that is not a plain one is named in the remarks about the node, and does no harm.
    let pipe = format!("mkfifo ~/.nodeglass-notes/{id}.9 && echo 'epoch 5' >> ~/.nodeglass-notes/{id}");
    site.lab.text("gpu-node-01", "alice", &["bash", "-c", &pipe])?;
    let node = NodeName::new("gpu-node-01")?;
    let said = |picture: &Picture| {
        let remarks = picture.node(&node).map(|node| node.head.notes.clone()).unwrap_or_default();
        texts(picture).contains(&"epoch 5".to_owned())
            && remarks.iter().any(|text| text.as_str().ends_with("it is not a regular file"))
    };
    page.until(&topic, "a remark about the pipe", |known| said(&known.picture)).await?;
    Ok(())
}

#[tokio::test]
async fn relay_note_in_a_job_writes_to_the_spool_where_no_relay_runs() -> Result<()> {
    let Some(site) = Site::up_or_skip(1)? else { return Ok(()) };
    let relay = nodeglass_tests::relay::binary("relay")?;
    site.lab.put("gpu-node-01", &relay, "/opt/nodeglass/relay", 0o755)?;
    let script = "/opt/nodeglass/relay note 'epoch 1'\nsrun -n2 /opt/nodeglass/relay note ready\nsleep 600";
    let job = site.lab.sbatch("alice", &["-n2", "--gres=gpu:2"], script)?;
    site.lab.wait_until(job, "RUNNING")?;
    let relay = site.relay("alice")?;
    let mut page = client(&relay, job).await?;
    let all = ["epoch 1", "ready", "ready 1"];
    page.until(&Topic::Job(job), "the notes", |known| texts(&known.picture) == all).await?;
    Ok(())
}
