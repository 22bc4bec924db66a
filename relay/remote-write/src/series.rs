//! Selects the samples to send: those newer than what was sent, and a marker for each series that has ended.

use super::request::{Round, RoundBuilder};
use nodeglass_api::Snapshot;
use nodeglass_api::metrics::{self, Collector, Kind, Labels, RelayMetrics, Sink};
use std::collections::HashMap;
use std::sync::Arc;

/// Time for which an ended series is known: if it begins again, its samples must be newer than its end.
const REMEMBER_MS: i64 = 300_000;

/// The series that were sent.
#[derive(Debug, Default)]
pub struct Series {
    instance: String,
    families: HashMap<String, Family>,
    round: u64,
}

/// Series of a family by their labels in the text format.
type Family = HashMap<Arc<str>, Known>;

#[derive(Debug)]
struct Known {
    labels: Labels,
    /// Time of the newest sample that was sent, in ms since 1970.
    sent_ms: i64,
    /// The last round that had it.
    round: u64,
    has_ended: bool,
}

impl Series {
    /// Series of the relay with this value of the label `instance`, which Prometheus would add to what it scrapes.
    pub fn new(instance: String) -> Self {
        Self { instance, ..Self::default() }
    }

    /// Returns what is new at a time in ms since 1970.
    pub fn collect(&mut self, snapshot: &Snapshot, relay: &RelayMetrics, now_ms: u64) -> Round {
        self.round += 1;
        let now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
        let mut collection = Collection {
            series: self,
            cluster: &relay.cluster,
            builder: RoundBuilder::default(),
            name: String::new(),
            family: Family::new(),
            now_ms,
        };
        metrics::each(snapshot, relay, &Collector::ALL, &mut collection);
        collection.finish()
    }
}

/// A round that is being collected.
struct Collection<'a> {
    series: &'a mut Series,
    cluster: &'a str,
    builder: RoundBuilder,
    /// The current family.
    name: String,
    family: Family,
    now_ms: i64,
}

impl Sink for Collection<'_> {
    fn family(&mut self, name: &str, _help: &str, _kind: Kind) {
        self.put_back();
        name.clone_into(&mut self.name);
        self.family = self.series.families.remove(name).unwrap_or_default();
    }

    fn sample(&mut self, labels: &Labels, value: Option<f64>) {
        let Some(value) = value else { return };
        let at_ms = labels.time().map_or(self.now_ms, |at| at.as_millis() as i64);
        let round = self.series.round;
        let known = self.family.entry(labels.text().clone()).or_insert_with(|| Known {
            labels: labels.clone(),
            sent_ms: i64::MIN,
            round,
            has_ended: false,
        });
        known.round = round;
        // Servers refuse what is not newer, and a reading that was sent is not sent again.
        if at_ms > known.sent_ms {
            (known.sent_ms, known.has_ended) = (at_ms, false);
            let common = [("cluster", self.cluster), ("instance", &self.series.instance)];
            push(&mut self.builder, common, &self.name, labels, Some(value), at_ms);
        }
    }
}

impl Collection<'_> {
    fn put_back(&mut self) {
        if !self.family.is_empty() {
            let (name, family) = (std::mem::take(&mut self.name), std::mem::take(&mut self.family));
            self.series.families.insert(name, family);
        }
    }

    /// Adds the markers of what has ended.
    fn finish(mut self) -> Round {
        self.put_back();
        let Series { instance, families, round } = self.series;
        let common = [("cluster", self.cluster), ("instance", instance)];
        for (name, family) in families.iter_mut() {
            for known in family.values_mut().filter(|known| known.round != *round && !known.has_ended) {
                (known.has_ended, known.sent_ms) = (true, self.now_ms.max(known.sent_ms.saturating_add(1)));
                push(&mut self.builder, common, name, &known.labels, None, known.sent_ms);
            }
            let forget_ms = self.now_ms.saturating_sub(REMEMBER_MS);
            family.retain(|_, known| !known.has_ended || known.sent_ms > forget_ms);
        }
        families.retain(|_, family| !family.is_empty());
        self.builder.finish()
    }
}

fn push(
    builder: &mut RoundBuilder,
    common: [(&'static str, &str); 2],
    name: &str,
    labels: &Labels,
    value: Option<f64>,
    at_ms: i64,
) {
    // An empty label is none.
    let common = common.into_iter().filter(|(_, value)| !value.is_empty());
    let common = common.map(|(name, value)| (name, value.into()));
    builder.push(name, labels.pairs().chain(common), value, at_ms);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::decode;
    use nodeglass_protocol::picture::{Link, NodePicture};
    use nodeglass_protocol::{NodeName, Picture};

    /// One node, sampled at this time in ms since 1970.
    fn snapshot(sampled_ms: u64) -> Snapshot {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        (node.head.link, node.sampled_at_ms) = (Link::Live, Some(sampled_ms));
        Snapshot::new(&Picture { nodes: vec![node], ..Picture::default() }, 0)
    }

    /// The samples of a family in what is sent for a snapshot.
    fn sent(series: &mut Series, snapshot: &Snapshot, name: &str, now_ms: u64) -> Vec<(String, f64, i64)> {
        let relay = RelayMetrics { cluster: "hpc".into(), ..RelayMetrics::default() };
        let round = series.collect(snapshot, &relay, now_ms);
        let name = format!("__name__={name},");
        decode(&round).into_iter().filter(|(labels, ..)| labels.starts_with(&name)).collect()
    }

    #[test]
    fn a_series_has_the_time_of_its_reading_and_is_sent_once_until_the_next_one() {
        let mut series = Series::new("alice@login1".to_owned());
        let labels = "__name__=nodeglass_node_up,cluster=hpc,instance=alice@login1,node=n1".to_owned();
        let sent = |series: &mut Series, sampled_ms, now_ms| {
            sent(series, &snapshot(sampled_ms), "nodeglass_node_up", now_ms)
        };
        assert_eq!(sent(&mut series, 5_000, 5_700), [(labels.clone(), 1.0, 5_000)]);
        assert_eq!(sent(&mut series, 5_000, 6_700), []);
        assert_eq!(sent(&mut series, 7_000, 7_700), [(labels, 1.0, 7_000)]);
    }

    #[test]
    fn a_series_that_ends_gets_one_stale_marker_and_begins_again_only_later() {
        let mut series = Series::new("a".to_owned());
        let (name, empty) = ("nodeglass_node_up", Snapshot::new(&Picture::default(), 0));
        assert_eq!(sent(&mut series, &snapshot(5_000), name, 5_700).len(), 1);
        let ended = sent(&mut series, &empty, name, 6_700);
        assert_eq!(
            ended.iter().map(|(_, value, at_ms)| (value.to_bits(), *at_ms)).collect::<Vec<_>>(),
            [(0x7ff0_0000_0000_0002, 6_700)]
        );
        assert_eq!(sent(&mut series, &empty, name, 7_700), []);
        // Servers would refuse what is older than the marker.
        assert_eq!(sent(&mut series, &snapshot(6_600), name, 8_700), []);
        assert_eq!(sent(&mut series, &snapshot(9_600), name, 9_700).len(), 1);
        sent(&mut series, &empty, name, 10_700);
        sent(&mut series, &empty, name, 10_701 + REMEMBER_MS as u64);
        assert!(!series.families.contains_key(name), "it is forgotten");
    }
}
