//! When the driver or a GPU fails, the probe reports it and everything else continues.

use crate::harness::{Node, Probe};
use nodeglass_protocol::Reading::{Failed, Value};
use nodeglass_protocol::Text;
use nodeglass_protocol::probe::{Control, Event, Hello, ProbeLine, Sample};
use serde_json::{Value as Json, json};

fn absent(hello: &Hello) -> Option<&str> {
    hello.sources[0].absent_reason().map(|why| why.as_str())
}

fn event(probe: &mut Probe) -> Event {
    probe.until(|line| match line {
        ProbeLine::Event(event) => Some(event),
        _ => None,
    })
}

#[test]
fn f28_a_lost_gpu_does_not_affect_others() {
    let gpus = |lost: bool| json!({"gpus": [{"uuid": "GPU-a", "util": 50}, {"uuid": "GPU-b", "lost": lost}]});
    let node = Node::new(&gpus(false));
    let mut probe = node.start(&[]);
    probe.sample(|sample| sample.gpus[1].fault.is_none());
    node.set(&gpus(true));
    let lost = probe.sample(|sample| sample.gpus[1].fault.is_some());
    assert_eq!(lost.gpus[1].fault, Some(Text::new("GPU is lost")));
    assert_eq!(lost.gpus[0].util_pct, Value(50));
    let reported = event(&mut probe);
    assert_eq!((reported.gpu.unwrap().as_str(), reported.text.as_str()), ("GPU-b", "GPU-b: GPU is lost"));
    // Its identity survives several enumerations.
    let seq = lost.seq;
    probe.sample(|sample| sample.seq > seq + 3);
    node.set(&gpus(false));
    probe.sample(|sample| sample.gpus[1].fault.is_none());
    assert_eq!(event(&mut probe).text.as_str(), "GPU-b: responds again");
}

#[test]
fn a_gpu_lost_before_the_probe_started_has_an_entry() {
    let node = Node::new(&json!({"gpus": [{}, {"lost_at_enumeration": true}, {"util": 7}]}));
    let mut probe = node.start(&[]);
    let hello = probe.hello(|_| true);
    assert_eq!((hello.gpus.len(), hello.gpus[1].uuid.as_str()), (3, "LOST-1"));
    let sample = probe.sample(|_| true);
    assert_eq!(sample.gpus[1].fault, Some(Text::new("GPU is lost")));
    assert_eq!(sample.gpus[2].util_pct, Value(7));
}

/// Three GPUs, the second of which hangs for this long in each call of this function.
fn hanging(symbol: &str, ms: u64) -> Json {
    json!({"gpus": [
        {"uuid": "GPU-a", "util": 50},
        {"uuid": "GPU-b", "hang_ms": {symbol: ms}, "util": 60},
        {"uuid": "GPU-c", "util": 70},
    ]})
}

/// Checks that the samples from `seq` on have no gap until one satisfies the predicate. The relay
/// keeps sending pings.
fn unbroken(probe: &mut Probe, seq: u64, wanted: impl Fn(&Sample) -> bool) -> Sample {
    let mut next = seq;
    while next < seq + 200 {
        let ProbeLine::Sample(sample) = probe.line() else { continue };
        probe.send(&Control::Ping);
        assert_eq!(sample.seq, next);
        next += 1;
        assert!(sample.host.mem_used_bytes.value().is_some());
        if wanted(&sample) {
            return *sample;
        }
    }
    unreachable!("the sample that was waited for did not come");
}

