//! Statements of SLURM and of the logs of jobs, and jobs that wait: for input, for a person, or for nothing.

use super::{Case, Expected, FAULT_S, Kind, MODELS, Play, Script, case, of_bursts};

/// Lines with which programs end.
const LAST_WORDS: [(&str, &str); 6] = [
    ("out-of-memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    ("cuda-error", "RuntimeError: CUDA error: an illegal memory access was encountered"),
    (
        "segmentation-fault",
        "train.sbatch: line 14: 41773 Segmentation fault      (core dumped) python3 train.py",
    ),
    ("no-space", "OSError: [Errno 28] No space left on device: 'checkpoints/step-1200.pt'"),
    (
        "collective-timeout",
        "[rank3]:[E1127 10:12:45.123 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: \
         WorkNCCL(SeqNum=3011, OpType=ALLREDUCE) ran for 600013 milliseconds",
    ),
    ("traceback", "Traceback (most recent call last):"),
];

/// Lines of programs that go on: handled errors, settings, help, and numbers.
const HARMLESS: [(&str, &str); 11] = [
    ("retried-oom", "torch.OutOfMemoryError: CUDA out of memory. Retrying with batch size 32"),
    ("help-text", "NOTE: \"Segmentation fault\" at the shutdown of workers is harmless"),
    ("nan-safe", "Using loss: nan-safe cross entropy"),
    ("handled-oom", "CUDA out of memory with batch size 64, trying 32"),
    ("setting", "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid CUDA out of memory errors"),
    (
        "nan-once",
        "epoch 0 step   2261  loss nan  grad_norm inf  lr 3.00e-04 (step skipped by the loss scaler)",
    ),
    ("killed-workers", "ray: 3 idle workers were killed to free memory"),
    ("no-nan", "checked 1024 tensors: 0 nan, 0 inf"),
    ("xid-text", "see https://docs.nvidia.com/deploy/xid-errors for the meaning of Xid 79"),
    ("timeout-setting", "NCCL INFO NCCL_TIMEOUT set by environment to 1800"),
    ("error-metric", "validation: word error rate 0.083, character error rate 0.021"),
];

pub(super) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for model in MODELS {
        cases.extend(waiting(model));
        cases.extend(pending(model));
        cases.extend(ends(model));
        cases.extend(limits(model));
        cases.extend(messages(model));
        cases.extend(shapes(model));
    }
    cases
}

/// Returns the case with logs that are read.
fn with_logs(case: Case) -> Case {
    Case { play: Play { reads_logs: true, ..case.play }, ..case }
}

