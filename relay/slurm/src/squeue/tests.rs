//! Tests of [`super`]: recorded lists, and lists made of any bytes.

use super::*;
use proptest::prelude::*;

/// Recorded on SLURM 22.05.8 with this mark.
const RECORDED: &[u8] = include_bytes!("../../tests/22.05/squeue.out");
const ALICE: u32 = 2001;

fn recorded_mark() -> Delimiter {
    Delimiter::of(0x0123_4567_89ab)
}

fn recorded() -> Vec<Job> {
    let list = read(RECORDED, &Selection::own(ALICE), &recorded_mark());
    assert_eq!((list.refused, list.noise), (0, false));
    list.jobs
}

fn job(id: u32) -> Job {
    recorded().into_iter().find(|job| job.id == JobId(id)).unwrap()
}

/// What squeue would print for one job with these fields.
fn printed(delimiter: &Delimiter, fields: &[&[u8]]) -> Vec<u8> {
    let mut out = delimiter.record().into_bytes();
    for field in fields {
        out.extend_from_slice(delimiter.field().as_bytes());
        out.extend_from_slice(field);
    }
    out.push(b'\n');
    out
}

/// The fields of a running job, up to the name.
fn fields<'a>(id: &'a [u8], uid: &'a [u8], name: &'a [u8]) -> Vec<&'a [u8]> {
    let mut fields: Vec<&[u8]> =
        vec![id, id, id, b"N/A", uid, b"alice", b"RUNNING", b"None", b"gpu", b"normal", b"ml"];
    fields.extend([
        &b"1795230797"[..],
        b"1795230797",
        b"1795237997",
        b"2:00:00",
        b"1",
        b"4",
        b"n1",
        b"gres:gpu:2",
        b"afterok:4(unfulfilled)",
        b"n1",
        b"/home/alice",
        b"/home/alice/run.sh --lr 1",
        name,
    ]);
    fields
}

fn one(fields: &[&[u8]]) -> Job {
    let delimiter = Delimiter::of(7);
    let mut list = read(&printed(&delimiter, fields), &Selection::own(ALICE), &delimiter);
    assert_eq!((list.jobs.len(), list.refused), (1, 0));
    list.jobs.remove(0)
}

#[test]
fn every_recorded_job_is_read() {
    let ids: Vec<u32> = recorded().iter().map(|job| job.id.0).collect();
    assert_eq!(ids, [19, 21, 20, 3, 13, 15, 14, 1, 2, 8, 9, 4, 5, 7, 10, 11, 12, 16, 17, 18, 6]);
    assert!(recorded().iter().all(|job| job.user.as_str() == "alice"));
}

#[test]
fn the_line_that_names_the_cluster_is_no_noise() {
    let of_cluster = [b"CLUSTER: hopper\n", RECORDED].concat();
    let list = read(&of_cluster, &Selection::own(ALICE), &recorded_mark());
    assert_eq!(list, read(RECORDED, &Selection::own(ALICE), &recorded_mark()));
    assert!(!list.noise);
    let warned = [b"CLUSTER: hopper\nwarning\n", RECORDED].concat();
    assert!(read(&warned, &Selection::own(ALICE), &recorded_mark()).noise);
}

#[test]
fn a_running_job_has_its_nodes_times_and_limit() {
    let job = job(2);
    assert_eq!(job.state, JobState::Running);
    assert_eq!(
        job.nodes.iter().map(|node| node.as_str()).collect::<Vec<_>>(),
        ["gpu-node-01", "gpu-node-02"]
    );
    assert_eq!((job.submitted, job.start, job.ended), (Some(1_795_230_797), Some(1_795_230_797), None));
    assert_eq!(job.limit, TimeLimit::Seconds(86_400));
    assert_eq!((job.node_count, job.cpus, job.gpu_count), (2, Some(8), Some(4)));
    assert_eq!((job.account, job.qos, job.reason), (None, None, None));
}

#[test]
fn a_job_has_its_reason_and_working_directory() {
    let job = one(&fields(b"6", b"2001", b"ok"));
    assert_eq!(job.dependency, Some("afterok:4(unfulfilled)".into()));
    assert_eq!(job.batch_host, NodeName::new("n1").ok());
    assert_eq!(job.workdir, Some("/home/alice".into()));
    assert_eq!(job.command, Some("/home/alice/run.sh --lr 1".into()));
    let waiting = self::job(13);
    assert_eq!((waiting.dependency, waiting.batch_host, waiting.command), (None, None, None));
    assert_eq!(waiting.workdir, Some("/home/alice".into()));
}