#[test]
fn f29_a_hung_gpu_blocks_neither_other_gpus_nor_the_host() {
    let node = Node::new(&hanging("-", 0));
    let mut probe = node.start(&[]);
    let first = probe.sample(|sample| sample.gpus.len() == 3);
    node.set(&hanging("nvmlDeviceGetPowerUsage", 12_000));
    // A busy machine may delay all of them for a moment, which is another fault.
    let is_hung = |sample: &Sample| {
        let fault = sample.gpus[1].fault.as_ref();
        fault.is_some_and(|why| why.as_str().starts_with("no answer from the driver since "))
    };
    let hung = unbroken(&mut probe, first.seq + 1, is_hung);
    let why = hung.gpus[1].fault.clone().unwrap();
    assert!(why.as_str().ends_with(" UTC"), "{why} {hung:?}");
    let reported = event(&mut probe);
    assert_eq!(
        (reported.gpu.unwrap().as_str(), reported.text.as_str()),
        ("GPU-b", &*format!("GPU-b: {why}"))
    );
    // The others are updated, and their events are reported.
    let mut others = hanging("nvmlDeviceGetPowerUsage", 12_000);
    (others["gpus"][0]["util"], others["gpus"][2]["xids"]) = (json!(51), json!([31]));
    node.set(&others);
    let sample = unbroken(&mut probe, hung.seq + 1, |sample| sample.gpus[0].util_pct == Value(51));
    assert_eq!((&sample.gpus[2].util_pct, &sample.gpus[1].fault), (&Value(70), &Some(why)));
    let xid = event(&mut probe);
    assert_eq!((xid.xid, xid.gpu.unwrap().as_str()), (Some(31), "GPU-c"));
    // Its name and position remain, and no inventory was sent again.
    node.set(&hanging("-", 0));
    let back = unbroken(&mut probe, sample.seq + 1, |sample| !is_hung(sample));
    assert_eq!(back.gpus[1].util_pct, Value(60));
    assert_eq!(event(&mut probe).text.as_str(), "GPU-b: responds again");
    // An Xid of the GPU that hung is not lost either, and reported once.
    let mut later = hanging("-", 0);
    later["gpus"][1]["xids"] = json!([79]);
    node.set(&later);
    assert_eq!(event(&mut probe).xid, Some(79));
}

#[test]
fn two_gpus_may_hang_at_once_in_different_calls() {
    let state = |ms: u64| {
        json!({"gpus": [
            {"hang_ms": {"nvmlDeviceGetTemperatureV": ms}},
            {"hang_ms": {"nvmlDeviceGetComputeRunningProcesses_v3": ms}},
            {"util": 70},
        ]})
    };
    let node = Node::new(&state(0));
    let mut probe = node.start(&[]);
    let first = probe.sample(|sample| sample.gpus.len() == 3);
    node.set(&state(600_000));
    let faults = |sample: &Sample| sample.gpus.iter().filter(|gpu| gpu.fault.is_some()).count();
    let both = unbroken(&mut probe, first.seq + 1, |sample| faults(sample) == 2);
    assert_eq!(both.gpus[2].util_pct, Value(70));
    // This blocks no further threads.
    let threads = || std::fs::read_dir(format!("/proc/{}/task", probe.pid())).unwrap().count();
    let before = threads();
    let mut probe = probe;
    let later = unbroken(&mut probe, both.seq + 1, |sample| sample.seq >= both.seq + 8);
    assert_eq!(faults(&later), 2);
    assert!(std::fs::read_dir(format!("/proc/{}/task", probe.pid())).unwrap().count() <= before);
    probe.send(&Control::Stop);
    assert!(probe.ended().success());
}

#[test]
fn f29_a_hung_driver_leaves_host_samples() {
    let hang = |ms: u64| json!({"hang_ms": {"nvmlDeviceGetCount_v2": ms}, "gpus": [{}, {}]});
    let node = Node::new(&hang(0));
    let mut probe = node.start(&[]);
    let first = probe.sample(|sample| sample.gpus.len() == 2);
    node.set(&hang(8_000));
    let is_hung = |sample: &Sample| sample.gpus.iter().all(|gpu| gpu.fault.is_some());
    let hung = unbroken(&mut probe, first.seq + 1, is_hung);
    let later = unbroken(&mut probe, hung.seq + 1, |sample| sample.seq >= hung.seq + 3);
    assert!(is_hung(&later));
    let stuck = |probe: &mut Probe| {
        probe.until(|line| match line {
            ProbeLine::Heartbeat(beat) => beat.driver_stuck_ms,
            _ => None,
        })
    };
    let (first, second) = (stuck(&mut probe), stuck(&mut probe));
    assert!(first >= 3_000 && second > first, "{first} {second}");
    node.set(&hang(0));
    let text = event(&mut probe).text;
    assert!(text.as_str().starts_with("the NVIDIA driver responds again after "), "{text}");
    probe.sample(|sample| !is_hung(sample));
}

