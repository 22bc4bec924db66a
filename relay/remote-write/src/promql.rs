//! Reads ranges of series back through Prometheus' HTTP API, as VictoriaMetrics and others have it as well.

use super::Credentials;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use nodeglass_api::metrics::FieldSeries;
use nodeglass_http_client::{Client, HttpError, HttpUrl};
use nodeglass_protocol::Text;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Maximum size of an answer in bytes.
const MAX_ANSWER: usize = 32 << 20;
/// Maximum number of values of an answer, which has room for each step of a row however few the server sends.
const MAX_VALUES: usize = 3_000_000;

/// Maximum number of queries at once, each of which may take a hundred MB for its answer.
const MAX_QUERIES: usize = 2;

/// A server that is queried. Clones share the limit of queries.
#[derive(Clone, Debug)]
pub struct PromQl {
    url: HttpUrl,
    headers: HeaderMap,
    queries: Arc<Semaphore>,
}

/// Steps of time that end at `start_s + step_s`, `start_s + 2 * step_s`, …, in s since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Start of the first step.
    pub start_s: u64,
    /// Length of a step.
    pub step_s: u64,
    /// Number of steps.
    pub count: usize,
}

/// A selection of rows of one cluster, because others may have the same numbers of jobs and names of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The label `cluster`; empty selects series without it.
    pub cluster: String,
    /// The rows.
    pub rows: Rows,
}

/// Rows to read: those with these labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rows {
    /// All of them.
    All,
    /// The GPUs of a job, by its id.
    Job(u32),
    /// The rows of a node.
    Node(String),
}

/// The values of a field of a row, by step, in the unit of the field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowValues {
    /// Mean values.
    pub mean: Vec<Option<u64>>,
    /// Lowest values.
    pub min: Vec<Option<u64>>,
    /// Highest values.
    pub max: Vec<Option<u64>>,
}

/// Node and UUID of a GPU; the UUID of a host is empty.
pub type RowKey = (String, String);

/// Error of a query. Messages read well after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum PromQlError {
    /// The server did not respond, or responded with an error.
    #[error(transparent)]
    Request(#[from] HttpError),
    /// The answer is too large.
    #[error(
        "read the long-term storage: the answer is too large; choose a job or node, fewer metrics, or longer steps"
    )]
    TooLarge,
    /// The answer has another form.
    #[error("read the long-term storage: the answer is not that of a Prometheus query: {0}")]
    Form(Text),
}

#[derive(Deserialize)]
struct Answer {
    status: String,
    #[serde(default)]
    error: String,
    data: Option<Data>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
    result: Vec<Matrix>,
}

#[derive(Deserialize)]
struct Matrix {
    metric: BTreeMap<String, String>,
    values: Vec<(f64, String)>,
}

impl PromQl {
    /// A server by the URL under which `/api/v1/query_range` is.
    pub fn new(url: &HttpUrl, credentials: Option<Credentials>) -> Self {
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, form)]);
        headers.extend(credentials.map(|credentials| (AUTHORIZATION, credentials.header())));
        Self { url: url.join("/api/v1/query_range"), headers, queries: Arc::new(Semaphore::new(MAX_QUERIES)) }
    }

    /// Reads the values of a series, by row.
    ///
    /// # Errors
    /// [`PromQlError`].
    pub async fn read(
        &self,
        series: &FieldSeries,
        selection: &Selection,
        steps: Steps,
    ) -> Result<BTreeMap<RowKey, RowValues>, PromQlError> {
        let first_s = steps.start_s + steps.step_s;
        let last_s = steps.start_s + steps.step_s * steps.count as u64;
        let form = [
            ("query", query(&series.name, selection, steps.step_s)),
            ("start", first_s.to_string()),
            ("end", last_s.to_string()),
            ("step", steps.step_s.to_string()),
        ];
        let body = serde_urlencoded::to_string(form).map_err(malformed)?;
        let permit = self.queries.clone().acquire_owned().await.map_err(malformed)?;
        let answer = Client::default()
            .post(&self.url, self.headers.clone(), body.into(), MAX_ANSWER + 1, Duration::MAX)
            .await?;
        let per_unit = series.per_unit;
        let parsed = tokio::task::spawn_blocking(move || {
            let parsed = parse(&answer, per_unit, steps);
            drop(permit);
            parsed
        });
        parsed.await.unwrap_or_else(|error| Err(malformed(error)))
    }
}

