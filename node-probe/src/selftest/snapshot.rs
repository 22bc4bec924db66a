//! Readings of all GPUs and processes at one time, and what their comparison has to consider.

use super::judge::{Observed, Tolerance};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Identifies a reading.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// UUID of the GPU or MIG instance.
    pub gpu: String,
    /// Process on it, for readings of a process.
    pub pid: Option<u32>,
    /// Name of the reading in the probe's JSON.
    pub name: String,
}

/// Readings at one time.
pub type Snapshot = BTreeMap<Key, Observed>;

/// Name of the number of NVLinks that are up.
const LINKS: &str = "nvlinks_up";
/// Readings of a process that the driver has; the others are Linux's.
pub const OF_PROCESSES: [&str; 5] = ["gpu_mem_bytes", "sm_pct", "mem_bw_pct", "enc_pct", "dec_pct"];
/// Means over the time since the last read of the same client.
const OWN_WINDOW: [&str; 18] = [
    "graphics_active_pct",
    "sm_active_pct",
    "sm_occupancy_pct",
    "tensor_active_pct",
    "dram_active_pct",
    "fp64_active_pct",
    "fp32_active_pct",
    "fp16_active_pct",
    "pcie_rx_bytes_s",
    "pcie_tx_bytes_s",
    "nvlink_rx_bytes_s",
    "nvlink_tx_bytes_s",
    "power_capped_pct",
    "thermal_capped_pct",
    "sm_pct",
    "mem_bw_pct",
    // Of a process; those of a GPU have the driver's window.
    "process enc_pct",
    "process dec_pct",
];

/// Percentage points by which shares over different windows may differ.
const POINTS: f64 = 5.0;
/// Bytes per second by which rates over different windows may differ: reading a GPU causes traffic, too.
const TRAFFIC: f64 = 16_777_216.0;

/// Fields of a probe's facts, sample and health that are not compared, with the reason.
pub const NOT_COMPARED: &[(&str, &str)] = &[
    ("vendor", "only NVIDIA's GPUs are compared"),
    ("mig_parent", "no reading: both list an instance under its UUID"),
    ("mig", "no reading: both list an instance under its UUID"),
    ("unified_memory", "computed by the probe"),
    ("mem_unattributed_bytes", "computed by the relay"),
    ("hotspot_temp_c", "NVML has no such reading"),
    ("host_mem_used_bytes", "NVML has no such reading"),
    ("fan_rpm", "NVML has no such reading"),
    ("fault", "no reading: a GPU with a fault lacks all of them"),
    ("nvlinks", "compared by the number of links that are up"),
    ("vgpus", "of hosts of virtual machines"),
    ("license", "of guests with vGPU software"),
];

/// Returns what explains a difference, for a reference that rounds to `step`.
pub fn tolerance(key: &Key, step: f64) -> Tolerance {
    let is_listed = |name: &str| OWN_WINDOW.contains(&name);
    let is_mean = is_listed(&key.name) || key.pid.is_some() && is_listed(&format!("process {}", key.name));
    let own_window = is_mean.then_some(if key.name.ends_with("_bytes_s") { TRAFFIC } else { POINTS });
    Tolerance { step, own_window }
}

/// Returns what a value of the probe's JSON states.
pub fn observed(value: &Value) -> Observed {
    match value {
        Value::Bool(is_so) => Observed::Number(f64::from(u8::from(*is_so))),
        Value::Number(number) => {
            number.as_f64().map_or_else(|| Observed::Absent("no number".into()), Observed::Number)
        }
        Value::String(word) if word == "unsupported" => Observed::Absent("unsupported".into()),
        Value::String(text) => Observed::Text(text.to_lowercase()),
        Value::Object(failed) => {
            let why = failed.get("failed").and_then(Value::as_str);
            Observed::Absent(why.map_or_else(|| "of another form".into(), |why| format!("failed: {why}")))
        }
        Value::Null | Value::Array(_) => Observed::Absent("not taken".into()),
    }
}

/// A report of `node-probe --once`.
pub struct OnceReport(pub Value);

impl OnceReport {
    /// Facts of NVIDIA's GPUs and instances, with their positions.
    pub fn gpus(&self) -> impl Iterator<Item = (usize, &Map<String, Value>)> {
        let gpus = self.list("/hello/gpus").enumerate();
        gpus.filter_map(|(at, gpu)| Some((at, gpu.as_object()?))).filter(|(_, gpu)| gpu["vendor"] == "nvidia")
    }

