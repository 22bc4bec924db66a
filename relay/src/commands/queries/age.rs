//! Age of an answer's data, for people: scripts have the times of the JSON.

use super::source::SlurmState;
use nodeglass_api::{Node, Snapshot};
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::NodeName;
use nodeglass_rules::text;

/// The time that a snapshot describes, in ms since 1970: now, or that of a recording.
pub fn now_ms(snapshot: &Snapshot) -> u64 {
    snapshot.at.map_or_else(Clock::wall_ms, |at| at.as_millis())
}

/// The time that its list of jobs describes, in s since 1970: the same, or when SLURM last answered.
pub fn as_of_s(snapshot: &Snapshot, slurm: &SlurmState) -> u64 {
    let age_s = slurm.age_s.filter(|_| slurm.staleness().is_some());
    (now_ms(snapshot) / 1_000).saturating_sub(age_s.unwrap_or(0))
}

/// The age of the list of jobs.
pub fn of_jobs(slurm: &SlurmState) -> Option<String> {
    slurm.age_s.map(|age_s| format!("the list of jobs is {age_s} s old"))
}

/// The age of the last readings of nodes that are not connected; `only` is the node that is shown, if it is one.
pub fn of_lost(snapshot: &Snapshot, only: Option<&NodeName>, now_ms: u64) -> Option<String> {
    let is_shown =
        |node: &&Node| only.is_none_or(|only| node.name == only.as_str()) && !node.connection.is_current();
    let age_s = |node: &Node| Some(now_ms.saturating_sub(node.sampled_at?.as_millis()) / 1_000);
    let lost: Vec<_> =
        snapshot.nodes.iter().filter(is_shown).filter_map(|node| Some((&node.name, age_s(node)?))).collect();
    match lost.as_slice() {
        [] => None,
        [(name, age_s)] => Some(format!("the readings of {name} are {} old", text::span(*age_s))),
        several => {
            let oldest_s = several.iter().map(|(_, age_s)| *age_s).max()?;
            Some(format!("the readings of {} nodes are up to {} old", several.len(), text::span(oldest_s)))
        }
    }
}

/// The ages of the readings of connected nodes.
pub fn of_readings(snapshot: &Snapshot, now_ms: u64) -> Option<String> {
    let current = snapshot.nodes.iter().filter(|node| node.connection.is_current());
    let ages = current.filter_map(|node| Some(now_ms.saturating_sub(node.sampled_at?.as_millis()) / 1_000));
    let (least, most) = ages.fold(None, |range: Option<(u64, u64)>, age| {
        Some(range.map_or((age, age), |(least, most)| (least.min(age), most.max(age))))
    })?;
    Some(match least == most {
        true => format!("the readings are {most} s old"),
        false => format!("the readings are {least} to {most} s old"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::snapshot;
    use super::*;
    use nodeglass_api::ConnectionState;

    #[test]
    fn the_age_of_the_last_readings_of_lost_nodes_is_stated() {
        let mut snapshot = snapshot();
        let at_ms = snapshot.nodes[0].sampled_at.unwrap().as_millis();
        assert_eq!(of_lost(&snapshot, None, at_ms), None);
        snapshot.nodes[0].connection = ConnectionState::Down;
        let name = snapshot.nodes[0].name.clone();
        let expected = format!("the readings of {name} are 1 min old");
        assert_eq!(of_lost(&snapshot, None, at_ms + 75_000), Some(expected));
        assert_eq!(of_lost(&snapshot, Some(&snapshot.nodes[1].name.parse().unwrap()), at_ms + 75_000), None);
        snapshot.nodes[1].connection = ConnectionState::Down;
        let several = of_lost(&snapshot, None, at_ms + 120_000).unwrap();
        assert!(several.starts_with("the readings of 2 nodes are up to "), "{several}");
    }

    #[test]
    fn times_are_those_of_the_snapshot() {
        let snapshot = Snapshot { at: Some(nodeglass_api::Timestamp::from_millis(90_000)), ..snapshot() };
        assert_eq!((now_ms(&snapshot), as_of_s(&snapshot, &SlurmState::default())), (90_000, 90));
    }

    #[test]
    fn the_ages_of_readings_are_a_range() {
        let mut snapshot = snapshot();
        let at_ms = snapshot.nodes[0].sampled_at.unwrap().as_millis();
        assert_eq!(of_readings(&snapshot, at_ms + 2_500).as_deref(), Some("the readings are 2 s old"));
        snapshot.nodes[1].sampled_at = Some(nodeglass_api::Timestamp::from_millis(at_ms + 2_000));
        assert_eq!(of_readings(&snapshot, at_ms + 4_000).as_deref(), Some("the readings are 2 to 4 s old"));
        snapshot.nodes.clear();
        assert_eq!(of_readings(&snapshot, at_ms), None);
    }
}
