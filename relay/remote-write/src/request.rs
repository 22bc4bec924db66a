//! Requests of remote write 1.0: Snappy-compressed protobuf messages.

use bytes::Bytes;
use prost::Message;
use std::borrow::Cow;

/// Maximum number of samples in a request, as of Prometheus' `max_samples_per_send`.
const MAX_SAMPLES: usize = 2_000;
/// Prometheus' NaN that ends a series.
const STALE_NAN: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// `prometheus.WriteRequest` of `prompb/remote.proto`.
#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

/// `prometheus.TimeSeries` of `prompb/types.proto`.
#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    /// In ms since 1970.
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

/// Requests with the samples of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    pub(crate) requests: Vec<Request>,
}

/// A compressed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Number of its samples.
    pub(crate) samples: u32,
    pub(crate) body: Bytes,
}

impl Round {
    /// Number of samples.
    pub fn samples(&self) -> u64 {
        self.requests.iter().map(|request| u64::from(request.samples)).sum()
    }

    /// Size of all requests in bytes.
    pub fn bytes(&self) -> u64 {
        self.requests.iter().map(|request| request.body.len() as u64).sum()
    }
}

/// Builds a round, one sample after the other.
#[derive(Debug, Default)]
pub(crate) struct RoundBuilder {
    round: Round,
    open: WriteRequest,
}

impl RoundBuilder {
    /// Adds a sample, or a marker of the series' end for `None`.
    pub(crate) fn push<'a>(
        &mut self,
        name: &'a str,
        labels: impl Iterator<Item = (&'static str, Cow<'a, str>)>,
        value: Option<f64>,
        at_ms: i64,
    ) {
        let mut labels: Vec<Label> = std::iter::once(("__name__", name.into()))
            .chain(labels)
            .map(|(name, value)| Label { name: name.to_owned(), value: value.into_owned() })
            .collect();
        // The protocol requires this order.
        labels.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let sample = Sample { value: value.unwrap_or(STALE_NAN), timestamp: at_ms };
        self.open.timeseries.push(TimeSeries { labels, samples: vec![sample] });
        if self.open.timeseries.len() >= MAX_SAMPLES {
            self.seal();
        }
    }

    pub(crate) fn finish(mut self) -> Round {
        self.seal();
        self.round
    }

    fn seal(&mut self) {
        let samples = self.open.timeseries.len() as u32;
        if samples == 0 {
            return;
        }
        let message = self.open.encode_to_vec();
        self.open.timeseries.clear();
        let compressed = snap::raw::Encoder::new().compress_vec(&message);
        // It fails for messages of 4 GiB only: labels have a maximum length.
        if let Ok(body) = compressed {
            self.round.requests.push(Request { samples, body: body.into() });
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Series with their samples, as a server reads them.
    pub(crate) fn decode(round: &Round) -> Vec<(String, f64, i64)> {
        let series = round.requests.iter().flat_map(|request| {
            let message = snap::raw::Decoder::new().decompress_vec(&request.body).unwrap();
            WriteRequest::decode(message.as_slice()).unwrap().timeseries
        });
        series
            .map(|series| {
                let labels: Vec<_> =
                    series.labels.iter().map(|label| format!("{}={}", label.name, label.value)).collect();
                (labels.join(","), series.samples[0].value, series.samples[0].timestamp)
            })
            .collect()
    }

    #[test]
    fn labels_are_in_order_and_a_request_is_bounded() {
        let mut builder = RoundBuilder::default();
        for number in 0..=MAX_SAMPLES {
            builder.push(
                "up",
                [("node", "n1".into()), ("gpu", "0".into())].into_iter(),
                Some(number as f64),
                7,
            );
        }
        let round = builder.finish();
        assert_eq!(round.requests.iter().map(|request| request.samples).collect::<Vec<_>>(), [2_000, 1]);
        assert_eq!(decode(&round)[2_000], ("__name__=up,gpu=0,node=n1".to_owned(), 2_000.0, 7));
    }

    #[test]
    fn the_end_of_a_series_is_the_nan_that_prometheus_expects() {
        let mut builder = RoundBuilder::default();
        builder.push("up", [].into_iter(), None, 7);
        assert_eq!(decode(&builder.finish())[0].1.to_bits(), 0x7ff0_0000_0000_0002);
    }
}