#[test]
fn gpus_that_all_hang_are_one_hung_driver() {
    let state = |ms: u64| {
        let gpu = json!({"hang_ms": {"nvmlDeviceGetTemperatureV": ms}, "util": 5});
        json!({"gpus": [gpu, gpu, gpu]})
    };
    let node = Node::new(&state(0));
    let mut probe = node.start(&[]);
    let first = probe.sample(|sample| sample.gpus.len() == 3);
    node.set(&state(600_000));
    let (mut stuck_ms, mut stated) = (Vec::new(), Vec::new());
    // Until after the last GPU was found to hang.
    while stuck_ms.last().is_none_or(|ms| *ms < 13_000) {
        match probe.line() {
            ProbeLine::Heartbeat(beat) => stuck_ms.extend(beat.driver_stuck_ms),
            ProbeLine::Event(event) => stated.push(event.text),
            ProbeLine::Sample(sample) => {
                assert!(sample.host.mem_used_bytes.value().is_some() && sample.seq > first.seq);
                probe.send(&Control::Ping);
            }
            _ => {}
        }
    }
    assert!(stuck_ms.is_sorted(), "{stuck_ms:?}");
    assert_eq!(stated.len(), 1, "{stated:?}");
    assert!(stated[0].as_str().starts_with("the NVIDIA driver has not responded since "), "{stated:?}");
    let hung = probe.sample(|_| true);
    assert!(hung.gpus.iter().all(|gpu| gpu.fault.is_some()));
    probe.send(&Control::Stop);
    assert!(probe.ended().success());
}

#[test]
fn a_slow_driver_is_reported() {
    let node = Node::new(&hanging("nvmlDeviceGetPowerUsage", 1_100));
    let mut probe = node.start(&[]);
    let reported = event(&mut probe);
    let text = reported.text.as_str();
    let took_s = text.strip_prefix("the NVIDIA driver is slow: reading the GPUs takes ");
    let took_s: Option<f64> = took_s.and_then(|rest| rest.strip_suffix(" s")?.parse().ok());
    // Longer on a busy machine.
    assert!(took_s.is_some_and(|took_s| took_s >= 1.1), "{text}");
    assert_eq!(reported.gpu, None);
}

#[test]
fn f29_a_driver_that_hangs_on_startup_does_not_hide_the_host() {
    let node = Node::new(&json!({"hang_ms": {"nvmlInit_v2": 5000}, "gpus": [{}]}));
    let mut probe = node.start(&[]);
    let hello = probe.hello(|_| true);
    assert_eq!(absent(&hello), Some("the NVIDIA driver does not respond"));
    assert!(probe.sample(|_| true).host.mem_used_bytes.value().is_some());
    probe.hello(|hello| hello.gpus.len() == 1);
    probe.sample(|sample| sample.gpus.len() == 1);
}

#[test]
fn each_reason_for_no_driver_has_a_message() {
    for (state, why) in [
        (json!({"init": 9}), "the NVIDIA driver is not loaded: its kernel module is missing"),
        (
            json!({"init": 18}),
            "the NVIDIA driver was updated but not reloaded: library and kernel module differ in version",
        ),
        (json!({"init": 4}), "this user has no permission to use the NVIDIA driver"),
        (json!({"init": 999}), "the NVIDIA driver does not work: unknown error"),
    ] {
        let node = Node::new(&state);
        let mut probe = node.start(&[]);
        let hello = probe.hello(|_| true);
        assert_eq!(absent(&hello), Some(why));
        let sample = probe.sample(|_| true);
        assert!(sample.gpus.is_empty() && sample.host.load1_centi.value().is_some());
    }
}

#[test]
fn f28_a_machine_without_the_library_is_a_host_without_a_driver() {
    let node = Node::new(&json!({}));
    let mut probe = node.start(&[]);
    assert!(absent(&probe.hello(|_| true)).is_none());
    let mut command = crate::harness::probe();
    command.args(["--nvml", "libnvidia-ml-that-is-nowhere.so.1"]);
    let mut probe = Probe::start(command);
    let hello = probe.hello(|_| true);
    assert_eq!(
        absent(&hello),
        Some("the NVIDIA driver is not installed: libnvidia-ml-that-is-nowhere.so.1 cannot be loaded")
    );
    probe.sample(|_| true);
}

