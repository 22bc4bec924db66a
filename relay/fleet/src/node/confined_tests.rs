//! Tests of nodes whose probes see the GPUs of one job each.

use crate::scene::*;
use crate::{Event, Fleet, SessionEvent};
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::picture::{Evidence, NodePicture, ProcessGap};
use nodeglass_protocol::probe::{
    Confinement, Event as GpuEvent, GpuFacts, ProbeLine, ProcessList, SourceState, Visible,
};
use nodeglass_protocol::{GpuField, JobId, Reading};

/// The hello of a probe that was adopted into `job` on a node with four GPUs, and sees these.
fn confined(job: u32, minors: &[u32]) -> ProbeLine {
    let ProbeLine::Hello(mut hello) = hello("n1", &[]) else { unreachable!("it is one") };
    let gpu = |(index, minor): (u32, &u32)| GpuFacts {
        minor: Reading::Value(*minor),
        ..GpuFacts::new(uuid("n1", *minor), index)
    };
    hello.gpus = (0..).zip(minors).map(gpu).collect();
    let gpus = Visible { devices: 4, visible: minors.len() as u32 };
    let confinement = Confinement { gpus, job: Some(JobId(job)), is_adopted: true, ..Confinement::default() };
    hello.sources.push(SourceState::confined(confinement.to_string().into()));
    hello.confinement = Some(confinement);
    ProbeLine::Hello(hello)
}

fn of_job(fleet: &mut Fleet, job: u32, event: SessionEvent, now_ms: u64) {
    fleet.handle(Event::JobProbe(name("n1"), JobId(job), event), now_ms);
}

fn job_line(fleet: &mut Fleet, job: u32, line: ProbeLine, now_ms: u64) {
    of_job(fleet, job, SessionEvent::Line(Box::new(line.into())), now_ms);
}

/// A node with alice's jobs 17 on GPU 2 and 18 on GPU 0, whose own probe was adopted into job 17.
fn two_jobs() -> Fleet {
    let mut fleet = Fleet::new();
    fleet.use_jobs_of("alice".into());
    jobs(&mut fleet, vec![job(17, &[("n1", &[2])]), job(18, &[("n1", &[0])])], 0);
    line(&mut fleet, "n1", confined(17, &[2]), 100);
    line(&mut fleet, "n1", sample(50, &[22]), 1_000);
    fleet
}

/// The same, with the probe of job 18, whose GPU's utilisation is 80 %.
fn both_seen() -> Fleet {
    let mut fleet = two_jobs();
    job_line(&mut fleet, 18, confined(18, &[0]), 1_100);
    job_line(&mut fleet, 18, sample(51, &[80]), 1_900);
    line(&mut fleet, "n1", sample(51, &[23]), 2_000);
    fleet
}

fn wanted(fleet: &Fleet) -> Vec<u32> {
    fleet.job_probes(&name("n1")).iter().map(|job| job.0).collect()
}

/// Number, utilisation and owners of a GPU.
type Shown = (u32, Option<u64>, Vec<(u32, Evidence)>);

fn gpus(fleet: &Fleet) -> Vec<Shown> {
    let owners = |gpu: &nodeglass_protocol::picture::GpuPicture| {
        gpu.owners.iter().map(|owner| (owner.job.0, owner.by)).collect()
    };
    let gpus = node(fleet, "n1").gpus.iter();
    gpus.map(|gpu| (gpu.facts.index, gpu.row.value(GpuField::Util), owners(gpu))).collect()
}

/// What is said about invisible GPUs.
fn limits(node: &NodePicture) -> Vec<String> {
    let facts = node.head.facts.as_ref().unwrap();
    let reason = |source: &SourceState| Some(source.absent_reason().or(source.confinement())?.to_string());
    facts.sources.iter().filter_map(reason).collect()
}

fn processes(fleet: &Fleet) -> Vec<(u32, String)> {
    let processes = node(fleet, "n1").processes.iter();
    processes.map(|process| (process.facts.pid, process.facts.gpu.to_string())).collect()
}

