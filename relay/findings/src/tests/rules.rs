//! Rules of the settings.

use super::*;

fn script(nodes: usize, rules: &[&str]) -> Script {
    let mut script = Script::new(nodes, 2);
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    script.findings.set_thresholds(Thresholds { rules, ..Thresholds::default() });
    script.nodes.iter_mut().flat_map(|node| &mut node.gpus).for_each(|gpu| set(gpu, GpuField::Temp, 60));
    script
}

#[test]
fn a_rule_on_a_metric_is_found_once_it_held_for_its_time_and_then_resolved() {
    let mut script = script(1, &["hot=gpu.temp_c > 80 for 5m, error, Ask about the cooling"]);
    script.run(60, |_, _| WORK);
    set(&mut script.nodes[0].gpus[1], GpuField::Temp, 83);
    script.run(290, |_, _| WORK);
    assert!(script.active().is_empty(), "five minutes have not passed");
    script.run(30, |_, _| WORK);
    let found = script.only();
    assert_eq!((found.kind, found.severity), (FindingKind::CustomRule, FindingSeverity::Error));
    assert_eq!(found.title.as_str(), "hot: Temperature above 80 °C on n1 GPU 1");
    assert_eq!(
        (found.evidence[0].as_str(), found.advice.as_str()),
        ("n1 GPU 1: 83 °C", "Ask about the cooling")
    );
    assert_eq!((found.jobs.as_slice(), found.or_earlier), ([JobId(17)].as_slice(), false));
    assert_eq!(wall_s(found.since_ms.saturating_add_signed(-WALL_AHEAD_MS)), wall_s(START_MS) + 61);
    assert_eq!(for_guests(found.clone()), None, "its words are the owner's");
    let advice = "Load it with `ssh-add /home/alice/.ssh/key` in the shell that starts the relay".into();
    let refused = for_guests(Finding { kind: FindingKind::LoginRefused, advice, ..found.clone() }).unwrap();
    assert_eq!((refused.evidence.len(), refused.advice.as_str()), (0, FindingKind::LoginRefused.advice()));
    set(&mut script.nodes[0].gpus[1], GpuField::Temp, 80);
    script.run(60, |_, _| WORK);
    assert!(script.active().is_empty());
}

#[test]
fn a_moment_below_the_limit_starts_a_rule_again_and_missing_readings_do_not() {
    let mut script = script(1, &["hot=gpu.temp_c >= 80 for 2m"]);
    for _ in 0..10 {
        set(&mut script.nodes[0].gpus[0], GpuField::Temp, 80);
        script.run(100, |_, _| WORK);
        set(&mut script.nodes[0].gpus[0], GpuField::Temp, 79);
        script.run(1, |_, _| WORK);
    }
    assert!(script.active().is_empty());
    set(&mut script.nodes[0].gpus[0], GpuField::Temp, 80);
    script.run(60, |_, _| WORK).run(600, |_, _| None);
    script.run(40, |_, _| WORK);
    assert!(!script.active().contains(&FindingKind::CustomRule), "it was not read for ten minutes");
    script.run(40, |_, _| WORK);
    assert!(script.active().contains(&FindingKind::CustomRule), "{:#?}", script.findings.list());
}

#[test]
fn the_gpus_of_a_job_are_one_finding_and_each_node_has_one_of_its_own() {
    let mut script =
        script(2, &["busy=gpu.util_pct > 50 for 1m", "swap=host.swap_used_bytes > 1GiB for 1m, info"]);
    script.nodes[1].host.set(HostField::SwapUsed, HostField::SwapUsed.cell(&Reading::Value(3 << 30)));
    script.run(120, |_, _| WORK);
    let of_rules = script.findings.list().iter().filter(|found| found.kind == FindingKind::CustomRule);
    let titles: Vec<&str> = of_rules.map(|found| found.title.as_str()).collect();
    assert_eq!(
        titles,
        ["busy: Utilisation above 50 % on 4 GPUs of 2 nodes", "swap: Swap above 1.0 GiB on n2",]
    );
}