    /// UUID and label of each GPU: `GPU 0`, `MIG 0`.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let label = |gpu: &Map<String, Value>| {
            let kind = if gpu["mig_parent"].is_null() { "GPU" } else { "MIG" };
            Some((gpu["uuid"].as_str()?.to_owned(), format!("{kind} {}", gpu["index"])))
        };
        self.gpus().filter_map(|(_, gpu)| label(gpu)).collect()
    }

    fn list(&self, pointer: &str) -> impl Iterator<Item = &Value> {
        self.0.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
    }

    /// Processes as UUID, pid and entry.
    pub fn processes(&self) -> impl Iterator<Item = (&str, u32, &Value)> {
        self.list("/processes").filter_map(|process| {
            let pid = process.pointer("/facts/pid")?.as_u64()?;
            Some((process.pointer("/facts/gpu")?.as_str()?, u32::try_from(pid).ok()?, process))
        })
    }

    /// Returns all readings that are compared.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::new();
        for (at, facts) in self.gpus() {
            let gpu = facts["uuid"].as_str().unwrap_or_default().to_owned();
            let parts = [format!("/sample/gpus/{at}"), format!("/health/{at}")];
            let parts = parts.iter().filter_map(|part| self.0.pointer(part)?.as_object());
            let fields = [facts].into_iter().chain(parts).flatten();
            let compared = fields.filter(|(name, _)| NOT_COMPARED.iter().all(|(other, _)| other != name));
            snapshot.extend(compared.map(|(name, value)| {
                (Key { gpu: gpu.clone(), pid: None, name: name.clone() }, observed(value))
            }));
            let up = self.list(&format!("/health/{at}/nvlinks")).filter(|link| link["up"] == true).count();
            snapshot.insert(Key { gpu, pid: None, name: LINKS.into() }, Observed::Number(up as f64));
        }
        for (gpu, pid, process) in self.processes() {
            for name in OF_PROCESSES {
                let key = Key { gpu: gpu.to_owned(), pid: Some(pid), name: name.into() };
                snapshot.insert(key, observed(&process["now"][name]));
            }
        }
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::probe::{GpuFacts, GpuHealth, GpuSample, ProcessReadings};

    const SCRIPT: &str = include_str!("nvidia_ml_py.py");

    fn names(of: &impl serde::Serialize) -> Vec<String> {
        let json = serde_json::to_value(of).unwrap();
        json.as_object().unwrap().keys().cloned().collect()
    }

    /// Reading a new metric needs a reference, or a reason for having none.
    #[test]
    fn each_reading_of_the_probe_has_a_reference_or_a_reason() {
        let mut sample = GpuSample::default();
        sample.readings_mut().for_each(|reading| *reading = nodeglass_protocol::Reading::Unsupported);
        let known = [names(&GpuFacts::default()), names(&sample), names(&GpuHealth::default())].concat();
        assert!(known.len() > 80, "{known:?}");
        for name in &known {
            let is_compared = SCRIPT.contains(&format!("\"{name}\""));
            let is_excused = NOT_COMPARED.iter().any(|(excused, _)| excused == name);
            assert!(
                is_compared != is_excused,
                "{name} is in nvidia_ml_py.py: {is_compared}, in NOT_COMPARED: {is_excused}"
            );
        }
        let processes = names(&ProcessReadings::default());
        assert!(OF_PROCESSES.iter().all(|name| SCRIPT.contains(&format!("\"{name}\""))), "{processes:?}");
    }

    #[test]
    fn a_report_has_the_readings_of_gpus_and_processes() {
        let report = OnceReport(serde_json::json!({
            "hello": {"gpus": [{"uuid": "AMD-1", "vendor": "amd"}, {"uuid": "GPU-1", "vendor": "nvidia", "index": 0, "mig_parent": null, "name": "H100"}]},
            "sample": {"gpus": [{"temp_c": 1}, {"temp_c": 31, "fan_pct": "unsupported", "fan_rpm": "unsupported"}]},
            "health": [{}, {"remap_pending": false, "nvlinks": [{"up": true}, {"up": false}]}],
            "processes": [{"facts": {"gpu": "GPU-1", "pid": 7}, "now": {"gpu_mem_bytes": {"failed": "no"}}}],
        }));
        let snapshot = report.snapshot();
        let get =
            |pid, name: &str| snapshot.get(&Key { gpu: "GPU-1".into(), pid, name: name.into() }).cloned();
        assert_eq!(get(None, "temp_c"), Some(Observed::Number(31.0)));
        assert_eq!(get(None, "name"), Some(Observed::Text("h100".into())));
        assert_eq!(get(None, "remap_pending"), Some(Observed::Number(0.0)));
        assert_eq!(get(None, LINKS), Some(Observed::Number(1.0)));
        assert_eq!(get(None, "fan_pct"), Some(Observed::Absent("unsupported".into())));
        assert_eq!(get(None, "fan_rpm"), None);
        assert_eq!(get(Some(7), "gpu_mem_bytes"), Some(Observed::Absent("failed: no".into())));
        assert!(snapshot.keys().all(|key| key.gpu == "GPU-1"));
        assert_eq!(report.labels()["GPU-1"], "GPU 0");
    }
}
