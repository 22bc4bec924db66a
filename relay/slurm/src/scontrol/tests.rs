//! Tests of [`super`]: each release's form, and blocks that lie.

use super::*;
use nodeglass_protocol::LongText;
use nodeglass_protocol::job::{Job, JobState};
use proptest::prelude::*;

const ALICE: u32 = 2001;
const RECORDED: &[u8] = include_bytes!("../../tests/22.05/scontrol-jobs.out");

macro_rules! release {
    ($release:literal) => {
        read(include_bytes!(concat!("../../tests/", $release, "/scontrol-jobs.out")), &Selection::own(ALICE))
    };
}

/// What is known of a job, as text: `g01:0,1 g02:?`, then the total.
fn gpus_of(found: &HashMap<JobId, Option<Detail>>, id: u32) -> (String, Option<u32>) {
    let detail = found.get(&JobId(id)).expect("the block is there").as_ref().expect("it is not doubtful");
    let sets = detail.gpus.iter().map(|gpus| {
        let set = match &gpus.set {
            GpuSet::Indices(list) => list.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            GpuSet::Count(count) => format!("{count}x"),
            GpuSet::Unknown => "?".to_owned(),
        };
        format!("{}:{set}", gpus.node)
    });
    (sets.collect::<Vec<_>>().join(" "), detail.gpu_count)
}

fn want(text: &str, count: u32) -> (String, Option<u32>) {
    (text.to_owned(), Some(count))
}

#[test]
fn a_block_that_is_cut_off_is_unknown_and_the_blocks_before_it_are_not() {
    let whole = read(RECORDED, &Selection::own(ALICE));
    for end in (0..RECORDED.len()).step_by(7) {
        let cut = read(&RECORDED[..end], &Selection::own(ALICE));
        // A block that another one contradicts further on is whole here.
        for (id, detail) in cut.into_iter().filter(|(id, _)| whole[id].is_some()) {
            assert!(detail.is_none() || detail == whole[&id], "{id} at byte {end}: {detail:?}");
        }
    }
}

#[test]
fn the_recorded_blocks_of_22_05_yield_the_indices_on_each_node() {
    let found = read(RECORDED, &Selection::own(ALICE));
    assert_eq!(gpus_of(&found, 2), want("gpu-node-01:1,2 gpu-node-02:0,1", 4));
    assert_eq!(gpus_of(&found, 8), want("gpu-node-01:3", 1));
    assert_eq!(gpus_of(&found, 4), want("gpu-node-02:3", 1));
    assert_eq!(gpus_of(&found, 5), want("gpu-node-01:", 0));
    assert_eq!(gpus_of(&found, 16), want("gpu-node-03:0,1 gpu-node-04:0", 3));
    assert_eq!(gpus_of(&found, 18), want("gpu-node-03:2", 1));
    assert_eq!(gpus_of(&found, 10), want("gpu-node-01:", 0));
    assert_eq!(gpus_of(&found, 13), (String::new(), None));
}

#[test]
fn the_empty_gres_of_a_completing_job_does_not_mean_that_it_has_no_gpus() {
    let found = read(include_bytes!("../../tests/22.05/scontrol-completing.out"), &Selection::own(ALICE));
    assert_eq!(gpus_of(&found, 21), want("gpu-node-04:?", 1));
}

#[test]
fn t18_a_block_forged_by_another_users_job_name_makes_the_true_one_doubtful_and_no_more() {
    let found = read(RECORDED, &Selection::own(ALICE));
    assert_eq!(found[&JobId(1)], None);
    assert!(!found.contains_key(&JobId(22)) && !found.contains_key(&JobId(999)));
    // Queried by its number, the job is the only one in the output.
    let end = RECORDED.windows(7).position(|window| window == b"JobId=2").unwrap();
    assert_eq!(gpus_of(&read(&RECORDED[..end], &Selection::own(ALICE)), 1), want("gpu-node-01:0", 1));
}