/// The query for mean, minimum and maximum in one answer. A GPU has several series over time, one per job.
fn query(name: &str, selection: &Selection, step_s: u64) -> String {
    let row = match &selection.rows {
        Rows::All => String::new(),
        Rows::Job(id) => format!(",job=~\"(.*,)?{id}(,.*)?\""),
        // The name of a node has letters, digits, dots, dashes and underscores only.
        Rows::Node(node) => format!(",node=\"{node}\""),
    };
    // PromQL has the escapes of JSON.
    let labels = format!("cluster={}{row}", serde_json::Value::from(selection.cluster.as_str()));
    let part = |stat: &str, aggregate: &str| {
        let over =
            format!("{aggregate} by (node, uuid) ({aggregate}_over_time({name}{{{labels}}}[{step_s}s]))");
        format!("label_replace({over}, \"stat\", \"{stat}\", \"\", \"\")")
    };
    [part("mean", "avg"), part("min", "min"), part("max", "max")].join(" or ")
}

/// The error for an answer of another form. It is truncated, because parsers repeat what the server sent.
fn malformed(why: impl ToString) -> PromQlError {
    PromQlError::Form(Text::new(why.to_string()))
}

/// Reads an answer. Values that no reading can have, and times outside of the steps, are left out.
fn parse(answer: &[u8], per_unit: f64, steps: Steps) -> Result<BTreeMap<RowKey, RowValues>, PromQlError> {
    if answer.len() > MAX_ANSWER {
        return Err(PromQlError::TooLarge);
    }
    let answer: Answer = serde_json::from_slice(answer).map_err(malformed)?;
    let data = match answer.data {
        Some(data) if answer.status == "success" && data.result_type == "matrix" => data,
        _ => {
            return Err(malformed(format!("status {:?} {}", answer.status, answer.error)));
        }
    };
    let empty = || vec![None; steps.count];
    let mut rows: BTreeMap<RowKey, RowValues> = BTreeMap::new();
    for series in data.result {
        let label = |name: &str| {
            series.metric.get(name).map_or_else(String::new, |value| Text::new(value).as_str().to_owned())
        };
        if rows.len() * steps.count * 3 > MAX_VALUES {
            return Err(PromQlError::TooLarge);
        }
        let row = rows.entry((label("node"), label("uuid"))).or_insert_with(|| RowValues {
            mean: empty(),
            min: empty(),
            max: empty(),
        });
        let values = match label("stat").as_str() {
            "mean" => &mut row.mean,
            "min" => &mut row.min,
            "max" => &mut row.max,
            other => return Err(malformed(format!("an unknown series {other:?}"))),
        };
        for (at_s, value) in series.values {
            let step = ((at_s - steps.start_s as f64) / steps.step_s as f64).round() - 1.0;
            let value = value.parse::<f64>().ok().map(|value| (value / per_unit).round());
            // Comparisons are false for NaN.
            let (Some(value), true) = (value, step >= 0.0 && step < steps.count as f64) else { continue };
            if (0.0..=(1_u64 << 53) as f64).contains(&value) {
                values[step as usize] = Some(value as u64);
            }
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: Steps = Steps { start_s: 1_000, step_s: 60, count: 3 };

    #[test]
    fn values_are_read_by_row_and_step_in_the_unit_of_the_field() {
        let answer = r#"{"status":"success","data":{"resultType":"matrix","result":[
            {"metric":{"node":"n1","uuid":"GPU-0","stat":"mean"},"values":[[1060,"0.5"],[1180,"0.25"]]},
            {"metric":{"node":"n1","uuid":"GPU-0","stat":"max"},"values":[[1060,"1"]]}]}}"#;
        let rows = parse(answer.as_bytes(), 0.01, STEPS).unwrap();
        let row = &rows[&("n1".to_owned(), "GPU-0".to_owned())];
        assert_eq!(
            (&row.mean[..], &row.max[..]),
            (&[Some(50), None, Some(25)][..], &[Some(100), None, None][..])
        );
    }

    #[test]
    fn what_no_reading_can_be_is_left_out_and_nonsense_is_an_error() {
        let answer = r#"{"status":"success","data":{"resultType":"matrix","result":[
            {"metric":{"stat":"mean"},"values":[[1060,"NaN"],[1120,"-3"],[1180,"+Inf"],[9e99,"1"],[-9e99,"1"]]}]}}"#;
        assert_eq!(parse(answer.as_bytes(), 1.0, STEPS).unwrap()[&Default::default()].mean, [None; 3]);
        for wrong in [
            "",
            "[]",
            "null",
            "\u{1f}\u{8b}",
            r#"{"status":"error","error":"x"}"#,
            r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"stat":"mean"},"values":[["1",2]]}]}}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[]}]}}"#,
        ] {
            assert!(matches!(parse(wrong.as_bytes(), 1.0, STEPS), Err(PromQlError::Form(_))), "{wrong}");
        }
        assert!(matches!(parse(&vec![b' '; MAX_ANSWER + 1], 1.0, STEPS), Err(PromQlError::TooLarge)));
    }

    #[test]
    fn rows_without_end_take_no_memory() {
        let series: Vec<_> = (0..20_000)
            .map(|row| format!(r#"{{"metric":{{"node":"n{row}","stat":"min"}},"values":[]}}"#))
            .collect();
        let answer = format!(
            r#"{{"status":"success","data":{{"resultType":"matrix","result":[{}]}}}}"#,
            series.join(",")
        );
        let steps = Steps { count: 1_000, ..STEPS };
        assert!(matches!(parse(answer.as_bytes(), 1.0, steps), Err(PromQlError::TooLarge)));
        assert_eq!(parse(answer.as_bytes(), 1.0, STEPS).unwrap().len(), 20_000);
    }

    #[test]
    fn what_a_server_calls_its_rows_is_bounded_and_has_no_control_characters() {
        let metric = format!(r#"{{"node":"\u001b[2J{}","stat":"mean"}}"#, "x".repeat(10_000));
        let answer = |metric: &str| {
            format!(
                r#"{{"status":"success","data":{{"resultType":"matrix","result":[{{"metric":{metric},"values":[]}}]}}}}"#
            )
        };
        let rows = parse(answer(&metric).as_bytes(), 1.0, STEPS).unwrap();
        let (node, _) = rows.first_key_value().unwrap().0;
        assert!(node.len() <= Text::MAX_BYTES && !node.contains(char::is_control), "{node:?}");
        let wrong = format!(r#"{{"stat":"{}"}}"#, "x".repeat(100_000));
        let error = parse(answer(&wrong).as_bytes(), 1.0, STEPS).unwrap_err();
        assert!(error.to_string().len() < 1_000, "{error}");
        let wrong = format!(r#"{{"status":"success","data":"{}"}}"#, "x".repeat(100_000));
        assert!(parse(wrong.as_bytes(), 1.0, STEPS).unwrap_err().to_string().len() < 1_000);
        let status = format!(r#"{{"status":"{}"}}"#, "x".repeat(100_000));
        assert!(parse(status.as_bytes(), 1.0, STEPS).unwrap_err().to_string().len() < 1_000);
    }

    #[test]
    fn a_query_is_of_the_selected_rows_of_one_cluster() {
        let of = |cluster: &str, rows| query("m", &Selection { cluster: cluster.into(), rows }, 60);
        let job = of("hpc", Rows::Job(17));
        assert!(job.contains(r#"avg_over_time(m{cluster="hpc",job=~"(.*,)?17(,.*)?"}[60s])"#), "{job}");
        assert!(of("", Rows::Node("n1".into())).contains(r#"m{cluster="",node="n1"}[60s]"#));
        assert!(of("a\"b\\", Rows::All).contains(r#"m{cluster="a\"b\\"}[60s]"#));
    }
}
