//! `relay note`: a client of the running relay, or within a job where none runs, of the spool directory.

use crate::commands::named_job;
use anyhow::{Context, bail, ensure};
use hyper::Method;
use nodeglass_api::{Job, JobSelector};
use nodeglass_app::remote::Remote;
use nodeglass_app::terminal;
use nodeglass_config::NoteArgs;
use nodeglass_platform::clock::Clock;
use nodeglass_platform::local_time::LocalTime;
use nodeglass_protocol::note::{self, NewNote, Note, NoteEdit, NoteSource, SPOOL_FOLDER, SavedNote};
use nodeglass_report::aligned;
use nodeglass_slurm::command::{Client as _, CommandError, Commands, Program};
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

const NOTES: &str = "/api/v1/notes";

/// Executes `relay note`; returns what to print.
///
/// # Errors
/// A complete sentence for the user.
pub async fn note(args: NoteArgs) -> anyhow::Result<String> {
    let named = args.job.as_ref().filter(|_| !args.cluster);
    let relay = match Remote::find(args.which.relay) {
        Err(_) if args.which.relay.is_none() && Remote::list()?.is_empty() => {
            return spool(&args, named).await;
        }
        relay => relay?,
    };
    let own = std::env::var("SLURM_JOB_ID").ok().and_then(|id| id.parse().ok());
    let id_in =
        |jobs: &[Job]| named.map(|named| named_job::id_for_notes(jobs, named, own.as_ref())).transpose();
    if args.list {
        let jobs = relay.jobs().await?;
        let job = id_in(&jobs)?;
        let query = job.map_or(String::new(), |job| format!("?job={job}"));
        let notes: Vec<Note> = relay.json(Method::GET, &format!("{NOTES}{query}"), String::new()).await?;
        return Ok(if args.json { terminal::json(&notes)? } else { list(&notes, &jobs) });
    }
    if let Some(id) = args.delete {
        let answer = relay.request(Method::DELETE, &format!("{NOTES}/{id}"), String::new()).await?;
        return Ok(nodeglass_app::remote::lines(&answer));
    }
    let text = note::text(args.text.as_deref().unwrap_or_default())?;
    let at_ms = args.at.map(|at| at.wall_ms(Clock::wall_ms()));
    let jobs = match (args.edit, named) {
        (None, Some(named)) => relay.jobs_with(std::slice::from_ref(named)).await?,
        (None, None) => Vec::new(),
        (Some(_), _) => relay.jobs().await?,
    };
    let saved: SavedNote = match args.edit {
        Some(id) => {
            let edit = serde_json::to_string(&NoteEdit { text: Some(text), at_ms, ..NoteEdit::default() })?;
            relay.json(Method::PATCH, &format!("{NOTES}/{id}"), edit).await?
        }
        None => {
            let job = id_in(&jobs)?;
            let new = NewNote { job, node: args.node, at_ms, text, source: NoteSource::Command };
            relay.json(Method::POST, NOTES, serde_json::to_string(&new)?).await?
        }
    };
    if args.json {
        return Ok(terminal::json(&saved)?);
    }
    if !saved.is_stored {
        terminal::complain(
            "the note is shown, but not stored on the relay's disk: it may be lost when the relay ends",
        );
    }
    Ok(format!(
        "note {}{}\n",
        saved.note.id,
        saved.note.job.map_or(String::new(), |job| format!(" of job {}", named_job::label(&jobs, job)))
    ))
}

/// Appends a line to the spool file of the job.
async fn spool(args: &NoteArgs, job: Option<&JobSelector>) -> anyhow::Result<String> {
    // The file is named by the raw id, which SLURM_JOB_ID has.
    let Some(JobSelector::Id(job)) = job else { bail!(nodeglass_app::remote::NONE_RUNS) };
    let is_plain = args.at.is_none() && args.node.is_none() && args.edit.is_none();
    let Some(text) = args.text.as_deref().filter(|_| is_plain) else {
        bail!(
            "no relay of yours is running on this machine, and a note for the spool directory has only a text"
        )
    };
    let text = note::text(text)?;
    ensure!(!text.is_empty(), "a note needs a text");
    let is_within = std::env::var("SLURM_JOB_ID").is_ok_and(|own| own == job.to_string());
    if !is_within {
        ensure_open(*job).await?;
    }
    let home = std::env::var_os("HOME").context("there is no home directory; set HOME")?;
    let folder = Path::new(&home).join(SPOOL_FOLDER);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .with_context(|| format!("failed to create {}", folder.display()))?;
    let path = folder.join(format!("{job}{}", suffix(std::env::var("SLURM_PROCID").ok().as_deref())));
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(&path);
    // One write, so that lines of several processes do not mix.
    file.and_then(|mut file| file.write_all(format!("{text}\n").as_bytes()))
        .with_context(|| format!("failed to write {}", path.display()))?;
    Ok(match args.json {
        true => terminal::json(&serde_json::json!({ "written_to": path }))?,
        false => format!("written to {}; your relay reads it only while job {job} runs\n", path.display()),
    })
}

/// Refuses a job that SLURM knows neither to run nor to wait: nothing would read its file.
async fn ensure_open(job: u32) -> anyhow::Result<()> {
    let args = ["--noheader".to_owned(), format!("--jobs={job}"), "--format=%T".to_owned()];
    let is_open = match Commands::new().run(Program::Squeue, &args).await {
        Ok(output) => !output.out.trim_ascii().is_empty(),
        Err(CommandError::Failed(_, why)) => !why.contains("Invalid job id"),
        Err(_) => true,
    };
    ensure!(
        is_open,
        "no relay of yours is running on this machine, and job {job} neither runs nor waits, so that nothing would read a file \
         of notes; start your relay, then write the note"
    );
    Ok(())
}

/// The ending of the file's name: ranks other than the first have files of their own, because appending from several
/// nodes to one file is not safe on NFS.
fn suffix(rank: Option<&str>) -> String {
    let rank = rank.and_then(|rank| rank.parse::<u32>().ok()).filter(|rank| *rank > 0);
    rank.map_or_else(String::new, |rank| format!(".{rank}"))
}

/// Notes as a table, with the jobs as they are labelled in this list.
fn list(notes: &[Note], jobs: &[Job]) -> String {
    if notes.is_empty() {
        return "no notes\n".to_owned();
    }
    let now = LocalTime::of(Clock::wall_ms() / 1_000);
    let header = ["NOTE", "TIME", "JOB", "FROM", "TEXT"].map(str::to_owned).to_vec();
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let row = |note: &Note| {
        vec![
            note.id.to_string(),
            LocalTime::of(note.at_ms / 1_000).seen_from(&now),
            or_dash(note.job.map(|job| named_job::label(jobs, job))),
            or_dash(note.origin()),
            note.text.to_string(),
        ]
    };
    let rows: Vec<_> = [header].into_iter().chain(notes.iter().map(row)).collect();
    aligned(&rows, 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_but_the_first_has_a_file_of_its_own() {
        assert_eq!([None, Some("0"), Some("x"), Some("3")].map(suffix), ["", "", "", ".3"]);
    }
}