#[test]
fn every_release_is_read() {
    let found = release!("20.02");
    assert_eq!((gpus_of(&found, 1), gpus_of(&found, 2)), (want("g01:0,1 g02:0,1", 4), want("g01:", 0)));
    let found = release!("20.11");
    assert_eq!((gpus_of(&found, 1), gpus_of(&found, 2)), (want("g01:0,1,7 g02:4", 4), want("g01:1", 1)));
    let found = release!("21.08");
    assert_eq!((gpus_of(&found, 1), gpus_of(&found, 2)), (want("g01:0,1,6", 3), want("g01:2x", 2)));
    let found = release!("23.02");
    assert_eq!((gpus_of(&found, 1), gpus_of(&found, 2)), (want("g01:2x", 2), want("a1:2 b7:2", 2)));
    let found = release!("23.11");
    assert_eq!((gpus_of(&found, 1), gpus_of(&found, 2)), (("g01:?".to_owned(), None), want("g01:", 0)));
    let found = release!("24.05");
    assert_eq!((gpus_of(&found, 1), gpus_of(&found, 2)), (want("g01:1,2 g02:0,5", 4), want("g01:2", 1)));
    let found = release!("25.05");
    let all = "0,1,2,3,4,5,6,7";
    let nodes = format!("r1n1:{all} r1n2:{all} r2n1:{all} r2n2:{all}");
    assert_eq!((gpus_of(&found, 1), gpus_of(&found, 2)), (want(&nodes, 32), want("", 2)));
    let found = release!("25.11");
    assert_eq!(gpus_of(&found, 1), want("g01:4,5,6,7", 4));
    let found = release!("26.05");
    assert_eq!((gpus_of(&found, 1), gpus_of(&found, 2)), (want("g01:? g02:0", 65), want("g01:?", 4)));
}

#[test]
fn mig_shards_heterogeneous_jobs_and_arrays_have_no_more_gpus_than_slurm_states() {
    let found = release!("24.11");
    let ids = [31, 32, 33, 34, 35, 36, 37, 39];
    assert_eq!(
        ids.map(|id| gpus_of(&found, id)),
        [
            want("g01:2x", 2),
            want("g01:2x", 2),
            ("g01:?".to_owned(), None),
            want("g01:0,1 g02:3", 3),
            want("g01:", 0),
            want("g01:6", 1),
            want("g02:", 0),
            want("g02:2", 1),
        ]
    );
    assert_eq!(found.len(), ids.len());
}

#[test]
fn the_recorded_blocks_yield_memory_logs_and_restarts() {
    let found = read(RECORDED, &Selection::own(ALICE));
    let filled = |id: u32| {
        let mut job = Job::new(JobId(id), "alice".into(), JobState::Running);
        found[&JobId(id)].as_ref().unwrap().facts.fill(&mut job);
        let text = |text: Option<LongText>| text.map(|text| text.to_string()).unwrap_or_default();
        (job.mem_bytes.map(|bytes| bytes >> 20), text(job.stdout), text(job.stderr), text(job.workdir))
    };
    let log = "/home/alice/slurm-2.out".to_owned();
    assert_eq!(filled(2), (Some(800), log.clone(), log, "/home/alice".to_owned()));
    // A pending job shows what it requests; the rest of an array has no log of its own.
    assert_eq!(filled(13).0, Some(400));
    assert_eq!(filled(3), (Some(100), String::new(), String::new(), "/home/alice".to_owned()));
    let newer = release!("25.11");
    let mut job = Job::new(JobId(1), "alice".into(), JobState::Running);
    newer[&JobId(1)].as_ref().unwrap().facts.fill(&mut job);
    assert_eq!((job.mem_bytes, job.stdout), (Some(800 << 20), None));
    assert_eq!(job.batch_host, NodeName::new("g01").ok());
}

fn block(name: &str, comment: &str) -> String {
    format!(
        "JobId=5 JobName={name}\n   UserId=alice(2001) GroupId=alice(2001) MCS_label=N/A\n   NodeList=n1\n   \
         TRES=cpu=1,node=1\n   Socks/Node=* CoreSpec=*\n   JOB_GRES=gpu:1\n     \
         Nodes=n1 CPU_IDs=0 Mem=1 GRES=gpu:1(IDX:3)\n   Features=(null)\n   Comment={comment}\n\n"
    )
}

#[test]
fn t18_lines_in_a_name_or_comment_cannot_add_gpus() {
    let node = "\n     Nodes=n1 CPU_IDs=0 Mem=1 GRES=gpu:1(IDX:0)\n";
    for text in [block(node, "x"), block("x", node), block(node, node)] {
        assert_eq!(gpus_of(&read(text.as_bytes(), &Selection::own(ALICE)), 5), want("n1:3", 1), "{text}");
    }
}

#[test]
fn a_field_that_occurs_twice_makes_the_block_doubtful() {
    for forged in ["JOB_GRES=gpu:8\n     Nodes=n1 GRES=gpu:8(IDX:0-7)", "Socks/Node=*", "UserId=alice(2001)"]
    {
        for text in [block(&format!("x\n   {forged}"), ""), block("x", &format!("x\n   {forged}"))] {
            assert_eq!(read(text.as_bytes(), &Selection::own(ALICE))[&JobId(5)], None, "{text}");
        }
    }
}