#[test]
fn array_tasks_and_the_pending_rest_know_their_array() {
    let array = |task| Some(Parent::Array { job: JobId(3), task });
    assert_eq!((job(8).label.as_str(), job(8).part_of), ("3_0", array(Some(0))));
    assert_eq!((job(9).label.as_str(), job(9).part_of), ("3_1", array(Some(1))));
    assert_eq!((job(3).label.as_str(), job(3).part_of), ("3_[2-5%2]", array(None)));
    assert_eq!((job(3).state, job(3).nodes.len()), (JobState::Pending, 0));
}

#[test]
fn parts_of_a_heterogeneous_job_know_their_leader() {
    let part = |offset| Some(Parent::Het { job: JobId(4), offset });
    assert_eq!((job(4).part_of, job(5).part_of), (part(0), part(1)));
    assert_eq!((job(4).gpu_count, job(5).gpu_count, job(1).part_of), (Some(1), None, None));
}

#[test]
fn pending_jobs_have_their_reason_and_expected_start() {
    assert_eq!(job(13).reason, Some("Resources".into()));
    assert_eq!((job(13).start, job(13).gpu_count), (Some(1_826_766_799), Some(16)));
    assert_eq!((job(14).reason, job(14).start), (Some("JobHeldUser".into()), None));
    assert_eq!(job(15).limit, TimeLimit::Unlimited);
}

#[test]
fn suspended_completing_and_ended_jobs_are_distinguished() {
    assert_eq!(job(18).state, JobState::Suspended);
    assert_eq!(job(21).state, JobState::Completing);
    assert_eq!((job(19).state, job(19).ended), (JobState::Ended("CANCELLED".into()), Some(1_795_230_802)));
    assert_eq!(
        (job(20).state, job(20).reason),
        (JobState::Ended("FAILED".into()), Some("NonZeroExitCode".into()))
    );
    assert!(job(18).is_active() && job(21).is_active() && !job(19).is_active());
}

#[test]
fn t13_names_of_any_bytes_are_shown_clean() {
    assert_eq!(job(7).name.as_str(), "we|ird \"näme\", 100% x=y;");
    assert_eq!(job(10).name.as_str(), "two lines   [31mred tab");
    assert_eq!(job(11).name.as_str(), "bad\u{fffd}\u{fffd}utf8");
    assert_eq!(job(12).name.as_str(), "");
}

#[test]
fn t18_a_name_that_imitates_the_separators_stays_a_name() {
    let guess = Delimiter::of(0);
    let mut forged = b"x\n".to_vec();
    forged.extend(printed(&guess, &fields(b"666", b"2001", b"forged")));
    let job = one(&fields(b"5", b"2001", &forged));
    assert_eq!(job.id, JobId(5));
    assert!(job.name.as_str().starts_with("x"));
}

#[test]
fn another_users_job_is_refused_even_if_squeue_lists_it() {
    let delimiter = Delimiter::of(7);
    let mut out = printed(&delimiter, &fields(b"5", b"2002", b"bob's"));
    out.extend(printed(&delimiter, &fields(b"6", b"2001", b"mine")));
    let list = read(&out, &Selection::own(ALICE), &delimiter);
    assert_eq!((list.jobs.len(), list.refused), (1, 1));
    assert_eq!(list.jobs[0].id, JobId(6));
}

#[test]
fn t18_a_record_with_a_field_too_few_or_too_many_is_refused_and_the_next_is_read() {
    let delimiter = Delimiter::of(7);
    let good = fields(b"6", b"2001", b"ok");
    let (mut long, short) = (good.clone(), &good[1..]);
    long.push(b"more");
    let mut out = printed(&delimiter, short);
    out.extend(printed(&delimiter, &long));
    out.extend(printed(&delimiter, &good));
    let list = read(&out, &Selection::own(ALICE), &delimiter);
    assert_eq!((list.jobs.len(), list.refused), (1, 2));
}

#[test]
fn a_number_listed_twice_counts_once() {
    let delimiter = Delimiter::of(7);
    let mut out = printed(&delimiter, &fields(b"6", b"2001", b"first"));
    out.extend(printed(&delimiter, &fields(b"6", b"2001", b"second")));
    let list = read(&out, &Selection::own(ALICE), &delimiter);
    assert_eq!((list.jobs.len(), list.jobs[0].name.as_str()), (1, "first"));
}

