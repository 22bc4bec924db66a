//! Replays what clusters of several releases printed about the same jobs and nodes.

use super::command::{Client, CommandError, Output, Program};
use super::{JobSource as _, Owners, Selection, Slurm};
use async_trait::async_trait;
use nodeglass_protocol::cluster::{ClusterSummary, NodeCounts};
use nodeglass_protocol::job::{GpuSet, Job, JobState};

const ALICE: u32 = 2001;

/// The recorded output of a release.
#[derive(Clone, Copy)]
struct Release {
    squeue: &'static [u8],
    jobs: &'static [u8],
    nodes: &'static [u8],
}

macro_rules! release {
    ($folder:literal) => {
        Release {
            squeue: include_bytes!(concat!("../tests/", $folder, "/squeue.out")),
            jobs: include_bytes!(concat!("../tests/", $folder, "/scontrol-jobs.out")),
            nodes: include_bytes!(concat!("../tests/", $folder, "/scontrol-nodes.out")),
        }
    };
}

const RELEASES: [(&str, Release); 4] = [
    ("20.11", release!("20.11/recorded")),
    ("22.05", release!("22.05/recorded")),
    ("24.11", release!("24.11/recorded")),
    ("26.05", release!("26.05/recorded")),
];

#[async_trait]
impl Client for Release {
    async fn run(&mut self, program: Program, args: &[String]) -> Result<Output, CommandError> {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let plain: Vec<&str> = args.iter().copied().filter(|arg| !arg.starts_with("--")).collect();
        let out = match (program, plain.as_slice()) {
            (Program::Squeue, _) => self.list(args.last().expect("a format")),
            (_, ["show", "node"]) => self.nodes.to_vec(),
            (_, ["show", "job"]) => self.jobs.to_vec(),
            (_, ["show", "job", id]) => self.block(id),
            _ => b"ClusterName             = lab\n".to_vec(),
        };
        Ok(Output { out, err: String::new() })
    }
}

impl Release {
    /// The list with the separator of this query.
    fn list(self, format: &str) -> Vec<u8> {
        let mark = format.trim_start_matches("--format=\u{1e}").split('\u{1f}').next().expect("a mark");
        replace(self.squeue, b"0123456789ab", mark.as_bytes())
    }

    /// What scontrol prints for one job.
    fn block(self, id: &str) -> Vec<u8> {
        let start = format!("JobId={id} ");
        let blocks = split(self.jobs, b"\n\n");
        let found = blocks.into_iter().find(|block| block.starts_with(start.as_bytes()));
        found.map(|block| [block, b"\n\n"].concat()).unwrap_or_default()
    }
}

fn split<'a>(mut bytes: &'a [u8], by: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    while let Some(at) = bytes.windows(by.len()).position(|window| window == by) {
        pieces.push(&bytes[..at]);
        bytes = &bytes[at + by.len()..];
    }
    pieces.push(bytes);
    pieces
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    split(bytes, from).join(to)
}

/// Polls until the details are complete.
async fn read(release: Release) -> (Vec<Job>, ClusterSummary) {
    let mut slurm = Slurm::detect_with(release, Selection::of(ALICE, Owners::All)).await.unwrap();
    let (mut jobs, mut cluster) = (Vec::new(), None);
    for _ in 0..6 {
        jobs = slurm.jobs().await.unwrap();
        cluster = slurm.take_cluster().or(cluster);
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
    }
    (jobs, cluster.expect("the nodes are queried once a minute"))
}

/// `train running gpu-node-01:0,1 gpu-node-02:0,1 =4`.
fn row(job: &Job) -> String {
    let state = match &job.state {
        JobState::Ended(state) | JobState::Other(state) => state.to_string(),
        state => format!("{state:?}").to_lowercase(),
    };
    let nodes = job.nodes.iter().map(|node| {
        let set = match job.gpus_on(node) {
            Some(GpuSet::Indices(list)) => list.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            Some(GpuSet::Count(count)) => format!("{count}x"),
            Some(GpuSet::Unknown) | None => "?".to_owned(),
        };
        format!(" {node}:{set}")
    });
    let count = job.gpu_count.map_or("?".to_owned(), |count| count.to_string());
    format!("{} {state}{} ={count}", job.name, nodes.collect::<String>())
}

