//! The difference between two jobs as a sentence: how much longer one took, and the readings that differ.

use crate::domain::text;
use nodeglass_protocol::report::{GpuReport, Report};
use nodeglass_rules::gpu_hours::GpuHours;

/// Share of the observed time, in %, from which a GPU counts as idle all the time.
const ALL_THE_TIME_PCT: f64 = 95.0;
/// Maximum share of idle time, in %, at which a mean clock says how fast a GPU worked: idle GPUs lower their clocks.
const BUSY_PCT: f64 = 10.0;
/// Differences of idle time and of utilisation from which they are stated, in percentage points.
const STATED_POINTS: f64 = 5.0;
/// The clock that is stated as low, as a share of the mean clock of the other job.
const LOW_CLOCK: f64 = 0.95;
/// Difference of run times that asks for an explanation, in %.
const EXPLAINED_PCT: f64 = 5.0;

/// Returns the difference between the run times of two jobs, and other differences: the number of GPUs, idle time,
/// utilisation and, for busy jobs, the clock. `None` if one of them has not ended.
pub fn difference_sentence(first: &Report, second: &Report) -> Option<String> {
    let elapsed = |report: &Report| report.is_final.then_some(report.elapsed_s as f64).filter(|s| *s > 0.0);
    let percent = 100.0 * (elapsed(second)? / elapsed(first)? - 1.0);
    let (job, other) = (&second.label, &first.label);
    let took = match percent.round() as i64 {
        0 => format!("{job} took as long as {other}"),
        more @ 1.. => format!("{job} took {more} % longer than {other}"),
        less => format!("{job} took {} % less time than {other}", less.unsigned_abs()),
    };
    let evidence = [gpus(first, second), activity(first, second), clock(first, second)];
    let evidence: Vec<String> = evidence.into_iter().flatten().collect();
    Some(match evidence.as_slice() {
        [] if percent.abs() >= EXPLAINED_PCT && is_known(first) && is_known(second) => {
            format!("{took}. Their GPUs, idle time, utilisation and clocks do not explain it.")
        }
        [] => format!("{took}."),
        evidence => format!("{took}; {}.", evidence.join("; ")),
    })
}

/// Returns whether there are readings that could explain anything.
fn is_known(report: &Report) -> bool {
    idle_pct(report).is_some() && report.totals.util_pct.is_some() && report.totals.sm_clock_mhz.is_some()
}

fn gpus(first: &Report, second: &Report) -> Option<String> {
    let (had, others) = (second.totals.gpus, first.totals.gpus);
    (had != others && others > 0)
        .then(|| format!("it had {}, against {others}", text::count(had as usize, "GPU", "GPUs")))
}

/// The share of the observed time in which a job's GPUs were idle, in %.
fn idle_pct(report: &Report) -> Option<f64> {
    let hours = GpuHours::from(&report.totals);
    // Without any utilisation, idleness is unknown.
    report.totals.util_pct.and(hours.pct_of_observed(hours.idle))
}

fn idle_pct_of(gpu: &GpuReport) -> Option<f64> {
    Some(100.0 * gpu.idle_s? / gpu.observed_s).filter(|share| share.is_finite())
}

/// Idle time, with the GPUs that never worked; else the utilisation, if that differs.
fn activity(first: &Report, second: &Report) -> Option<String> {
    let (idle, others) = (idle_pct(second)?, idle_pct(first)?);
    if (idle - others).abs() < STATED_POINTS && idle < ALL_THE_TIME_PCT {
        let (util, others) = (second.totals.util_pct?, first.totals.util_pct?);
        let [shown, other] = [util, others].map(|util| util.round() as u64);
        return ((util - others).abs() >= STATED_POINTS)
            .then(|| format!("its mean utilisation was {shown} %, against {other} %"));
    }
    if idle >= ALL_THE_TIME_PCT && others >= ALL_THE_TIME_PCT {
        return Some("the GPUs of both were idle all the time".to_owned());
    }
    let is_never_busy = |gpu: &&GpuReport| idle_pct_of(gpu).is_some_and(|share| share >= ALL_THE_TIME_PCT);
    let never = second.gpus.iter().filter(is_never_busy);
    let never: Vec<_> = never.map(|gpu| format!("{} GPU {}", gpu.node, gpu.index)).collect();
    let named = match never.as_slice() {
        all if all.len() == second.gpus.len() => String::new(),
        [] => String::new(),
        [one] => format!(" ({one} all the time)"),
        [one, more @ ..] => format!(" ({one} and {} more all the time)", more.len()),
    };
    let [idle, others] = [idle, others].map(|share| share.round() as u64);
    Some(format!("its GPUs were idle in {idle} % of the observed time{named}, against {others} %"))
}