#[test]
fn only_jobs_whose_gpus_are_denied_get_a_probe() {
    let mut fleet = two_jobs();
    assert_eq!(wanted(&fleet), [18]);
    let (mut bobs, mut ending, cpu_only) =
        (job(19, &[("n1", &[1])]), job(20, &[("n1", &[1])]), job(21, &[("n1", &[])]));
    bobs.user = "bob".into();
    ending.state = JobState::Completing;
    let unknown = Job { gpus: Vec::new(), gpu_count: Some(1), ..job(22, &[("n1", &[])]) };
    let shared = job(23, &[("n1", &[2])]);
    let elsewhere = job(24, &[("n2", &[1])]);
    let first = job(17, &[("n1", &[2])]);
    jobs(&mut fleet, vec![first, bobs, ending, cpu_only, unknown, shared, elsewhere], 2_000);
    assert_eq!(wanted(&fleet), [22]);
    // A probe that sees all GPUs needs no other, and a relay that cannot start steps wants none.
    line(&mut fleet, "n1", hello("n1", &[0, 1, 2, 3]), 3_000);
    assert!(wanted(&fleet).is_empty());
    let mut without = Fleet::new();
    jobs(&mut without, vec![job(17, &[("n1", &[2])]), job(18, &[("n1", &[0])])], 0);
    line(&mut without, "n1", confined(17, &[2]), 100);
    assert!(wanted(&without).is_empty());
}

#[test]
fn there_are_at_most_eight_probes_of_jobs_on_a_node() {
    let mut fleet = two_jobs();
    let all = (17..40).map(|id| job(id, &[("n1", &[if id == 17 { 2 } else { 0 }])])).collect();
    jobs(&mut fleet, all, 1_000);
    assert_eq!(wanted(&fleet), (18..26).collect::<Vec<_>>());
}

#[test]
fn gpus_of_all_jobs_form_one_picture_in_the_order_of_the_node() {
    let fleet = both_seen();
    let by = Evidence::GresIndex;
    assert_eq!(gpus(&fleet), [(0, Some(80), vec![(18, by)]), (2, Some(23), vec![(17, by)])]);
    assert_eq!(limits(node(&fleet, "n1")), ["2 of 4 GPUs visible: those of jobs 17, 18"]);
    let history = node(&fleet, "n1").history.as_ref().unwrap();
    let newest = |gpu| history.gpu(gpu, GpuField::Util).unwrap().points().last().unwrap().1;
    assert_eq!([0, 1].map(|gpu| newest(gpu).unwrap().value()), [Some(80), Some(23)]);
}

#[test]
fn sparse_samples_of_each_probe_refer_to_its_own_gpus() {
    let mut fleet = both_seen();
    job_line(&mut fleet, 18, since(Some(51), sample(52, &[81])), 2_900);
    assert_eq!(gpus(&fleet)[0].1, Some(80), "shown with the next sample of the node");
    line(&mut fleet, "n1", since(Some(51), sample(52, &[24])), 3_000);
    assert_eq!([gpus(&fleet)[0].1, gpus(&fleet)[1].1], [Some(81), Some(24)]);
    // A whole sample of the node clears what it omits of its own GPUs only.
    line(&mut fleet, "n1", sample(53, &[]), 4_000);
    assert_eq!([gpus(&fleet)[0].1, gpus(&fleet)[1].1], [Some(81), Some(24)]);
}

#[test]
fn a_gpu_that_two_probes_see_appears_once_as_the_nodes_own_reports_it() {
    let mut fleet = two_jobs();
    jobs(&mut fleet, vec![job(17, &[("n1", &[2])]), job(18, &[("n1", &[2, 3])])], 1_000);
    job_line(&mut fleet, 18, confined(18, &[2, 3]), 1_100);
    job_line(&mut fleet, 18, process("n1", 2, 70, Some(18)), 1_200);
    job_line(&mut fleet, 18, sample(51, &[99, 33]), 1_900);
    line(&mut fleet, "n1", process("n1", 2, 70, Some(18)), 1_950);
    line(&mut fleet, "n1", sample(51, &[22]), 2_000);
    let shown: Vec<_> = gpus(&fleet).into_iter().map(|(index, util, _)| (index, util)).collect();
    assert_eq!(shown, [(2, Some(22)), (3, Some(33))]);
    assert_eq!(processes(&fleet), [(70, "GPU-n1-2".to_owned())]);
}

