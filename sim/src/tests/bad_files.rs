//! Invalid scenarios are rejected with a message and a line number.

use super::*;

fn refusal(text: &str) -> String {
    Scenario::from_toml(text).unwrap_err().to_string()
}

/// The number of the line with this prefix, the last one if there are several.
fn line(text: &str, begins: &str) -> usize {
    text.lines()
        .enumerate()
        .filter(|(_, line)| line.starts_with(begins))
        .map(|(index, _)| index + 1)
        .last()
        .unwrap()
}

fn refused(text: &str, at: &str, why: &str) {
    assert_eq!(refusal(text), format!("read the scenario: line {}: {why}", line(text, at)));
}

#[test]
fn invalid_toml_is_rejected_with_its_line() {
    let sentence = refusal("cluster = \"c\"\nuser = alice\n");
    assert!(sentence.starts_with("read the scenario: line 2: "), "{sentence}");
    assert!(!sentence.contains('\n'));
}

#[test]
fn a_misspelt_key_or_value_is_named() {
    let sentence = refusal(&toml(&job("limits = \"1h\"")));
    assert!(sentence.contains("line 16") && sentence.contains("`limits`"), "{sentence}");
    let sentence = refusal(&toml(&job("behaviour = \"dancing\"")));
    assert!(sentence.contains("line 16") && sentence.contains("`dancing`"), "{sentence}");
    let sentence = refusal(&toml(&job("limit = \"soon\"")));
    assert!(sentence.contains("line 16") && sentence.contains("such as \"90s\""), "{sentence}");
}

#[test]
fn an_empty_pattern_is_rejected() {
    let text = toml("").replace("n[1-2]", "n[2-1]");
    refused(&text, "name", "\"n[2-1]\" names no nodes; write gpu-h[01-08] or gpu-h01,gpu-h02");
    let twice = toml("[[node]]\nname = \"n2\"\nmodel = \"a100\"\ngpus = 1\n");
    refused(&twice, "name = \"n2\"", "node n2 is described twice");
}

#[test]
fn a_job_on_a_node_or_gpu_that_is_not_there_is_refused() {
    let text = toml(&job("")).replace("nodes = \"n[1-2]\"", "nodes = \"n3\"");
    refused(&text, "nodes", "node n3 is not described by any [[node]]");
    let text = toml(&job("gpus = [4]"));
    refused(&text, "id", "node n1 has no GPU 4; it has 4");
}

#[test]
fn two_jobs_cannot_have_a_gpu_at_the_same_time() {
    let second = job("gpus = [2]").replace("id = 7", "id = 8");
    let text = toml(&(job("") + &second));
    refused(&text, "id = 8", "jobs 7 and 8 both have GPU 2 of node n1 at the same time");
    let twice = toml(&job("gpus = [1, 1]"));
    refused(&twice, "id", "jobs 7 and 7 both have GPU 1 of node n1 at the same time");
    let after = second.replace("start = \"-1h\"", "start = \"1h\"");
    Scenario::from_toml(&toml(&(job("end = \"1h\"") + &after))).unwrap();
}

#[test]
fn duplicate_job_ids_are_rejected() {
    let again = job("").replace("nodes = \"n[1-2]\"\n", "");
    refused(
        &toml(&(job("") + &again)),
        "id",
        "job 7 has a number that another job has or will have; jobs that come again count on by 1000",
    );
    let later = again.replace("id = 7", "id = 2007");
    let first = job("end = \"1m\"\nevery = \"2h\"");
    assert!(refusal(&toml(&(first + &later))).contains("job 2007 has a number"));
}

#[test]
fn inconsistent_times_are_rejected() {
    for (keys, why) in [
        ("end = \"-2h\"", "job 7 ends before it starts"),
        ("every = \"1h\"", "job 7 repeats, which requires a start and an end"),
        ("end = \"2h\"\nevery = \"1h\"", "job 7 repeats before it has ended"),
        (
            "array = { tasks = 0, task_time = \"1m\" }",
            "job 7 is an array; that takes GPUs, 1 to 999 tasks, and a task_time",
        ),
    ] {
        refused(&toml(&job(keys)), "id", why);
    }
}

#[test]
fn a_fault_or_episode_in_the_wrong_place_is_refused() {
    refused(
        &toml("[[fault]]\nnodes = \"n9\"\nkind = \"dies\"\n"),
        "nodes",
        "node n9 is not described by any [[node]]",
    );
    refused(
        &toml("[[fault]]\nnodes = \"n1\"\nkind = \"lost_gpu\"\n"),
        "nodes",
        "a lost_gpu fault needs gpu = N",
    );
    let elsewhere = job("[[job.episode]]\nbehaviour = \"hang\"\nnodes = \"n2\"").replace("n[1-2]", "n1");
    refused(&toml(&elsewhere), "nodes = \"n2\"", "job 7 is not on node n2");
    let beyond = job("[[job.episode]]\nbehaviour = \"hang\"\nnodes = \"n2\"\ngpus = [9]");
    refused(&toml(&beyond), "nodes = \"n2\"", "node n2 has no GPU 9; it has 4");
}

#[test]
fn absurd_sizes_are_refused() {
    assert!(refusal(&toml("").replace("gpus = 4", "gpus = 4000")).contains("at most 64"));
    assert!(refusal(&toml(&job("memory_pct = 101"))).contains("0 to 100"));
    assert!(refusal(&format!("cycle = 1\n{}", toml(""))).contains("line 1: cycle must be at least 60s"));
}

#[test]
fn a_gpu_is_divided_into_what_it_has_and_an_xid_has_a_number() {
    let divided = |mig: &str| toml("").replace("gpus = 4", &format!("gpus = 4\nmig = {mig}"));
    refused(&divided("[\"4g.40gb\", \"4g.40gb\"]"), "mig", "8 slices are too many for one GPU; it has 7");
    assert!(refusal(&divided("[\"most\"]")).contains("is not a MIG profile such as \"3g.40gb\""));
    refused(
        &toml("[[fault]]\nnodes = \"n1\"\nkind = \"xid\"\ngpu = 0\n"),
        "nodes",
        "an xid fault needs xid = N",
    );
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(40))]
    #[test]
    fn no_file_makes_us_panic(text in "\\PC*", place in 0usize..4_000, cut in 0usize..200) {
        let _ = Scenario::from_toml(&text);
        let mut damaged: Vec<char> = DEMO.chars().collect();
        let place = place.min(damaged.len());
        let end = (place + cut).min(damaged.len());
        damaged.splice(place..end, text.chars());
        if let Ok(scenario) = Scenario::from_toml(&damaged.into_iter().collect::<String>()) {
            scenario.jobs(at(0));
        }
    }
}