fn waiting(model: (&'static str, u32)) -> Vec<Case> {
    let name = |what: &str| format!("{what}/{}", model.0);
    let done = message("done: 2 400 steps, loss 1.71", FAULT_S, true);
    let after_work = Script::job(2, "training", &done).episode("idle", 0, &[], FAULT_S, None);
    let some = Script::job(2, "training", "").episode("idle", 1, &[0, 1], FAULT_S, None);
    let mut cases = vec![
        with_logs(Case {
            expected: vec![Expected::lasting(Kind::IdleGpus, FAULT_S)],
            ..case(name("idle-after-work"), 2, model, 35, after_work)
        }),
        Case {
            expected: vec![Expected::lasting(Kind::UnusedGpus, FAULT_S)],
            ..case(name("two-wait"), 2, model, 35, some)
        },
    ];
    cases.push(Case {
        expected: vec![Expected::lasting(Kind::MostlyIdle, 0)],
        ..case(name("notebook"), 2, model, 80, Script::job(2, "notebook", ""))
    });
    // What computes for hours uses its GPUs more, also while it evaluates or waits for input.
    for behaviour in ["evaluating", "input_bound", "inference"] {
        let script = Script::job(1, behaviour, "");
        cases.push(case(format!("look-alike/an-hour-of-{behaviour}/{}", model.0), 1, model, 80, script));
    }
    let pauses = (1..8).fold(Script::job(1, "training", ""), |script, pause| {
        script.episode("idle", 0, &[], pause * 600, Some(480))
    });
    cases.push(case(format!("look-alike/long-pauses/{}", model.0), 1, model, 80, pauses));
    for nodes in [1, 2] {
        let starved = Script::job(nodes, "starved", "");
        cases.push(Case {
            expected: vec![Expected::lasting(Kind::InputBound, 0)],
            ..case(name(&format!("starved-on-{nodes}")), nodes, model, 25, starved)
        });
    }
    cases
}

/// A training, and a job that waits for a reason.
fn pending(model: (&'static str, u32)) -> Vec<Case> {
    let script = |reason: &str| {
        let waits = format!(
            "[[job]]\nid = 18\nname = \"next\"\npartition = \"gpu\"\nsubmitted = \"-2h\"\nlimit = \"1d\"\nreason = \"{reason}\"\n\
             gpu_count = 8\n\n"
        );
        Script(format!("{}{waits}", Script::job(1, "training", "").0))
    };
    let never = ["DependencyNeverSatisfied", "JobHeldAdmin", "PartitionTimeLimit", "InvalidQOS"];
    let never = never.map(|reason| Case {
        expected: vec![Expected::lasting(Kind::PendingForever, 0)],
        ..case(format!("pending/{reason}/{}", model.0), 1, model, 10, script(reason))
    });
    let waits = ["Priority", "Resources", "JobHeldUser", "Dependency", "QOSMaxGRESPerUser", "BeginTime"];
    let waits = waits
        .map(|reason| case(format!("look-alike/pending-{reason}/{}", model.0), 1, model, 10, script(reason)));
    never.into_iter().chain(waits).collect()
}

/// Jobs that end well, and others.
fn ends(model: (&'static str, u32)) -> Vec<Case> {
    let ending = |state: &str| {
        let more = format!("end = \"{FAULT_S}s\"\nends_as = \"{state}\"");
        Script::job(2, "training", &more)
    };
    let failures = ["FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "TIMEOUT"].map(|state| {
        with_logs(Case {
            expected: vec![Expected::lasting(Kind::Failed, FAULT_S)],
            allowed: if state == "OUT_OF_MEMORY" {
                vec![Kind::JobMemoryForecast, Kind::LogMessage]
            } else {
                Vec::new()
            },
            ..case(format!("ends/{state}/{}", model.0), 2, model, 30, ending(state))
        })
    });
    let good = ["COMPLETED", "CANCELLED"].map(|state| {
        with_logs(case(format!("healthy/ends-{state}/{}", model.0), 2, model, 30, ending(state)))
    });
    failures.into_iter().chain(good).collect()
}

/// Returns jobs that reach their time limit, and one that is done before.
fn limits(model: (&'static str, u32)) -> Vec<Case> {
    let name = |what: &str| format!("{what}/{}", model.0);
    // It has run for an hour.
    let limited = |limit: &str, more: &str| {
        Script(Script::job(2, "training", more).0.replace("limit = \"10d\"", &format!("limit = \"{limit}\"")))
    };
    let soon = Expected::lasting(Kind::TimeLimit, 1_800);
    // The rate counts once it was measured for ten minutes.
    let slow = Expected { within_s: Some(720), ..Expected::lasting(Kind::TimeLimit, 0) };
    vec![
        with_logs(Case {
            expected: vec![soon],
            ..case(name("time-limit"), 2, model, 38, limited("100m", ""))
        }),
        with_logs(Case {
            expected: vec![slow],
            ..case(name("too-slow"), 2, model, 30, limited("2h", "steps = 5400"))
        }),
        with_logs(case(name("look-alike/done-in-time"), 2, model, 25, limited("2h", "steps = 2600"))),
        // A twentieth of the limit is left, and the log states that three minutes are enough.
        with_logs(case(name("look-alike/done-just-in-time"), 2, model, 25, limited("90m", "steps = 2580"))),
    ]
}

fn messages(model: (&'static str, u32)) -> Vec<Case> {
    let last = LAST_WORDS.map(|(name, line)| {
        let more = message(line, FAULT_S, true);
        let script = Script::job(2, "training", &more).episode("idle_gpu", 0, &[], FAULT_S, None);
        with_logs(Case {
            // The GPUs of the job stop, and a minute shows that the program does not go on.
            expected: vec![Expected { within_s: Some(100), ..Expected::lasting(Kind::LogMessage, FAULT_S) }],
            allowed: vec![Kind::NoProcess, Kind::IdleGpus],
            ..case(format!("message/{name}/{}", model.0), 2, model, 25, script)
        })
    });
    let harmless = HARMLESS.map(|(name, line)| {
        let script = Script::job(2, "training", &message(line, FAULT_S, false));
        with_logs(case(format!("look-alike/message-{name}/{}", model.0), 2, model, 25, script))
    });
    last.into_iter().chain(harmless).collect()
}

/// A line that a program writes, in a scenario file.
fn message(line: &str, at_s: i64, is_last: bool) -> String {
    format!("message = {{ at = \"{at_s}s\", line = {line:?}, is_last = {is_last} }}")
}

/// More healthy jobs, and problems of which the logs show a part.
fn shapes(model: (&'static str, u32)) -> Vec<Case> {
    let name = |what: &str| format!("{what}/{}", model.0);
    let mut cases = Vec::new();
    for behaviour in ["pipeline", "evaluating", "training", "inference", "notebook", "bursty"] {
        let script = Script::job(2, behaviour, "");
        let case = case(name(&format!("healthy/{behaviour}-with-logs")), 2, model, 40, script);
        cases.push(with_logs(Case { allowed: of_bursts(behaviour), ..case }));
    }
    let script = Script::job(1, "training", "gpus = []");
    cases.push(with_logs(case(name("healthy/cpu-only"), 1, model, 40, script)));
    let waiting = Script::job(2, "training", "").episode("hang", 0, &[], FAULT_S, Some(58));
    cases.push(with_logs(case(name("look-alike/wait-of-58-s-with-logs"), 2, model, 30, waiting)));
    let hang = Script::job(2, "training", "").episode("hang", 0, &[], FAULT_S, None);
    cases.push(with_logs(Case {
        expected: vec![Expected::hang(FAULT_S)],
        ..case(name("hang-with-logs"), 2, model, 25, hang)
    }));
    cases
}