#[test]
fn of_two_jobs_that_share_a_gpu_the_one_with_a_probe_reports_it() {
    let mut fleet = both_seen();
    let all = vec![job(17, &[("n1", &[2])]), job(18, &[("n1", &[0])]), job(19, &[("n1", &[0])])];
    jobs(&mut fleet, all, 2_100);
    job_line(&mut fleet, 19, confined(19, &[0]), 2_200);
    job_line(&mut fleet, 19, sample(52, &[79]), 2_300);
    line(&mut fleet, "n1", sample(52, &[24]), 3_000);
    assert_eq!(gpus(&fleet)[0].1, Some(80));
    of_job(&mut fleet, 18, SessionEvent::Down { why: "srun ended".into(), retry_at_ms: 9_000 }, 3_100);
    line(&mut fleet, "n1", sample(53, &[24]), 4_000);
    assert_eq!((gpus(&fleet).len(), gpus(&fleet)[0].1), (2, Some(79)));
    assert!(node(&fleet, "n1").gpus[0].fault.is_none());
}

#[test]
fn processes_of_each_probe_are_listed_once_with_their_readings() {
    let mut fleet = both_seen();
    line(&mut fleet, "n1", process("n1", 2, 7, Some(17)), 2_100);
    job_line(&mut fleet, 18, process("n1", 0, 8, Some(18)), 2_200);
    let both = [(7, "GPU-n1-2".to_owned()), (8, "GPU-n1-0".to_owned())];
    assert_eq!(processes(&fleet), both);
    job_line(&mut fleet, 18, process_readings(5 << 30), 2_800);
    job_line(&mut fleet, 18, sample(52, &[80]), 2_900);
    line(&mut fleet, "n1", process_readings(3 << 30), 2_950);
    line(&mut fleet, "n1", sample(52, &[24]), 3_000);
    let bytes =
        |at: usize| node(&fleet, "n1").processes[at].row.value(nodeglass_protocol::ProcessField::GpuMem);
    assert!(bytes(0) < bytes(1), "{:?} {:?}", bytes(0), bytes(1));
    fleet.take_changes();
    line(&mut fleet, "n1", process("n1", 2, 7, Some(17)), 3_100);
    assert!(fleet.take_changes().nodes.values().all(|node| !node.processes), "the same list again");
    line(&mut fleet, "n1", ProbeLine::Processes(ProcessList::default()), 3_200);
    assert_eq!(processes(&fleet), both[1..]);
}

#[test]
fn a_probe_that_dies_takes_its_readings_with_it_and_states_why() {
    let mut fleet = both_seen();
    job_line(&mut fleet, 18, process("n1", 0, 8, Some(18)), 2_100);
    of_job(&mut fleet, 18, SessionEvent::Down { why: "srun ended".into(), retry_at_ms: 9_000 }, 2_500);
    line(&mut fleet, "n1", sample(52, &[24]), 3_000);
    // Perhaps its job has ended; that is no fault of the GPU.
    assert_eq!((gpus(&fleet)[0].1, node(&fleet, "n1").gpus[0].fault.clone()), (None, None));
    line(&mut fleet, "n1", sample(67, &[24]), 18_000);
    fleet.handle(Event::Tick, 18_000);
    of_job(&mut fleet, 18, SessionEvent::Connecting { failures: 1 }, 18_100);
    let (picture, why) = (node(&fleet, "n1"), "there is no probe in job 18: srun ended");
    let gpu = &picture.gpus[0];
    assert_eq!((gpu.row.value(GpuField::Util), &gpu.fault), (None, &Some(why.into())));
    assert_eq!(gpu.gaps, [ProcessGap::Failed(why.into())]);
    assert_eq!((processes(&fleet).len(), picture.gpus[1].row.value(GpuField::Util)), (0, Some(24)));
    assert_eq!(limits(picture), [format!("2 of 4 GPUs visible: those of jobs 17, 18; {why}")]);
    // Its successor reports all of it again.
    job_line(&mut fleet, 18, confined(18, &[0]), 18_500);
    job_line(&mut fleet, 18, sample(68, &[82]), 18_900);
    line(&mut fleet, "n1", sample(68, &[24]), 19_000);
    assert_eq!((gpus(&fleet)[0].1, node(&fleet, "n1").gpus[0].fault.clone()), (Some(82), None));
}

#[test]
fn a_refused_step_is_stated_although_its_gpus_are_unknown() {
    let mut fleet = two_jobs();
    let why = "SLURM refuses steps of job 18".into();
    of_job(&mut fleet, 18, SessionEvent::Down { why, retry_at_ms: 90_000 }, 30_000);
    assert_eq!(
        limits(node(&fleet, "n1")),
        ["1 of 4 GPUs visible: those of job 17; there is no probe in job 18: SLURM refuses steps of job 18"]
    );
}

