//! A GPU's energy counter grows with the mean power of its jobs, since its node booted.

use crate::cluster::activity::runs_as;
use crate::scenario::file::Behaviour;
use crate::scenario::{Assignment, JobScript, Scenario, Unit};
use nodeglass_gpu_models::GpuModel;

/// Energy since boot, in mJ. Constant without randomness, like everything else.
pub(crate) fn since_boot_mj(scenario: &Scenario, node: usize, unit: &Unit, t_ms: i64) -> u64 {
    let script = &scenario.nodes[node];
    let (_, booted_ms) = scenario.boot(node, t_ms);
    let t_ms = if scenario.rng.is_constant() { 0 } else { t_ms };
    let up_ms = (t_ms - booted_ms).max(0);
    // W times ms is mJ.
    let idle = unit.model.bare_w * up_ms as f64;
    let parts = script.units.iter().filter(|part| part.gpu == unit.gpu);
    let assignments = parts.filter_map(|part| Some((&script.assignments[part.gres_index?], &part.model)));
    let worked: f64 = assignments
        .flat_map(|(assignments, model)| assignments.iter().map(move |assignment| (assignment, model)))
        .map(|(assignment, model)| {
            worked_mj(&scenario.jobs[assignment.job], *assignment, model, booted_ms, t_ms)
        })
        .sum();
    (idle + worked) as u64
}

fn worked_mj(job: &JobScript, assignment: Assignment, model: &GpuModel, from_ms: i64, to_ms: i64) -> f64 {
    let above_w = (mean_w(runs_as(job, assignment.slot), model) - model.bare_w).max(0.0);
    let busy_ms = busy_until(job, to_ms) - busy_until(job, from_ms);
    above_w * busy_ms.max(0) as f64
}

/// Returns for how long a job has run until `t_ms`, counted from its first start; negative before it if the job is
/// repeated.
fn busy_until(job: &JobScript, t_ms: i64) -> i64 {
    let Some(start_ms) = job.start_ms else { return 0 };
    let since = t_ms - start_ms;
    let length = job.end_ms.map_or(i64::MAX, |end| end - start_ms);
    match job.every_ms {
        Some(every) => since.div_euclid(every) * length.min(every) + since.rem_euclid(every).min(length),
        None => since.clamp(0, length),
    }
}

/// Mean power of a behaviour, in W.
fn mean_w(behaviour: Behaviour, model: &GpuModel) -> f64 {
    let share = |share: f64| model.loaded_w + (model.cap_w - model.loaded_w) * share;
    match behaviour {
        Behaviour::Training | Behaviour::Ecc => share(0.93),
        Behaviour::Straggler => share(0.46),
        Behaviour::IdleGpu => model.bare_w,
        Behaviour::Hang => model.waiting_w,
        Behaviour::Inference => share(0.27),
        Behaviour::Bursty => share(0.5),
        Behaviour::Notebook => model.loaded_w,
        Behaviour::InputBound => share(0.08),
        Behaviour::Steady => model.cap_w / 2.0,
        Behaviour::Leak | Behaviour::LateLeak | Behaviour::HostLeak => share(0.93),
        Behaviour::Communication | Behaviour::MemoryBound => share(0.4),
        Behaviour::Slow | Behaviour::Dynamics => share(0.62),
        Behaviour::SmallKernels => share(0.04),
        Behaviour::Alternating => share(0.57),
        Behaviour::Idle => model.loaded_w,
        Behaviour::Starved => share(0.27),
        Behaviour::Pipeline => share(0.65),
        Behaviour::Evaluating => share(0.85),
    }
}
