//! Memory, swap and disks of nodes, processes that hang, and drivers: each ends again.

use super::{Case, Expected, FAULT_S, Kind, MODELS, Play, Script, case};

/// Duration of ending problems, in s.
const LASTS_S: i64 = 600;

pub(super) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for model in MODELS {
        let train = || Script::job(2, "training", "");
        let mut add = |what: &str, kind: Kind, allowed: &[Kind], script: Script| {
            let expected = vec![Expected::until(kind, FAULT_S, FAULT_S + LASTS_S)];
            let case = case(format!("{what}/{}", model.0), 2, model, 40, script);
            cases.push(Case { expected, allowed: allowed.to_vec(), ..case });
        };
        for (what, kind, fault) in [
            ("host-memory", Kind::HostMemory, "host_memory"),
            ("swapping", Kind::Swapping, "swapping"),
            ("shm-full", Kind::DiskFull, "shm_full"),
        ] {
            add(what, kind, &[], train().fault(fault, None, None, Some(LASTS_S)));
        }
        // Without a driver, no process is known either.
        let unloaded = train().fault("no_driver", None, None, Some(LASTS_S));
        add("no-driver", Kind::NoGpu, &[], unloaded);
        let slowed = train().fault("slowdown", Some(1), None, Some(LASTS_S));
        add("slowdown-without-a-reason", Kind::Slowdown, &[Kind::Straggler], slowed);
        add("license", Kind::Unlicensed, &[], train().fault("unlicensed", Some(1), None, Some(LASTS_S)));
        // Its memory is not freed before its parent reaps it.
        let zombie = train().fault("zombie", Some(1), None, Some(LASTS_S));
        add("zombie", Kind::StuckProcess, &[Kind::OutsideJob, Kind::HeldMemory], zombie);
        cases.push(stuck(model));
        cases.extend(brief(model));
    }
    cases
}

/// One rank waits in the kernel, and all others wait for it.
fn stuck(model: (&'static str, u32)) -> Case {
    let script = Script::job(2, "training", "").episode("hang", 0, &[], FAULT_S, None);
    let script = script.fault("stuck", Some(1), None, None);
    Case {
        expected: [Kind::CollectiveHang, Kind::StuckProcess]
            .map(|kind| Expected::lasting(kind, FAULT_S))
            .to_vec(),
        allowed: vec![Kind::UnusedGpus],
        ..case(format!("stuck-process/{}", model.0), 2, model, 25, script)
    }
}

/// Returns problems that last for less than they must.
fn brief(model: (&'static str, u32)) -> Vec<Case> {
    let brief = |(fault, gpu, for_s): (&str, Option<u32>, i64)| {
        let script = Script::job(2, "training", "").fault(fault, gpu, None, Some(for_s));
        let case = case(format!("look-alike/{fault}-for-{for_s}-s/{}", model.0), 2, model, 30, script);
        Case { play: Play { reads_logs: true, ..case.play }, ..case }
    };
    // A write of a checkpoint waits for a file system.
    [("host_memory", None, 30), ("swapping", None, 30), ("stuck", Some(1), 60), ("slowdown", Some(1), 10)]
        .map(brief)
        .into()
}
