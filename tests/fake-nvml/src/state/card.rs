//! Defaults of each card model, by name.

use super::gpu::{self, DEFAULT_CARD, Gpu};
use nodeglass_gpu_models::{self as models, GpuModel, Memory};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use serde_json::{Map, Value, json};

/// Card models: name, model, and further values of NVML as differences from
/// [`Gpu::bare`].
const CARDS: [(&str, GpuModel, &str); 10] = [
    (DEFAULT_CARD, models::A100, include_str!("../cards/a100-80g.json")),
    ("h100", models::H100, include_str!("../cards/h100.json")),
    ("h200", models::H200, include_str!("../cards/h200.json")),
    ("gh200", models::GH200, include_str!("../cards/gh200.json")),
    ("b200", models::B200, include_str!("../cards/b200.json")),
    ("gb10", models::GB10, include_str!("../cards/gb10.json")),
    ("l40s", models::L40S, include_str!("../cards/l40s.json")),
    ("t4", models::T4, include_str!("../cards/t4.json")),
    ("rtx3090", models::RTX_3090, include_str!("../cards/rtx3090.json")),
    ("rtx4090", models::RTX_4090, include_str!("../cards/rtx4090.json")),
];

/// The names of the cards.
pub fn names() -> impl Iterator<Item = &'static str> {
    CARDS.iter().map(|(name, ..)| *name)
}

/// A GPU with the card's defaults, except for the `given` values.
fn gpu(given: Map<String, Value>) -> Result<Gpu, String> {
    let name = given.get("card").and_then(Value::as_str).unwrap_or(DEFAULT_CARD);
    let (_, model, card) = CARDS.iter().find(|(known, ..)| *known == name).ok_or_else(|| {
        format!("no card is called {name}; there are {}", names().collect::<Vec<_>>().join(", "))
    })?;
    let wrong = |error: serde_json::Error| error.to_string();
    let mut description = gpu::to_value(&Gpu::bare()).map_err(wrong)?;
    merge(&mut description, of_model(model));
    merge(&mut description, serde_json::from_str(card).map_err(wrong)?);
    merge(&mut description, Value::Object(given));
    gpu::from_value(description).map_err(wrong)
}

impl Default for Gpu {
    fn default() -> Self {
        gpu(serde_json::Map::new()).unwrap_or_else(|_| Self::bare())
    }
}

impl Serialize for Gpu {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Gpu {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        gpu(serde_json::Map::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Values of an idle GPU from its model; `null` for unsupported ones.
fn of_model(model: &GpuModel) -> Value {
    let when = |there: bool, value: Value| if there { value } else { Value::Null };
    let milliwatts = |watts: f64| (watts * 1_000.0) as u32;
    let on_card = model.memory != Memory::Host;
    let limit = |watts: f64| when(on_card, json!(milliwatts(watts)));
    let (idle, most) = model.pcie_gen;
    let mut over = json!({
        "name": model.name,
        "board": {
            "architecture": model.architecture.nvml(),
            "compute_capability": model.compute_capability,
            "cores": model.cores(),
            "slice_multiprocessors": model.slice_multiprocessors,
            "mig_capable": model.slice_multiprocessors > 0,
            "vbios": model.vbios,
        },
        "mem_total_mib": when(on_card, json!(model.mem_mib)),
        "mem_reserved_mib": model.reserved_mib,
        "mem_bus_bits": when(model.mem_bus_bits > 0, json!(model.mem_bus_bits)),
        "temp_slowdown": model.limits.map(|limits| limits.slowdown_c),
        "thermal": {
            "shutdown": model.limits.map(|limits| limits.shutdown_c),
            "gpu_max": model.limits.map(|limits| limits.gpu_max_c),
            "mem_max": model.limits.and_then(|limits| limits.mem_max_c),
        },
        "power_mw": milliwatts(model.bare_w),
        "power_limit_mw": limit(model.cap_w),
        "power": {
            "default": limit(model.cap_w),
            "min": limit(model.cap_min_w),
            "max": limit(model.cap_max_w),
        },
        "sm_clock": model.sm_idle_mhz,
        "sm_clock_max": model.sm_max_mhz,
        "mem_clock": when(model.mem_mhz > 0, json!(model.mem_idle_mhz)),
        "mem_clock_max": when(model.mem_mhz > 0, json!(model.mem_mhz)),
        "fan": when(model.fan, json!(0)),
        "pcie": {"generation": [idle, most, most], "width": [model.pcie_width, model.pcie_width]},
    });
    if !model.mem_temp {
        merge(&mut over, json!({"thermal": {"mem": null}}));
    }
    if !model.gpm {
        // Confidential computing came with GPM.
        merge(&mut over, json!({"gpm": null, "mem_protected_mib": null}));
    }
    if !model.ecc {
        merge(&mut over, json!({"ecc_uncorrected": null, "ecc_corrected": null, "remapped": null}));
    }
    let links = model.nvlink.map(|links| {
        // `nvmlNvlinkVersion_t` has half steps between the generations.
        let version = if links.generation == 3 { 4 } else { links.generation + 2 };
        json!({"links": links.count, "version": version, "speed_mb_s": links.speed_mb_s})
    });
    merge(&mut over, json!({"nvlink": links}));
    over
}

/// Overrides values: objects are merged, everything else is replaced.
fn merge(below: &mut Value, above: Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                merge(below.entry(key).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn described(given: Value) -> Result<Gpu, String> {
        serde_json::from_value(given).map_err(|error| error.to_string())
    }

    #[test]
    fn every_gpu_model_is_found_by_name_and_reports_it() {
        for name in names() {
            let gpu = described(json!({"card": name})).unwrap();
            let again = described(serde_json::to_value(&gpu).unwrap()).unwrap();
            assert_eq!(format!("{gpu:?}"), format!("{again:?}"));
            assert_eq!(gpu.card, name);
        }
    }

    #[test]
    fn given_values_override_the_card_key_by_key() {
        let gpu =
            described(json!({"card": "h100", "util": 7, "pcie": {"rx_kib_s": 5}, "nvlink": null})).unwrap();
        assert_eq!((gpu.util, gpu.pcie.rx_kib_s), (Some(7), Some(5)));
        assert_eq!(gpu.pcie.generation, Some([5, 5, 5]), "the rest of the group is the card's");
        assert!(gpu.nvlink.is_none() && gpu.gpm.is_some() && gpu.name.contains("H100"));
    }

    #[test]
    fn unknown_keys_and_cards_are_refused_by_name() {
        assert!(described(json!({"card": "voodoo2"})).unwrap_err().contains("voodoo2"));
        assert!(described(json!({"pcie": {"rx": 1}})).unwrap_err().contains("rx"));
        assert!(described(json!({"uitl": 1})).unwrap_err().contains("uitl"));
    }

    #[test]
    fn the_default_is_an_idle_a100() {
        let gpu = described(json!({})).unwrap();
        assert_eq!(
            (gpu.name.as_str(), gpu.power_mw, gpu.mem_total_mib),
            ("NVIDIA A100-SXM4-80GB", Some(61_000), Some(81_920))
        );
        assert!(gpu.gpm.is_none() && gpu.fan.is_none());
    }
}