#[test]
fn t16_a_hostile_node_list_costs_the_nodes_and_neither_the_job_nor_the_rest_of_the_list() {
    for nodes in [&b"-oProxyCommand=x"[..], b"n[1-", b"n[0-999999999]", b"a b", b"\xff"] {
        let mut fields = fields(b"6", b"2001", b"ok");
        fields[17] = nodes;
        assert_eq!(one(&fields).nodes, []);
    }
    let delimiter = Delimiter::of(7);
    let long = vec![b'x'; 10_000];
    let ids: Vec<String> = (0..20).map(|id| (100 + id).to_string()).collect();
    let hostile: [&[u8]; 10] = [
        b"-oProxyCommand=touch x",
        b"a b",
        b"a\0b",
        b"::1",
        &long,
        "g\u{202e}1".as_bytes(),
        b"-",
        b".hidden",
        b"$(x)",
        b"a/b",
    ];
    let mut out = Vec::new();
    for (id, nodes) in ids.iter().zip(hostile.iter().flat_map(|nodes| [&b"good-01"[..], nodes])) {
        let mut fields = fields(id.as_bytes(), b"2001", b"ok");
        // Its nodes and its batch host.
        (fields[17], fields[20]) = (nodes, nodes);
        out.extend(printed(&delimiter, &fields));
    }
    let list = read(&out, &Selection::own(ALICE), &delimiter);
    assert_eq!((list.jobs.len(), list.refused), (20, 0));
    for pair in list.jobs.chunks(2) {
        assert_eq!(pair[0].nodes, [NodeName::new("good-01").unwrap()]);
        assert_eq!((&pair[1].nodes[..], &pair[1].batch_host), (&[][..], &None));
    }
}

#[test]
fn t16_a_job_id_that_is_no_number_is_no_job() {
    let long = vec![b'9'; 10_000];
    for id in
        [&b"-1"[..], b"+1", b"1;x", b"1 -x", b"0x1", b"4294967296", b"1e3", b"", b"\xff1", b"\xd9\xa1", &long]
    {
        let delimiter = Delimiter::of(7);
        let list =
            read(&printed(&delimiter, &fields(id, b"2001", b"ok")), &Selection::own(ALICE), &delimiter);
        assert!(list.jobs.iter().all(|job| job.id == JobId(1) && id == b"+1"), "{id:?}");
    }
}

#[test]
fn t18_numbers_beyond_reason_are_no_numbers() {
    for number in [
        "-1",
        "-9223372036854775808",
        "9223372036854775807",
        "99999999999999999999",
        "0",
        "1e9",
        "NaN",
        "inf",
    ] {
        let mut fields = fields(b"6", b"2001", b"ok");
        fields[6] = b"FAILED";
        // Submitted, start, end, limit, nodes, CPUs.
        fields[11..17].fill(number.as_bytes());
        let job = one(&fields);
        assert_eq!((job.submitted, job.start, job.ended), (None, None, None), "{number}");
        assert_eq!(job.limit, TimeLimit::Unknown, "{number}");
        assert!(job.cpus.is_none_or(|cpus| cpus <= 1_000_000_000), "{number}: {:?}", job.cpus);
    }
    for limit in ["18446744073709551615-00:00:00", "1-99999999999999999999:0:0", "-1:-1", "::", "1:2:3:4"] {
        let mut fields = fields(b"6", b"2001", b"ok");
        fields[14] = limit.as_bytes();
        assert_eq!(one(&fields).limit, TimeLimit::Unknown, "{limit}");
    }
}

#[test]
fn t18_a_list_of_node_lists_is_bounded_in_all() {
    let delimiter = Delimiter::of(7);
    let ids: Vec<String> = (1..=200).map(|id| id.to_string()).collect();
    let out: Vec<u8> = ids
        .iter()
        .flat_map(|id| {
            let mut fields = fields(id.as_bytes(), b"2001", b"ok");
            fields[17] = b"n[1-65536]";
            printed(&delimiter, &fields)
        })
        .collect();
    let list = read(&out, &Selection::own(ALICE), &delimiter);
    assert_eq!(list.jobs.len(), 200, "each job is shown");
    assert!(list.jobs.iter().map(|job| job.nodes.len()).sum::<usize>() <= 1_000_000);
}

#[test]
fn t18_fifty_megabytes_of_garbage_are_rejected() {
    let delimiter = Delimiter::of(7);
    for piece in [&b"\x1e"[..], b"\x1f", b"\0", b"\n", b"\xff\xfe", b"{\"jobs\": [", b"JobId=1 "] {
        // The first of them in full; a debug build takes its time.
        let length = if piece == b"\x1e" { 50 << 20 } else { 2 << 20 };
        let list = read(&piece.repeat(length / piece.len()), &Selection::own(ALICE), &delimiter);
        assert!(list.jobs.is_empty() && (list.noise || list.refused > 0 || piece == b"\n"), "{piece:?}");
    }
    let records = [delimiter.record().as_bytes(), delimiter.field().as_bytes()].concat().repeat(1 << 16);
    assert_eq!(read(&records, &Selection::own(ALICE), &delimiter).refused, 1 << 16);
}

