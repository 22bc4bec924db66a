//! Faults have the same effect on readings as on real nodes.

use super::*;

#[test]
fn a_crashed_node_returns_with_a_new_boot() {
    let dying = scenario(&job("").replace("n[1-2]", "n1"));
    let steady = dying.hello(&node("n1"), at(0)).unwrap();
    assert_eq!(steady, dying.hello(&node("n1"), at(10_000)).unwrap());

    let dying = scenario("[[fault]]\nnodes = \"n1\"\nkind = \"dies\"\nat = \"1m\"\nfor = \"30s\"\n");
    let (before, after) =
        (dying.hello(&node("n1"), at(50)).unwrap(), dying.hello(&node("n1"), at(95)).unwrap());
    assert_ne!(before.boot_id, after.boot_id);
    assert_ne!(before.stream, after.stream);
    assert_eq!(before.gpus, after.gpus, "the cards are the same ones");
    let mono = |second| dying.sample(&node("n1"), at(second)).unwrap().mono_ns;
    assert_eq!(mono(95), 5_000_000_000);
    assert!(mono(50) > mono(95));
}

#[test]
fn peers_of_a_crashed_node_wait_until_it_rejoins() {
    let fault = "[[fault]]\nnodes = \"n2\"\nkind = \"dies\"\nat = \"1m\"\nfor = \"30s\"\nrejoin = \"20s\"\n";
    let scenario = scenario(&(fault.to_owned() + &job("")));
    let power = |name, second| value(&gpu(&scenario, name, 1, second).power_mw) / 1_000;
    assert!(power("n1", 50) > 600);
    assert!((145..155).contains(&power("n1", 80)) && (145..155).contains(&power("n1", 105)));
    assert!(power("n2", 105) < 75, "it is back, but nothing runs there yet");
    assert!(scenario.processes(&node("n2"), at(105)).unwrap().processes.is_empty());
    assert!(power("n1", 160) > 600 && power("n2", 160) > 600);
}

#[test]
fn a_lost_gpu_does_not_affect_its_siblings() {
    let scenario =
        scenario("[[fault]]\nnodes = \"n1\"\nkind = \"lost_gpu\"\ngpu = 2\nat = \"1m\"\nfor = \"1m\"\n");
    let faults = |second| {
        let sample = scenario.sample(&node("n1"), at(second)).unwrap();
        sample.gpus.iter().map(|gpu| gpu.fault.is_some()).collect::<Vec<_>>()
    };
    assert_eq!(faults(59), [false; 4]);
    assert_eq!(faults(61), [false, false, true, false]);
    assert_eq!(faults(121), [false; 4]);
    assert_eq!(gpu(&scenario, "n1", 2, 61).util_pct, Reading::NotYet);
}

#[test]
fn without_a_driver_the_host_is_sampled_with_a_reason() {
    let scenario = scenario("[[fault]]\nnodes = \"n1\"\nkind = \"no_driver\"\n");
    let hello = scenario.hello(&node("n1"), at(0)).unwrap();
    assert!(
        hello.sources[0]
            .absent_reason()
            .is_some_and(|why| why.as_str().starts_with("the NVIDIA driver is not loaded: "))
    );
    assert!(hello.gpus.is_empty());
    let sample = scenario.sample(&node("n1"), at(0)).unwrap();
    assert!(sample.gpus.is_empty() && sample.host.cpu_pct.value().is_some());
}

#[test]
fn a_node_that_is_not_described_has_no_readings() {
    let scenario = scenario("");
    let unknown = node("n3");
    assert!(scenario.sample(&unknown, at(0)).is_none());
    assert!(scenario.hello(&unknown, at(0)).is_none());
    assert!(scenario.processes(&unknown, at(0)).is_none());
}