#[test]
fn f28_a_driver_may_be_unloaded_and_reloaded() {
    let ready: Json = json!({"gpus": [{}]});
    let node = Node::new(&json!({"init": 9}));
    let mut probe = node.start(&[]);
    probe.hello(|hello| absent(hello).is_some());
    node.set(&ready);
    probe.hello(|hello| hello.gpus.len() == 1);
    let before = probe.sample(|sample| sample.gpus.len() == 1);
    node.unload();
    probe.hello(|hello| absent(hello).is_some() && hello.gpus.is_empty());
    node.set(&ready);
    probe.hello(|hello| hello.gpus.len() == 1);
    let after = probe.sample(|sample| sample.gpus.len() == 1);
    assert!(after.seq > before.seq);
}

#[test]
fn a_changed_inventory_is_sent_in_another_hello() {
    let node = Node::new(&json!({"gpus": [{"uuid": "GPU-a"}]}));
    let mut probe = node.start(&[]);
    probe.hello(|hello| hello.gpus.len() == 1);
    node.set(&json!({"gpus": [{"uuid": "GPU-a", "mig": [{"uuid": "MIG-a"}]}]}));
    let hello = probe.hello(|hello| hello.gpus.len() == 2);
    assert_eq!(hello.gpus[1].uuid.as_str(), "MIG-a");
    assert_eq!(probe.sample(|_| true).gpus.len(), 2);
}

#[test]
fn an_xid_is_reported_once_with_its_gpu() {
    let node = Node::new(&json!({"gpus": [{}, {"uuid": "GPU-b"}]}));
    let mut probe = node.start(&[]);
    probe.sample(|_| true);
    node.set(&json!({"gpus": [{}, {"uuid": "GPU-b", "xids": [79]}]}));
    let reported = event(&mut probe);
    assert_eq!(
        (reported.xid, reported.gpu.unwrap().as_str(), reported.text.as_str()),
        (
            Some(79),
            "GPU-b",
            "Xid 79 on GPU 1: fell off the bus; the node needs a reboot; check that the card is seated properly and has power"
        )
    );
    node.set(&json!({"gpus": [{}, {"uuid": "GPU-b", "xids": [79, 48]}]}));
    assert_eq!(event(&mut probe).xid, Some(48));
}

#[test]
fn f28_the_xid_of_a_gpu_that_fell_off_the_bus_names_that_gpu() {
    let gpus = |lost: bool, xids: &[u64]| {
        let key = if lost { "lost" } else { "lost_at_enumeration" };
        json!({"gpus": [{}, {"uuid": "GPU-b", key: !xids.is_empty(), "xids": xids}]})
    };
    for lost in [true, false] {
        let node = Node::new(&gpus(lost, &[]));
        let mut probe = node.start(&[]);
        probe.sample(|sample| sample.gpus.len() == 2);
        node.set(&gpus(lost, &[79]));
        let xid = probe.until(|line| match line {
            ProbeLine::Event(event) if event.xid.is_some() => Some(event),
            _ => None,
        });
        assert_eq!((xid.xid, xid.gpu.as_ref().map(|gpu| gpu.as_str())), (Some(79), Some("GPU-b")), "{lost}");
        assert!(xid.text.as_str().starts_with("Xid 79 on GPU 1: fell off the bus"), "{}", xid.text);
    }
}

#[test]
fn a_lost_gpu_is_not_taken_for_the_one_that_had_its_index() {
    let of = |uuid: &str| json!({"uuid": uuid});
    let node = Node::new(&json!({"gpus": [of("GPU-a"), of("GPU-b"), of("GPU-c")]}));
    let mut probe = node.start(&[]);
    probe.hello(|hello| hello.gpus.len() == 3);
    // The driver was reloaded without the first GPU, and the last one is not well.
    let lost = json!({"uuid": "GPU-c", "lost_at_enumeration": true});
    node.set(&json!({"gpus": [of("GPU-b"), lost]}));
    let hello = probe.hello(|hello| hello.gpus.len() == 2);
    let uuids: Vec<_> = hello.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
    assert_eq!(uuids, ["GPU-b", "LOST-1"]);
}

