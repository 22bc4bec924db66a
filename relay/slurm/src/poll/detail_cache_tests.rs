//! Tests of [`super`]: what is queried, how often, and what a job shows meanwhile.

use super::*;
use crate::scontrol::JobFields;

fn job(id: u32, nodes: &[&str]) -> Job {
    Job {
        partition: "gpu".into(),
        start: Some(100),
        nodes: nodes.iter().map(|node| NodeName::new(*node).unwrap()).collect(),
        node_count: nodes.len() as u32,
        ..Job::new(JobId(id), "alice".into(), JobState::Running)
    }
}

fn detail(job: &Job, indices: &[u32]) -> Detail {
    let set = || GpuSet::Indices(indices.to_vec());
    let gpus = job.nodes.iter().map(|node| NodeGpus { node: node.clone(), set: set() }).collect();
    Detail { gpus, gpu_count: Some(indices.len() as u32), facts: JobFields::default() }
}

fn each(ids: &[u32]) -> DetailQuery {
    DetailQuery::Each(ids.iter().copied().map(JobId).collect())
}

#[test]
fn a_job_is_queried_once_and_again_after_ten_minutes() {
    let (mut cache, jobs) = (DetailCache::default(), [job(1, &["n1"])]);
    assert_eq!(cache.plan(&jobs), each(&[1]));
    cache.record(&jobs[0], Some(detail(&jobs[0], &[0])));
    let queried: Vec<bool> = (0..40).map(|_| cache.plan(&jobs) != each(&[])).collect();
    assert_eq!(queried.iter().position(|queried| *queried), Some(39));
}

#[test]
fn failed_queries_are_repeated_soon() {
    let (mut cache, jobs) = (DetailCache::default(), [job(1, &["n1"])]);
    cache.plan(&jobs);
    cache.record(&jobs[0], None);
    let queried: Vec<DetailQuery> = (0..4).map(|_| cache.plan(&jobs)).collect();
    assert_eq!(queried, [each(&[]), each(&[]), each(&[]), each(&[1])]);
}

#[test]
fn new_nodes_and_a_new_start_are_queried_but_completing_is_not() {
    let mut cache = DetailCache::default();
    let first = job(1, &["n1", "n2"]);
    cache.record(&first, Some(detail(&first, &[0])));
    assert_eq!(cache.plan(&[job(1, &["n1"])]), each(&[1]));
    assert_eq!(cache.plan(&[Job { start: Some(200), ..first.clone() }]), each(&[1]));
    let completing = Job { state: JobState::Completing, ..job(1, &["n2"]) };
    assert_eq!(cache.plan(&[completing]), each(&[]));
}

#[test]
fn a_pending_job_is_queried_once_and_one_per_poll() {
    let mut cache = DetailCache::default();
    let waiting = |id: u32, start: i64| Job { state: JobState::Pending, start: Some(start), ..job(id, &[]) };
    let jobs = [waiting(1, 100), waiting(2, 100)];
    assert_eq!(cache.plan(&jobs), each(&[1]));
    cache.record(&jobs[0], Some(detail(&jobs[0], &[])));
    assert_eq!(cache.plan(&[waiting(1, 200), waiting(2, 200)]), each(&[2]));
    assert_eq!(cache.plan(&[waiting(1, 300), waiting(2, 300), job(3, &["n1"])]), each(&[3]));
    let begun = job(1, &["n1"]);
    assert_eq!(cache.plan(&[begun]), each(&[1]));
}

#[test]
fn an_ended_job_is_queried_once_more_and_keeps_its_gpus() {
    let mut cache = DetailCache::default();
    let running = job(1, &["n1"]);
    cache.record(&running, Some(detail(&running, &[2])));
    let mut ended = [Job { state: JobState::Ended("FAILED".into()), ..running }];
    assert_eq!(cache.plan(&ended), each(&[1]));
    cache.record(&ended[0], Some(detail(&ended[0], &[])));
    assert!((0..100).all(|_| cache.plan(&ended) == each(&[])));
    cache.fill(&mut ended);
    assert_eq!((ended[0].gpus[0].set.clone(), ended[0].gpu_count), (GpuSet::Indices(vec![2]), Some(1)));
}

#[test]
fn many_new_jobs_are_queried_at_once_and_unclear_ones_one_by_one() {
    let mut cache = DetailCache::default();
    let jobs: Vec<Job> = (1..=20).map(|id| job(id, &["n1"])).collect();
    assert_eq!(cache.plan(&jobs), DetailQuery::All);
    assert_eq!(cache.plan(&jobs), each(&[1, 2, 3, 4, 5, 6, 7, 8]));
    for job in &jobs[..15] {
        cache.record(job, Some(detail(job, &[0])));
    }
    assert_eq!(cache.plan(&jobs), each(&[16, 17, 18, 19, 20]));
}