/// The lowest clock of a GPU that was busy, if both jobs were.
fn clock(first: &Report, second: &Report) -> Option<String> {
    let base =
        first.totals.sm_clock_mhz.filter(|_| idle_pct(first).is_some_and(|share| share <= BUSY_PCT))?;
    let busy = second.gpus.iter().filter(|gpu| idle_pct_of(gpu).is_some_and(|share| share <= BUSY_PCT));
    let clocks = busy.filter_map(|gpu| Some((gpu, gpu.sm_clock_mhz?)));
    let (gpu, mhz) = clocks.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
    if mhz >= LOW_CLOCK * base {
        return None;
    }
    let longest = gpu.throttled.iter().max_by(|one, other| one.seconds.total_cmp(&other.seconds));
    let why = longest.filter(|longest| longest.seconds >= 1.0).map_or_else(String::new, |longest| {
        format!(" ({} for {})", longest.reason, text::span(longest.seconds.round() as u64))
    });
    let [mhz, base] = [mhz, base].map(|mhz| text::grouped(mhz.round() as u64));
    Some(format!(
        "the mean SM clock of {} GPU {} was {mhz} MHz{why}, against {base} MHz",
        gpu.node, gpu.index
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe::report::tests::report_with;
    use nodeglass_protocol::report::Throttled;
    use nodeglass_protocol::{GpuUuid, NodeName};

    /// A job of 1,000 s whose GPUs have these shares of idle time, utilisations and clocks.
    fn job(label: &str, elapsed_s: u64, gpus: &[(f64, f64, f64)]) -> Report {
        let mut report = Report { label: label.into(), elapsed_s, ..report_with(&[]) };
        let count = gpus.len() as f64;
        let mean = |of: fn(&(f64, f64, f64)) -> f64| gpus.iter().map(of).sum::<f64>() / count;
        report.totals.gpus = gpus.len() as u32;
        report.totals.gpu_hours_observed = count;
        report.totals.gpu_hours_idle = gpus.iter().map(|(idle, ..)| idle / 100.0).sum();
        report.totals.util_pct = Some(mean(|(_, util, _)| *util));
        report.totals.sm_clock_mhz = Some(mean(|(.., mhz)| *mhz));
        report.gpus = gpus
            .iter()
            .zip(0..)
            .map(|((idle, util, mhz), index)| GpuReport {
                node: NodeName::new("q2").unwrap(),
                index,
                uuid: GpuUuid::new(format!("GPU-{index}")),
                model: None,
                observed_s: 1_000.0,
                util_pct: Some(*util),
                util_distribution_pct: None,
                idle_s: Some(10.0 * idle),
                energy_kwh: None,
                sm_clock_mhz: Some(*mhz),
                mem_peak_bytes: None,
                mem_total_bytes: None,
                throttled: Vec::new(),
                xids: 0,
                ecc_uncorrected: None,
                ecc_corrected: None,
                fault_s: 0.0,
            })
            .collect();
        report
    }

    const BUSY: (f64, f64, f64) = (0.0, 90.0, 1_755.0);
    const IDLE: (f64, f64, f64) = (100.0, 0.0, 345.0);

    fn sentence(second: &Report) -> String {
        difference_sentence(&job("17", 1_000, &[BUSY, BUSY]), second).unwrap()
    }

    #[test]
    fn idle_gpus_are_said_to_be_idle_and_their_clocks_are_not_blamed() {
        let text = sentence(&job("18", 1_140, &[BUSY, IDLE]));
        assert_eq!(
            text,
            "18 took 14 % longer than 17; its GPUs were idle in 50 % of the observed time (q2 GPU 1 all the time), \
             against 0 %."
        );
        let text = sentence(&job("18", 1_000, &[IDLE, IDLE]));
        assert_eq!(
            text,
            "18 took as long as 17; its GPUs were idle in 100 % of the observed time, against 0 %."
        );
        // Nor is an idle first job a measure of how fast the second one should have been.
        let idle = job("17", 1_000, &[(20.0, 88.0, 1_900.0); 2]);
        let text = difference_sentence(&idle, &job("18", 1_200, &[(20.0, 88.0, 1_400.0); 2])).unwrap();
        assert!(!text.contains("MHz"), "{text}");
        let both = difference_sentence(&job("1", 100, &[IDLE]), &job("2", 100, &[IDLE])).unwrap();
        assert_eq!(both, "2 took as long as 1; the GPUs of both were idle all the time.");
    }

    #[test]
    fn of_busy_jobs_the_slowest_gpu_is_named_with_what_held_it_down() {
        let mut second = job("18", 1_140, &[BUSY, (0.0, 90.0, 1_380.0)]);
        second.gpus[1].throttled = vec![Throttled { reason: "too hot (driver)".into(), seconds: 1_200.0 }];
        assert_eq!(
            sentence(&second),
            "18 took 14 % longer than 17; the mean SM clock of q2 GPU 1 was 1,380 MHz (too hot (driver) for 20 min), \
             against 1,755 MHz."
        );
    }

    #[test]
    fn other_differences_are_stated_and_none_is_invented() {
        let lower = sentence(&job("18", 1_500, &[(0.0, 60.0, 1_755.0); 2]));
        assert_eq!(lower, "18 took 50 % longer than 17; its mean utilisation was 60 %, against 90 %.");
        let smaller = sentence(&job("18", 2_000, &[BUSY]));
        assert_eq!(smaller, "18 took 100 % longer than 17; it had 1 GPU, against 2.");
        let same = sentence(&job("18", 1_200, &[BUSY, BUSY]));
        assert!(same.ends_with("GPUs, idle time, utilisation and clocks do not explain it."), "{same}");
        assert_eq!(sentence(&job("18", 1_010, &[BUSY, BUSY])), "18 took 1 % longer than 17.");
        let mut unknown = job("18", 1_200, &[BUSY, BUSY]);
        unknown.totals.util_pct = None;
        assert_eq!(sentence(&unknown), "18 took 20 % longer than 17.");
    }

    #[test]
    fn a_job_that_runs_is_not_compared() {
        let running = Report { is_final: false, ..job("18", 1_000, &[BUSY]) };
        assert_eq!(difference_sentence(&job("17", 1_000, &[BUSY]), &running), None);
    }
}
