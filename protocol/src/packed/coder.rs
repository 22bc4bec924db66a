//! Yes-or-no answers become bytes: one that was to be expected costs a small part of a bit.
//!
//! A binary arithmetic coder over 32 bits, as in lpaq: the interval `low..=high` is cut in proportion to how likely
//! *yes* is, the half that is true goes on, and each leading byte on which both ends agree is written.

/// How likely *yes* is, learnt from the answers so far: fast at first, then slowly.
#[derive(Clone, Copy, Debug)]
pub struct Chance {
    /// In 65536ths.
    yes: u16,
    seen: u8,
}

impl Chance {
    /// As likely as not.
    pub const EVEN: Self = Self::of(1 << 15);

    /// So likely, in 65536ths.
    pub const fn of(yes: u16) -> Self {
        Self { yes, seen: 0 }
    }

    fn learn(&mut self, answer: bool) {
        let rate = (u32::from(self.seen) + 2).ilog2() + 1;
        self.seen = (self.seen + 1).min(30);
        if answer {
            self.yes += (u16::MAX - self.yes) >> rate;
        } else {
            self.yes -= self.yes >> rate;
        }
    }

    /// Where the interval is cut: *yes* is everything up to there. Neither part is ever empty.
    fn cut(self, low: u32, high: u32) -> u32 {
        let yes = u64::from(self.yes.clamp(16, u16::MAX - 16));
        low + ((u64::from(high - low) * yes) >> 16) as u32
    }
}

/// Writes answers.
#[derive(Debug)]
pub struct Encoder {
    low: u32,
    high: u32,
    out: Vec<u8>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { low: 0, high: u32::MAX, out: Vec::new() }
    }
}

/// Reads answers. Behind the end lie zeros without end, so that whoever reads must know when to stop.
#[derive(Debug)]
pub struct Decoder<'a> {
    low: u32,
    high: u32,
    value: u32,
    rest: &'a [u8],
}

impl Encoder {
    /// Everything written so far; trailing zeros need no writing.
    pub fn finish(mut self) -> Vec<u8> {
        if self.low > 0 {
            // The ends differ in their first byte, so that this one with zeros behind it lies between them.
            self.out.push((self.low >> 24) as u8 + 1);
        }
        while self.out.last() == Some(&0) {
            self.out.pop();
        }
        self.out
    }
}

impl<'a> Decoder<'a> {
    /// Begins to read.
    pub fn new(bytes: &'a [u8]) -> Self {
        let mut decoder = Self { low: 0, high: u32::MAX, value: 0, rest: bytes };
        (0..4).for_each(|_| decoder.shift());
        decoder
    }

    /// Whether all bytes were needed so far.
    pub fn is_at_the_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn shift(&mut self) {
        let (byte, rest) = self.rest.split_first().map_or((0, self.rest), |(byte, rest)| (*byte, rest));
        (self.value, self.rest) = (self.value << 8 | u32::from(byte), rest);
    }
}

/// Either direction: what is asked in the same order with the same chances is answered the same.
pub trait Coder {
    /// Passes one answer through; a decoder ignores `answer` and returns the one that was written.
    fn bit(&mut self, chance: &mut Chance, answer: bool) -> bool;
}

impl Coder for Encoder {
    fn bit(&mut self, chance: &mut Chance, answer: bool) -> bool {
        let cut = chance.cut(self.low, self.high);
        if answer {
            self.high = cut
        } else {
            self.low = cut + 1
        }
        chance.learn(answer);
        while (self.low ^ self.high) >> 24 == 0 {
            self.out.push((self.high >> 24) as u8);
            (self.low, self.high) = (self.low << 8, self.high << 8 | 0xff);
        }
        answer
    }
}

impl Coder for Decoder<'_> {
    fn bit(&mut self, chance: &mut Chance, _: bool) -> bool {
        let cut = chance.cut(self.low, self.high);
        let answer = self.value <= cut;
        if answer {
            self.high = cut
        } else {
            self.low = cut + 1
        }
        chance.learn(answer);
        while (self.low ^ self.high) >> 24 == 0 {
            (self.low, self.high) = (self.low << 8, self.high << 8 | 0xff);
            self.shift();
        }
        answer
    }
}