#[test]
fn tasks_of_an_array_that_come_and_go_with_each_poll_cost_one_query_a_poll() {
    let mut cache = DetailCache::default();
    for poll in 0..10 {
        // Ten tasks have ended since the last poll, and as many have started.
        let task = |id| match id <= 10 * poll {
            true => Job { state: JobState::Ended("COMPLETED".into()), ..job(id, &["n1"]) },
            false => job(id, &["n1"]),
        };
        let jobs: Vec<Job> = (1..=10 * poll + 10).map(task).collect();
        assert_eq!(cache.plan(&jobs), DetailQuery::All, "poll {poll}");
        jobs.iter().for_each(|job| cache.record(job, Some(detail(job, &[0]))));
    }
}

#[test]
fn many_pending_jobs_are_queried_at_once_and_200_known_ones_refreshed_rarely() {
    let mut cache = DetailCache::default();
    let jobs: Vec<Job> = (1..=200).map(|id| Job { state: JobState::Pending, ..job(id, &[]) }).collect();
    assert_eq!(cache.plan(&jobs), DetailQuery::All);
    jobs.iter().for_each(|job| cache.record(job, Some(detail(job, &[]))));
    let mut queried = 0;
    for _ in 0..400 {
        let DetailQuery::Each(ids) = cache.plan(&jobs) else { panic!("all again") };
        for id in &ids {
            let job = jobs.iter().find(|job| job.id == *id).unwrap();
            cache.record(job, Some(detail(job, &[])));
        }
        queried += ids.len();
    }
    assert!((1..=50).contains(&queried), "{queried} queries in 400 polls");
}

#[test]
fn a_job_without_details_is_queried_with_back_off() {
    let (mut cache, jobs) = (DetailCache::default(), [job(1, &["n1"])]);
    let mut queried = Vec::new();
    for poll in 0..150 {
        if cache.plan(&jobs) != each(&[]) {
            queried.push(poll);
            cache.record(&jobs[0], None);
        }
    }
    assert_eq!(queried, [0, 4, 12, 28, 60, 100, 140]);
}

#[test]
fn jobs_without_details_cost_at_most_four_requests_a_minute() {
    for count in [18, 60] {
        let (mut cache, mut poll_schedule) = (DetailCache::default(), crate::PollSchedule::default());
        let jobs: Vec<Job> = (1..=count).map(|id| job(id, &["n1"])).collect();
        let (mut queried, mut now_s) = (HashMap::<JobId, u32>::new(), 0);
        let (mut requests_settled, mut since_s) = (0, None);
        while now_s < 6 * 3_600 {
            let mut requests = 2;
            match cache.plan(&jobs) {
                DetailQuery::All => requests += 2,
                DetailQuery::Each(ids) => {
                    for id in ids {
                        requests += 2;
                        *queried.entry(id).or_default() += 1;
                        cache.record(jobs.iter().find(|job| job.id == id).unwrap(), None);
                    }
                }
            }
            let wait_s = poll_schedule.after_success(requests, now_s == 0).as_secs();
            if now_s >= 300 {
                assert!(requests <= 4, "{requests} requests after {now_s} s");
                requests_settled += u64::from(requests);
                since_s.get_or_insert(now_s);
            }
            now_s += wait_s;
        }
        let minutes = (now_s - since_s.unwrap()) / 60;
        assert!(requests_settled <= 4 * minutes + 4, "{requests_settled} requests in {minutes} minutes");
        assert_eq!(queried.len(), count as usize, "each was queried");
        let (least, most) = (queried.values().min().unwrap(), queried.values().max().unwrap());
        assert!(*least >= 2 && most - least <= 2, "in turn: {least} to {most} times");
    }
}

#[test]
fn a_node_without_details_has_unknown_gpus() {
    let mut cache = DetailCache::default();
    let old = job(1, &["n1"]);
    cache.record(&old, Some(detail(&old, &[0, 1])));
    let mut jobs = [job(1, &["n1", "n2"]), job(2, &["n3"])];
    cache.fill(&mut jobs);
    let set = |job: &Job, node: &str| job.gpus_on(&NodeName::new(node).unwrap()).cloned();
    assert_eq!(set(&jobs[0], "n1"), Some(GpuSet::Indices(vec![0, 1])));
    assert_eq!(set(&jobs[0], "n2"), Some(GpuSet::Unknown));
    assert_eq!(set(&jobs[1], "n3"), Some(GpuSet::Unknown));
    assert_eq!((jobs[0].gpu_count, jobs[1].gpu_count), (Some(2), None));
}

#[test]
fn a_failed_query_keeps_known_details_until_the_job_restarts() {
    let mut cache = DetailCache::default();
    let mut jobs = [job(1, &["n1"])];
    cache.record(&jobs[0], Some(detail(&jobs[0], &[3])));
    cache.record(&jobs[0], None);
    cache.fill(&mut jobs);
    assert_eq!(jobs[0].gpus[0].set, GpuSet::Indices(vec![3]));
    jobs[0].start = Some(200);
    cache.fill(&mut jobs);
    assert_eq!(jobs[0].gpus[0].set, GpuSet::Unknown);
}

#[test]
fn jobs_that_left_the_list_are_forgotten() {
    let mut cache = DetailCache::default();
    let first = job(1, &["n1"]);
    cache.record(&first, Some(detail(&first, &[0])));
    cache.plan(&[]);
    assert_eq!(cache.plan(&[first]), each(&[1]));
}
