//! Between two tries the page waits longer each time, and never in step with other pages.

/// How long to wait before the next try.
#[derive(Debug, Default)]
pub struct Patience {
    failures: u32,
}

impl Patience {
    const FIRST_MS: u32 = 250;
    const LONGEST_MS: u32 = 5_000;

    /// A connection was made; the next loss starts from the beginning.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// The next wait in ms; `chance` from 0 to 1 spreads it from half of it to the whole.
    pub fn next_ms(&mut self, chance: f64) -> u32 {
        let whole = Self::FIRST_MS.saturating_mul(1 << self.failures.min(8)).min(Self::LONGEST_MS);
        self.failures += 1;
        whole / 2 + (f64::from(whole / 2) * chance.clamp(0.0, 1.0)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_five_seconds_and_start_over_after_success() {
        let mut patience = Patience::default();
        let waits: Vec<u32> = (0..7).map(|_| patience.next_ms(1.0)).collect();
        assert_eq!(waits, [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        patience.reset();
        assert_eq!(patience.next_ms(1.0), 250);
    }

    #[test]
    fn chance_spreads_a_wait_but_never_removes_it() {
        assert_eq!(Patience::default().next_ms(0.0), 125);
        assert_eq!(Patience::default().next_ms(7.0), 250);
    }
}
