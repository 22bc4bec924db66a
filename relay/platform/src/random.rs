//! Random numbers for ids and for spreading retries, not for secrets.

use crate::clock::Clock;

/// Returns a random number. If the system has none (`getrandom(2)` fails), it depends on the clock.
pub fn random_u64() -> u64 {
    getrandom::u64().unwrap_or_else(|_| Clock::wall_ms().wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
