//! Stateless random numbers: a hash of seed, location and time, so that a scenario is reproducible
//! at any time.

/// Random numbers of one location (a GPU, a node) of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Rng {
    key: u64,
    constant: bool,
}

impl Rng {
    /// Creates the generator of a scenario; a `constant` one always returns the middle of the
    /// range.
    pub fn new(seed: u64, constant: bool) -> Self {
        Self { key: mix(seed), constant }
    }

    /// Returns whether all numbers are constant.
    pub fn is_constant(self) -> bool {
        self.constant
    }

    /// Derives the generator of a location within this one.
    pub fn at(self, location: u64) -> Self {
        Self { key: mix(self.key ^ location.wrapping_mul(0x9e37_79b9_7f4a_7c15)), ..self }
    }

    /// Returns a constant number for this location.
    pub fn number(self, what: u64) -> u64 {
        mix(self.key ^ mix(what))
    }

    /// Returns a number from 0 to 1 for each `slot`.
    pub fn unit(self, what: u64, slot: i64) -> f64 {
        if self.constant {
            return 0.5;
        }
        let bits = mix(self.key ^ mix(what ^ (slot as u64).rotate_left(24)));
        (bits >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns smooth noise from −1 to 1 that changes direction about every `period_ms`.
    pub fn smooth_noise(self, what: u64, t_ms: i64, period_ms: i64) -> f64 {
        let (slot, part) = (t_ms.div_euclid(period_ms), t_ms.rem_euclid(period_ms) as f64 / period_ms as f64);
        let (from, to) = (self.unit(what, slot), self.unit(what, slot + 1));
        let eased = part * part * (3.0 - 2.0 * part);
        (from + (to - from) * eased) * 2.0 - 1.0
    }
}

/// Finalizer of SplitMix64.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_spread_over_their_range() {
        let rng = Rng::new(1, false).at(3);
        let mean = (0..10_000).map(|slot| rng.unit(7, slot)).sum::<f64>() / 10_000.0;
        assert!((0.48..0.52).contains(&mean), "{mean}");
        assert!((0..10_000).all(|slot| (0.0..1.0).contains(&rng.unit(7, slot))));
    }

    #[test]
    fn smooth_noise_is_continuous() {
        let rng = Rng::new(1, false);
        for t in (-60_000i64..60_000).step_by(100) {
            let step = rng.smooth_noise(1, t + 100, 10_000) - rng.smooth_noise(1, t, 10_000);
            assert!(step.abs() < 0.04, "{step} at {t}");
        }
    }

    #[test]
    fn seeds_and_locations_have_different_numbers() {
        let one = Rng::new(1, false);
        assert_ne!(one.unit(0, 0), Rng::new(2, false).unit(0, 0));
        assert_ne!(one.unit(0, 0), one.at(1).unit(0, 0));
        assert_eq!(Rng::new(9, true).unit(0, 0), 0.5);
    }
}