#[test]
fn a_probe_without_samples_is_not_shown_as_idle_or_current() {
    let mut fleet = both_seen();
    line(&mut fleet, "n1", sample(55, &[24]), 5_500);
    fleet.handle(Event::Tick, 5_500);
    line(&mut fleet, "n1", sample(56, &[24]), 6_000);
    assert_eq!((gpus(&fleet)[0].1, node(&fleet, "n1").gpus[0].fault.clone()), (None, None));
    line(&mut fleet, "n1", sample(67, &[24]), 17_500);
    fleet.handle(Event::Tick, 17_500);
    assert_eq!(node(&fleet, "n1").gpus[0].fault, Some("the probe of job 18 is silent".into()));
}

#[test]
fn the_gpus_of_a_job_that_ends_leave_and_those_of_others_stay() {
    let mut fleet = both_seen();
    job_line(&mut fleet, 18, process("n1", 0, 8, Some(18)), 2_100);
    jobs(&mut fleet, vec![job(17, &[("n1", &[2])])], 4_500);
    assert_eq!(gpus(&fleet), [(2, Some(23), vec![(17, Evidence::GresIndex)])]);
    assert!(processes(&fleet).is_empty() && wanted(&fleet).is_empty());
    assert_eq!(limits(node(&fleet, "n1")), ["1 of 4 GPUs visible: this probe was adopted into job 17"]);
    // Its last lines are late, and the job's last picture has its GPU.
    job_line(&mut fleet, 18, sample(52, &[1]), 4_600);
    line(&mut fleet, "n1", sample(52, &[25]), 4_700);
    assert_eq!(gpus(&fleet).len(), 1);
    let topic = nodeglass_protocol::live::Topic::Job(JobId(18));
    assert_eq!(fleet.nodes_of(&topic).unwrap()[0].gpus[0].row.value(GpuField::Util), Some(80));
}

#[test]
fn the_nodes_probe_moves_to_another_job_when_its_own_ends() {
    let mut fleet = both_seen();
    jobs(&mut fleet, vec![job(18, &[("n1", &[0])])], 3_000);
    line(&mut fleet, "n1", confined(18, &[0]), 3_500);
    assert!(wanted(&fleet).is_empty());
    line(&mut fleet, "n1", sample(54, &[83]), 4_000);
    assert_eq!(gpus(&fleet), [(0, Some(83), vec![(18, Evidence::GresIndex)])]);
    let history = node(&fleet, "n1").history.as_ref().unwrap();
    let points: Vec<_> = history.gpu(0, GpuField::Util).unwrap().points().collect();
    let known: Vec<_> = points.iter().filter_map(|(_, cell)| cell.as_ref()?.value()).collect();
    assert_eq!((known.first(), known.last()), (Some(&80), Some(&83)));
}

#[test]
fn a_node_whose_gpus_are_all_visible_states_no_limit() {
    let mut fleet = two_jobs();
    jobs(&mut fleet, vec![job(17, &[("n1", &[2])]), job(18, &[("n1", &[0, 1, 3])])], 1_000);
    job_line(&mut fleet, 18, confined(18, &[0, 1, 3]), 1_100);
    assert_eq!(gpus(&fleet).iter().map(|gpu| gpu.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(limits(node(&fleet, "n1")).is_empty());
}

#[test]
fn an_event_of_a_gpu_is_recorded_once() {
    let mut fleet = both_seen();
    let xid = |gpu| {
        ProbeLine::Event(GpuEvent {
            mono_ns: 0,
            gpu: Some(uuid("n1", gpu)),
            xid: Some(79),
            text: "Xid".into(),
        })
    };
    job_line(&mut fleet, 18, xid(0), 2_100);
    job_line(&mut fleet, 18, xid(2), 2_100);
    line(&mut fleet, "n1", xid(2), 2_100);
    let events = &node(&fleet, "n1").head.events;
    assert_eq!(
        events.iter().map(|event| event.gpu.clone()).collect::<Vec<_>>(),
        [Some(uuid("n1", 0)), Some(uuid("n1", 2))]
    );
}

#[test]
fn health_of_each_probe_belongs_to_its_gpus() {
    let mut fleet = both_seen();
    job_line(&mut fleet, 18, health(&[(2, 11, 5)]), 2_100);
    line(&mut fleet, "n1", health(&[(2, 22, 6)]), 2_200);
    let replays = |at: usize| node(&fleet, "n1").gpus[at].health.pcie_replays.value().copied();
    assert_eq!([replays(0), replays(1)], [Some(11), Some(22)]);
}