#[test]
fn another_users_block_is_not_read() {
    assert!(read(block("x", "").as_bytes(), &Selection::own(2002)).is_empty());
    assert_eq!(user_id("DOMAIN\\al (x) ice(2001) GroupId=y(1)"), Some(2001));
    assert_eq!(user_id("alice"), None);
}

#[test]
fn t16_a_hostile_node_name_makes_the_block_doubtful() {
    let text = block("x", "").replace("Nodes=n1", "Nodes=-oProxyCommand=x");
    assert_eq!(read(text.as_bytes(), &Selection::own(ALICE))[&JobId(5)], None);
}

#[test]
fn t18_blocks_that_another_user_forged_by_the_thousand_cost_little() {
    let nodes = "     Nodes=n[1-65536] CPU_IDs=0 Mem=1 GRES=gpu:1(IDX:3)\n".repeat(200);
    let forged = |id: u32| {
        block("x", "")
            .replace("JobId=5", &format!("JobId={id}"))
            .replace("   Features", &format!("{nodes}   Features"))
    };
    let text: String = (1_000..1_300).map(forged).chain([block("x", "")]).collect();
    let found = read(text.as_bytes(), &Selection::own(ALICE));
    assert_eq!(found.len(), 301);
    assert!(found.values().flatten().map(|detail| detail.gpus.len()).sum::<usize>() <= 1_000_000);
}

#[test]
fn t18_fifty_megabytes_of_garbage_yield_nothing() {
    for piece in
        ["JobId=", "JobId=5 ", "JobId=5\n", "   UserId=alice(2001) GroupId=x\n", "\0", "StdOut=", "\u{fffd}"]
    {
        // The first of them in full; a debug build takes its time.
        let length = if piece == "JobId=" { 50 << 20 } else { 2 << 20 };
        let found = read(&piece.as_bytes().repeat(length / piece.len()), &Selection::own(ALICE));
        assert!(found.values().all(Option::is_none), "{piece:?}");
    }
}

#[test]
fn the_clusters_name_is_read_from_the_configuration() {
    let config = include_bytes!("../../tests/22.05/scontrol-config.out");
    assert_eq!(cluster_name(config).as_deref(), Some("lab"));
    assert_eq!(cluster_name(b"ClusterName = (null)\n"), None);
    assert_eq!(cluster_name(b"\xff\n"), None);
}

#[test]
fn the_first_controller_is_read_from_the_configuration_of_old_and_new_releases() {
    let of = |config: &str| controller(config.as_bytes());
    let new = "SlurmctldHost[0]        = ctl1(10.0.0.1)\nSlurmctldHost[1]        = ctl2\n";
    assert_eq!(of(new).as_deref(), Some("ctl1(10.0.0.1)"));
    assert_eq!(of("BackupController = ctl2\nControlMachine = ctl1\n").as_deref(), Some("ctl1"));
    assert_eq!(of("SlurmctldHost = ctl1\n").as_deref(), Some("ctl1"));
    assert_eq!(of("ClusterName = lab\nSlurmctldHost[0] = (null)\n"), None);
}

#[test]
fn controllers_on_hosts_of_the_same_short_name_differ() {
    let of = |name: &str| controller(format!("SlurmctldHost[0] = ctl\n{name}").as_bytes()).unwrap();
    let own = of("SlurmctldPort = 6817\nStateSaveLocation = /var/spool/slurmctld\n");
    assert_eq!(own, "ctl:6817 (/var/spool/slurmctld)");
    assert_ne!(own, of("SlurmctldPort = 6820-6822\nStateSaveLocation = /var/spool/slurmctld\n"));
    assert_ne!(own, of("SlurmctldPort = 6817\nStateSaveLocation = /shared/ml/slurmctld\n"));
}

#[test]
fn typed_tres_are_not_added_to_the_sum_that_names_the_same_cards() {
    assert_eq!(gpus_in_tres("cpu=8,gres/gpu=4,gres/gpu:a100=4"), Some(4));
    assert_eq!(gpus_in_tres("gres/gpu:a100=2,gres/gpu:h100=1"), Some(3));
    assert_eq!(gpus_in_tres("cpu=8,node=1"), None);
    assert_eq!(gpus_in_tres("(null)"), None);
}

proptest! {
    #[test]
    fn t18_any_bytes_never_panic(noise in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..26_000) {
        let mut bytes = RECORDED.to_vec();
        let at = at.min(bytes.len());
        bytes.splice(at..at, noise);
        let _ = (read(&bytes, &Selection::own(ALICE)), cluster_name(&bytes));
        prop_assert!(read(&bytes, &Selection::own(77)).is_empty() || at < bytes.len());
    }
}