#[test]
fn a_gpu_that_refuses_events_does_not_silence_the_others() {
    for code in [3, 4, 999] {
        let gpus = |xids: &[u64]| {
            json!({"gpus": [
                {"errors": {"nvmlDeviceRegisterEvents": code}},
                {"uuid": "GPU-b", "xids": xids},
                {"errors": {"nvmlDeviceRegisterEvents": code}},
            ]})
        };
        let node = Node::new(&gpus(&[]));
        let mut probe = node.start(&[]);
        probe.sample(|sample| sample.gpus.len() == 3);
        node.set(&gpus(&[79]));
        let reported = event(&mut probe);
        assert_eq!((reported.xid, reported.gpu.unwrap().as_str()), (Some(79), "GPU-b"), "{code}");
    }
}

/// A driver that can be replaced by a newer one.
fn of_generation(generation: u32, stays_loaded: bool, util: u32) -> Json {
    json!({"generation": generation, "stays_loaded": stays_loaded, "gpus": [{"util": util}]})
}

#[test]
fn f28_a_driver_updated_under_the_probe_is_reopened() {
    let node = Node::new(&of_generation(0, false, 5));
    let mut probe = node.start(&[]);
    probe.sample(|sample| sample.gpus.first().is_some_and(|gpu| gpu.util_pct == Value(5)));
    node.reinstall();
    node.set(&of_generation(1, false, 6));
    let why = "the NVIDIA driver was updated but not reloaded: library and kernel module differ in version";
    probe.hello(|hello| absent(hello) == Some(why));
    probe.hello(|hello| hello.gpus.len() == 1);
    probe.sample(|sample| sample.gpus.first().is_some_and(|gpu| gpu.util_pct == Value(6)));
}

#[test]
fn a_probe_that_cannot_unload_a_replaced_driver_exits() {
    let node = Node::new(&of_generation(0, true, 5));
    let mut probe = node.start(&[]);
    probe.sample(|sample| sample.gpus.first().is_some_and(|gpu| gpu.util_pct == Value(5)));
    node.reinstall();
    node.set(&of_generation(1, true, 6));
    assert_eq!(probe.bye(), "the NVIDIA driver was replaced, and only a new process can load its library");
    assert!(probe.ended().success());
    node.start(&[]).sample(|sample| sample.gpus.first().is_some_and(|gpu| gpu.util_pct == Value(6)));
}

#[test]
fn an_unreloaded_kernel_module_does_not_end_the_probe() {
    // The library is still the installed one, so a new process would not help.
    let node = Node::new(&of_generation(0, true, 5));
    let mut probe = node.start(&[]);
    probe.sample(|sample| sample.gpus.first().is_some_and(|gpu| gpu.util_pct == Value(5)));
    node.set(&of_generation(1, true, 6));
    let before = probe.hello(|hello| absent(hello).is_some());
    let seq = probe.sample(|_| true).seq;
    probe.sample(|sample| sample.seq > seq + 2 && sample.gpus.is_empty());
    assert_eq!(before.pid, probe.pid());
}

#[test]
fn a_single_version_mismatch_is_a_failure_of_that_call() {
    for code in [1, 18] {
        let errors = json!({"nvmlDeviceGetPowerUsage": code});
        let node = Node::new(&json!({"gpus": [{"util": 5, "errors": errors}]}));
        let mut probe = node.start(&[]);
        let sample = probe.sample(|sample| sample.seq > 4);
        assert_eq!(sample.gpus[0].util_pct, Value(5));
        assert!(matches!(sample.gpus[0].power_mw, Failed(_)));
    }
}

#[test]
fn a_library_that_cannot_be_loaded_has_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libnvidia-ml.so.1");
    std::fs::write(&library, "this is no library").unwrap();
    for (library, reason) in
        [(library.as_path(), "file too short"), (folder.path(), "cannot read file data: Is a directory")]
    {
        let mut command = crate::harness::probe();
        command.arg("--nvml").arg(library);
        let mut probe = Probe::start(command);
        let hello = probe.hello(|_| true);
        let why = absent(&hello).unwrap().to_owned();
        assert_eq!(
            why,
            format!("the NVIDIA driver's library cannot be loaded: {}: {reason}", library.display())
        );
    }
}
