//! Cards by name: what each of them is when the state file says nothing more.

use super::gpu::{self, Gpu};
use serde_json::{Map, Value};

/// The card that is meant if none is named.
pub const DEFAULT: &str = "a100-80g";

/// The cards there are, each with what makes it different from [`Gpu::bare`].
const CARDS: [(&str, &str); 8] = [
    (DEFAULT, include_str!("../cards/a100-80g.json")),
    ("h100", include_str!("../cards/h100.json")),
    ("h200", include_str!("../cards/h200.json")),
    ("gh200", include_str!("../cards/gh200.json")),
    ("b200", include_str!("../cards/b200.json")),
    ("gb10", include_str!("../cards/gb10.json")),
    ("t4", include_str!("../cards/t4.json")),
    ("rtx3090", include_str!("../cards/rtx3090.json")),
];

/// The names of the cards.
pub fn names() -> impl Iterator<Item = &'static str> {
    CARDS.iter().map(|(name, _)| *name)
}

/// A GPU of which only what is `given` is not as the card has it.
pub(super) fn gpu(given: Map<String, Value>) -> Result<Gpu, String> {
    let name = given.get("card").and_then(Value::as_str).unwrap_or(DEFAULT);
    let (_, card) = CARDS.iter().find(|(known, _)| *known == name).ok_or_else(|| {
        format!("no card is called {name}; there are {}", names().collect::<Vec<_>>().join(", "))
    })?;
    let wrong = |error: serde_json::Error| error.to_string();
    let mut whole = gpu::described(&Gpu::bare()).map_err(wrong)?;
    lay_over(&mut whole, serde_json::from_str(card).map_err(wrong)?);
    lay_over(&mut whole, Value::Object(given));
    gpu::plain(whole).map_err(wrong)
}

/// Replaces what `above` has; objects are joined, everything else is taken as it is.
fn lay_over(below: &mut Value, above: Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                lay_over(below.entry(key).or_insert(Value::Null), value);
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
    fn what_is_given_wins_over_the_card_to_the_last_key() {
        let gpu =
            described(json!({"card": "h100", "util": 7, "pcie": {"rx_kib_s": 5}, "nvlink": null})).unwrap();
        assert_eq!((gpu.util, gpu.pcie.rx_kib_s), (Some(7), Some(5)));
        assert_eq!(gpu.pcie.generation, Some([5, 5, 5]), "the rest of the group is the card's");
        assert!(gpu.nvlink.is_none() && gpu.gpm.is_some() && gpu.name.contains("H100"));
    }

    #[test]
    fn what_nobody_knows_is_refused_by_name() {
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