/// Lengths of numbers that are told apart; longer ones share the last.
const LENGTHS: usize = 12;

/// How long numbers of one kind are, and what their second-highest bit is.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    longer: [Chance; LENGTHS],
    second: [Chance; LENGTHS],
}

impl Sizes {
    /// Nothing is known of them yet.
    pub const UNKNOWN: Self = Self { longer: [Chance::EVEN; LENGTHS], second: [Chance::EVEN; LENGTHS] };

    /// Passes a number from 1 to 2⁶⁴ − 1 through: its length in unary, then its bits below the highest.
    /// `None` when what is read is no number.
    pub fn pass(&mut self, coder: &mut impl Coder, number: u64) -> Option<u64> {
        let mut length = 0u32;
        while coder.bit(&mut self.longer[(length as usize).min(LENGTHS - 1)], number >> length > 1) {
            length += 1;
            if length == u64::BITS {
                return None;
            }
        }
        let mut read = 1u64;
        for bit in (0..length).rev() {
            let asked = number >> bit & 1 == 1;
            let answer = if bit + 1 == length {
                coder.bit(&mut self.second[(length as usize).min(LENGTHS - 1)], asked)
            } else {
                coder.bit(&mut Chance::of(1 << 15), asked)
            };
            read = read << 1 | u64::from(answer);
        }
        Some(read)
    }
}

/// A difference that is seldom zero.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    down: Chance,
    sizes: Sizes,
}

impl Steps {
    /// Nothing is known of them yet.
    pub const UNKNOWN: Self = Self { down: Chance::EVEN, sizes: Sizes::UNKNOWN };

    /// Passes a difference other than zero through; `None` when what is read is none.
    pub fn pass(&mut self, coder: &mut impl Coder, step: i64) -> Option<i64> {
        let down = coder.bit(&mut self.down, step < 0);
        let size = i64::try_from(self.sizes.pass(coder, step.unsigned_abs())?).ok()?;
        Some(if down { -size } else { size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers without order, the same each time.
    fn numbers() -> impl Iterator<Item = u64> {
        let mut state = 1u64;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        })
    }

    #[test]
    fn what_was_written_is_read() {
        for likely in [0, 1, 50, 99, 100] {
            let answers: Vec<bool> = numbers().take(5_000).map(|number| number % 100 < likely).collect();
            let (mut encoder, mut chance) = (Encoder::default(), Chance::EVEN);
            answers.iter().for_each(|answer| _ = encoder.bit(&mut chance, *answer));
            let bytes = encoder.finish();
            let (mut decoder, mut chance) = (Decoder::new(&bytes), Chance::EVEN);
            let read: Vec<bool> = answers.iter().map(|_| decoder.bit(&mut chance, false)).collect();
            assert_eq!(read, answers, "{likely}");
            assert!(decoder.is_at_the_end());
        }
    }

    #[test]
    fn what_was_to_be_expected_costs_next_to_nothing() {
        let (mut encoder, mut chance) = (Encoder::default(), Chance::EVEN);
        (0..10_000).for_each(|_| _ = encoder.bit(&mut chance, true));
        assert!(encoder.finish().len() < 4);
        let (mut encoder, mut chance) = (Encoder::default(), Chance::EVEN);
        numbers().take(8_000).for_each(|number| _ = encoder.bit(&mut chance, number & 8 == 0));
        let cost = encoder.finish().len();
        assert!((1_000..1_030).contains(&cost), "{cost}");
    }

    #[test]
    fn numbers_and_steps_of_any_size_come_through() {
        let steps = [1, -1, 2, -3, 63, 64, -4_095, i64::from(u32::MAX), i64::MAX, -i64::MAX];
        let mut encoder = Encoder::default();
        let mut model = Steps::UNKNOWN;
        steps.iter().for_each(|step| assert_eq!(model.pass(&mut encoder, *step), Some(*step)));
        let bytes = encoder.finish();
        let (mut decoder, mut model) = (Decoder::new(&bytes), Steps::UNKNOWN);
        steps.iter().for_each(|step| assert_eq!(model.pass(&mut decoder, 0), Some(*step)));
    }
}