#[test]
fn t26_a_job_s_command_is_shown_without_its_secrets() {
    let mut fields = fields(b"6", b"2001", b"ok");
    fields[22] = b"/home/alice/run.sh --api-key hunter2 --lr 1";
    assert_eq!(
        one(&fields).command,
        Some("/home/alice/run.sh --api-key \u{2022}\u{2022}\u{2022} --lr 1".into())
    );
}

#[test]
fn states_of_every_release_fall_into_place() {
    for (word, state) in [
        ("CONFIGURING", JobState::Configuring),
        ("STOPPED", JobState::Suspended),
        ("REQUEUE_HOLD", JobState::Pending),
        ("SPECIAL_EXIT", JobState::Pending),
        ("RESIZING", JobState::Other("RESIZING".into())),
        ("STAGE_OUT", JobState::Other("STAGE_OUT".into())),
        ("OUT_OF_MEMORY", JobState::Ended("OUT_OF_MEMORY".into())),
        ("REVOKED", JobState::Ended("REVOKED".into())),
        ("SOMETHING_NEW", JobState::Other("SOMETHING_NEW".into())),
    ] {
        assert_eq!(job_state(word, false), state, "{word}");
    }
    assert_eq!(job_state("SOMETHING_NEW", true), JobState::Pending);
}

#[test]
fn time_limits_are_read_in_every_form() {
    for (word, limit) in [
        ("5:00", TimeLimit::Seconds(300)),
        ("2:00:00", TimeLimit::Seconds(7200)),
        ("365-00:00:00", TimeLimit::Seconds(31_536_000)),
        ("UNLIMITED", TimeLimit::Unlimited),
        ("INVALID", TimeLimit::Unknown),
        ("N/A", TimeLimit::Unknown),
        ("", TimeLimit::Unknown),
        ("99999999999999999-00:00:00", TimeLimit::Unknown),
        ("-1:00", TimeLimit::Unknown),
    ] {
        assert_eq!(time_limit(word), limit, "{word}");
    }
}

#[test]
fn shortened_numbers_are_written_out() {
    for (word, number) in
        [("4", Some(4)), ("1K", Some(1024)), ("1.50K", Some(1536)), ("4-8", Some(4)), ("x", None)]
    {
        assert_eq!(count(word), number, "{word}");
    }
    for word in ["NaN", "inf", "-3", "1e300", ""] {
        assert_eq!(count(word), None, "{word}");
    }
}

#[test]
fn arguments_use_no_shell_and_name_only_the_given_user() {
    let args = args(&Selection::own(2001), &Delimiter::of(7));
    assert!(args.contains(&"--user=2001".to_owned()));
    assert!(args.iter().all(|arg| arg.starts_with("--")));
    assert_eq!(args.last().unwrap().matches('%').count(), FIELDS.len());
}

#[test]
fn marks_differ() {
    assert_ne!(Delimiter::random(), Delimiter::random());
}

proptest! {
    #[test]
    fn t18_no_bytes_panic_or_yield_another_users_job(
        noise in proptest::collection::vec(any::<u8>(), 0..200),
        cut in 0usize..8000,
        at in 0usize..8000,
    ) {
        let mut bytes = RECORDED.to_vec();
        bytes.truncate(cut);
        let at = at.min(bytes.len());
        bytes.splice(at..at, noise);
        for uid in [ALICE, 2002] {
            for job in read(&bytes, &Selection::own(uid), &recorded_mark()).jobs {
                prop_assert!(uid == ALICE && job.user.as_str().len() <= 256);
            }
        }
    }

    #[test]
    fn names_and_reasons_of_any_bytes_are_parsed_separately(
        texts in proptest::collection::vec((any::<Vec<u8>>(), any::<Vec<u8>>()), 1..5)
    ) {
        let delimiter = Delimiter::of(0xfeed_beef_cafe);
        let ids: Vec<String> = (1..=texts.len()).map(|id| id.to_string()).collect();
        let out: Vec<u8> = texts.iter().zip(&ids).flat_map(|((name, reason), id)| {
            let mut fields = fields(id.as_bytes(), b"2001", name);
            fields[7] = reason;
            printed(&delimiter, &fields)
        }).collect();
        let list = read(&out, &Selection::own(ALICE), &delimiter);
        prop_assert_eq!(list.jobs.len(), texts.len());
        for (job, (name, _)) in list.jobs.iter().zip(&texts) {
            prop_assert_eq!(&job.name, &Text::from_bytes(name));
        }
    }
}