/// GPUs are unknown where a name forges the beginning of another job's block, for shares of GPUs, and once a
/// completing job's GPUs are no longer stated.
const JOBS: [&str; 17] = [
    "after pending =?",
    "any JobId=1 JobName=x    [31m|\"\u{fffd}'\\ & running gpu-node-06:? =?",
    "array pending =1",
    "array running gpu-node-02:2 =1",
    "gpus-3 running gpu-node-03:0,1,2 =3",
    "held pending =8",
    "het running gpu-node-01:2 =1",
    "het running gpu-node-06: =0",
    "mig running gpu-node-05:2x =2",
    "no-gpu running gpu-node-06: =0",
    "of bob running gpu-node-03:3 =1",
    "part-of-a-gpu running gpu-node-04:? =?",
    "paused suspended gpu-node-06: =0",
    "stubborn completing gpu-node-02:? =1",
    "train running gpu-node-01:0,1 gpu-node-02:0,1 =4",
    "untyped running gpu-node-04:0 =1",
    "waiting pending =8",
];

#[tokio::test(start_paused = true)]
async fn f12_jobs_of_every_kind_are_read_alike_in_every_recorded_release() {
    for (name, release) in RELEASES {
        let (jobs, _) = read(release).await;
        let mut rows: Vec<String> = jobs.iter().map(row).collect();
        rows.sort();
        assert_eq!(rows, JOBS, "{name}");
        let label = |name: &str, offset| {
            let mut jobs = jobs.iter().filter(|job| job.name.as_str() == name);
            jobs.nth(offset).map(|job| job.label.as_str().replace(char::is_numeric, "")).unwrap_or_default()
        };
        assert_eq!((label("array", 0), label("array", 1)), ("_[-%]".to_owned(), "_".to_owned()), "{name}");
        assert_eq!((label("het", 0), label("het", 1)), ("+".to_owned(), "+".to_owned()), "{name}");
        let train = jobs.iter().find(|job| job.name.as_str() == "train").expect("the job");
        let log = format!("/home/alice/slurm-{}.out", train.id);
        let paths = [&train.stdout, &train.stderr].map(|path| path.as_ref().map(ToString::to_string));
        assert_eq!((paths, train.mem_bytes), ([Some(log.clone()), Some(log)], Some(200 << 20)), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_are_counted_alike_in_every_recorded_release() {
    for (name, release) in RELEASES {
        let (_, cluster) = read(release).await;
        assert_eq!(
            cluster.partitions.iter().map(|part| part.name.as_str()).collect::<Vec<_>>(),
            ["gpu", "short"]
        );
        for partition in &cluster.partitions {
            let nodes = NodeCounts { mixed: 3, drained: 1, down: 1, other: 1, ..NodeCounts::default() };
            assert_eq!(partition.nodes, nodes, "{name}");
            let gpus = partition.gpus.iter().flatten().map(|gpus| {
                let kind = gpus.kind.as_ref().map_or("untyped", |kind| kind.as_str());
                let numbers = [gpus.allocated, gpus.unavailable, gpus.free()];
                format!("{kind} {} {:?}", gpus.total, numbers.map(|number| number.expect("it is known")))
            });
            // One untyped GPU is allocated, and shares of another.
            let want = ["untyped 4 [2, 0, 2]", "1g.10gb 4 [2, 2, 0]", "a100 8 [6, 0, 2]", "h100 4 [4, 0, 0]"];
            assert_eq!(gpus.collect::<Vec<_>>(), want, "{name}");
        }
        let unavailable = cluster.unavailable.iter();
        let unavailable: Vec<_> = unavailable
            .map(|node| {
                (node.name.as_str(), node.reason.as_ref().map(|why| why.as_str()), node.since.is_some())
            })
            .collect();
        let drained = ("gpu-node-03", Some("Xid 79 on GPU 3 ticket 4711 [node@rack]"), true);
        assert_eq!(
            unavailable,
            [drained, ("gpu-node-05", None, false), ("gpu-node-06", None, false)],
            "{name}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_jobs_and_nodes_of_another_cluster_are_read_as_recorded() {
    let (jobs, cluster) = read(release!("22.05/clusters")).await;
    let mut rows: Vec<String> = jobs.iter().map(row).collect();
    rows.sort();
    assert_eq!(rows, ["no-gpu running gpu-node-06: =0", "train running gpu-node-01:0,1 gpu-node-02:0,1 =4"]);
    assert!(jobs.iter().all(|job| job.qos.as_ref().is_some_and(|qos| qos.as_str() == "normal")));
    let a100 = cluster.partitions[0]
        .gpus
        .iter()
        .flatten()
        .find(|gpus| gpus.kind.as_ref().is_some_and(|kind| kind.as_str() == "a100"));
    assert_eq!(a100.map(|gpus| (gpus.total, gpus.free())), Some((8, Some(4))));
}
