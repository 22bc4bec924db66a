//! The examples in the documentation are valid state files.

use fake_nvml::state::State;

#[test]
fn every_example_of_a_state_file_can_be_read() {
    let text = include_str!("../../README.md");
    let examples: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("    ").filter(|rest| rest.starts_with('{')))
        .collect();
    assert!(examples.len() > 8, "only {} examples were found", examples.len());
    for example in examples {
        // The rest of the line explains the example.
        let read = serde_json::Deserializer::from_str(example).into_iter::<State>().next();
        assert!(read.is_some_and(|read| read.is_ok()), "{example}");
    }
}
