//! The relay's clock beside the time of day.

/// Clock and time of day.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// The relay's clock, in ms.
    pub relay_ms: u64,
    /// Unix time at which the relay's clock would read 0, in ms.
    pub wall_ahead_ms: i64,
}

impl Now {
    /// The time of day in ms since 1970.
    pub fn wall_ms(self) -> u64 {
        self.to_wall_ms(self.relay_ms)
    }

    /// Converts ms of the relay's clock to ms since 1970.
    pub fn to_wall_ms(self, relay_ms: u64) -> u64 {
        u64::try_from(self.wall_ahead_ms.saturating_add(relay_ms.cast_signed())).unwrap_or(0)
    }

    /// Converts ms since 1970 to ms of the relay's clock; 0 if it is before that clock's start.
    pub fn wall_to_relay_ms(self, wall_ms: u64) -> u64 {
        wall_ms.saturating_add_signed(self.wall_ahead_ms.saturating_neg())
    }

    /// Converts s since 1970 to ms of the relay's clock; 0 if it is before that clock's start.
    pub fn to_relay_ms(self, wall_s: i64) -> u64 {
        u64::try_from(wall_s.saturating_mul(1_000).saturating_sub(self.wall_ahead_ms)).unwrap_or(0)
    }
}
