//! Binary arithmetic coding of adaptively modelled bits and integers.
//!
//! A 32-bit carryless range coder as in lpaq1 (Matt Mahoney, 2007): the interval `low..=high` is
//! split in proportion to the probability of a set bit, the half of the coded bit remains, and each
//! leading byte that both ends share is emitted. Integers are coded in the Elias gamma code with a
//! model per bit.

/// Probability of a set bit, learned from the bits so far: fast at first, then slowly.
#[derive(Clone, Copy, Debug)]
pub struct BitModel {
    /// Probability in 65536ths.
    p_set: u16,
    seen: u8,
}

impl BitModel {
    /// Equal probability.
    pub const EVEN: Self = Self::of(1 << 15);

    /// An initial probability in 65536ths.
    pub const fn of(p_set: u16) -> Self {
        Self { p_set, seen: 0 }
    }

    fn update(&mut self, bit: bool) {
        let rate = (u32::from(self.seen) + 2).ilog2() + 1;
        self.seen = (self.seen + 1).min(30);
        if bit {
            self.p_set += (u16::MAX - self.p_set) >> rate;
        } else {
            self.p_set -= self.p_set >> rate;
        }
    }

    /// Split point: a set bit is everything up to and including it. Neither part is ever empty.
    fn split(self, low: u32, high: u32) -> u32 {
        let p_set = u64::from(self.p_set.clamp(16, u16::MAX - 16));
        low + ((u64::from(high - low) * p_set) >> 16) as u32
    }
}

/// Encodes bits to bytes.
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

/// Decodes bits from bytes. The input is padded with zeros, so the caller must know when to stop.
#[derive(Debug)]
pub struct Decoder<'a> {
    low: u32,
    high: u32,
    value: u32,
    rest: &'a [u8],
}

impl Encoder {
    /// Returns the encoded bytes; trailing zeros are omitted because the decoder pads with zeros.
    pub fn finish(mut self) -> Vec<u8> {
        if self.low > 0 {
            // The ends differ in their first byte, so this byte followed by zeros lies between
            // them.
            self.out.push((self.low >> 24) as u8 + 1);
        }
        while self.out.last() == Some(&0) {
            self.out.pop();
        }
        self.out
    }
}

impl<'a> Decoder<'a> {
    /// Starts decoding.
    pub fn new(bytes: &'a [u8]) -> Self {
        let mut decoder = Self { low: 0, high: u32::MAX, value: 0, rest: bytes };
        (0..4).for_each(|_| decoder.shift());
        decoder
    }

    /// Returns whether the input is used up.
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn shift(&mut self) {
        let (byte, rest) = self.rest.split_first().map_or((0, self.rest), |(byte, rest)| (*byte, rest));
        (self.value, self.rest) = (self.value << 8 | u32::from(byte), rest);
    }
}

/// Either direction: the same sequence of calls with equal models codes the same bits.
pub trait Coder {
    /// Codes one bit; a decoder ignores `bit` and returns the encoded one.
    fn code_bit(&mut self, model: &mut BitModel, bit: bool) -> bool;
}

impl Coder for Encoder {
    fn code_bit(&mut self, model: &mut BitModel, bit: bool) -> bool {
        let split = model.split(self.low, self.high);
        if bit {
            self.high = split
        } else {
            self.low = split + 1
        }
        model.update(bit);
        while (self.low ^ self.high) >> 24 == 0 {
            self.out.push((self.high >> 24) as u8);
            (self.low, self.high) = (self.low << 8, self.high << 8 | 0xff);
        }
        bit
    }
}

impl Coder for Decoder<'_> {
    fn code_bit(&mut self, model: &mut BitModel, _: bool) -> bool {
        let split = model.split(self.low, self.high);
        let bit = self.value <= split;
        if bit {
            self.high = split
        } else {
            self.low = split + 1
        }
        model.update(bit);
        while (self.low ^ self.high) >> 24 == 0 {
            (self.low, self.high) = (self.low << 8, self.high << 8 | 0xff);
            self.shift();
        }
        bit
    }
}

/// Lengths with a context of their own; longer numbers share the last one.
const LENGTHS: usize = 12;

/// Model of positive integers: their bit length and their second-highest bit.
#[derive(Clone, Copy, Debug)]
pub struct MagnitudeModel {
    longer: [BitModel; LENGTHS],
    second: [BitModel; LENGTHS],
}

impl MagnitudeModel {
    /// Initial state.
    pub const INITIAL: Self = Self { longer: [BitModel::EVEN; LENGTHS], second: [BitModel::EVEN; LENGTHS] };

    /// Codes a number from 1 to 2⁶⁴ − 1: its length in unary, then its bits below the highest.
    /// Returns `None` if the decoded bits are not a number.
    pub fn code(&mut self, coder: &mut impl Coder, number: u64) -> Option<u64> {
        let mut length = 0u32;
        while coder.code_bit(&mut self.longer[(length as usize).min(LENGTHS - 1)], number >> length > 1) {
            length += 1;
            if length == u64::BITS {
                return None;
            }
        }
        let mut read = 1u64;
        for index in (0..length).rev() {
            let wanted = number >> index & 1 == 1;
            let bit = if index + 1 == length {
                coder.code_bit(&mut self.second[(length as usize).min(LENGTHS - 1)], wanted)
            } else {
                coder.code_bit(&mut BitModel::of(1 << 15), wanted)
            };
            read = read << 1 | u64::from(bit);
        }
        Some(read)
    }
}

/// Model of signed integers other than zero.
#[derive(Clone, Copy, Debug)]
pub struct IntModel {
    negative: BitModel,
    magnitude: MagnitudeModel,
}

impl IntModel {
    /// Initial state.
    pub const INITIAL: Self = Self { negative: BitModel::EVEN, magnitude: MagnitudeModel::INITIAL };

    /// Codes an integer other than zero; returns `None` if the decoded bits are not an integer.
    pub fn code(&mut self, coder: &mut impl Coder, step: i64) -> Option<i64> {
        let negative = coder.code_bit(&mut self.negative, step < 0);
        let size = i64::try_from(self.magnitude.code(coder, step.unsigned_abs())?).ok()?;
        Some(if negative { -size } else { size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deterministic pseudo-random numbers.
    fn numbers() -> impl Iterator<Item = u64> {
        let mut state = 1u64;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        })
    }

    #[test]
    fn bits_round_trip() {
        for likely in [0, 1, 50, 99, 100] {
            let answers: Vec<bool> = numbers().take(5_000).map(|number| number % 100 < likely).collect();
            let (mut encoder, mut model) = (Encoder::default(), BitModel::EVEN);
            answers.iter().for_each(|bit| _ = encoder.code_bit(&mut model, *bit));
            let bytes = encoder.finish();
            let (mut decoder, mut model) = (Decoder::new(&bytes), BitModel::EVEN);
            let read: Vec<bool> = answers.iter().map(|_| decoder.code_bit(&mut model, false)).collect();
            assert_eq!(read, answers, "{likely}");
            assert!(decoder.is_at_end());
        }
    }

    #[test]
    fn predictable_bits_cost_next_to_nothing() {
        let (mut encoder, mut model) = (Encoder::default(), BitModel::EVEN);
        (0..10_000).for_each(|_| _ = encoder.code_bit(&mut model, true));
        assert!(encoder.finish().len() < 4);
        let (mut encoder, mut model) = (Encoder::default(), BitModel::EVEN);
        numbers().take(8_000).for_each(|number| _ = encoder.code_bit(&mut model, number & 8 == 0));
        let cost = encoder.finish().len();
        assert!((1_000..1_030).contains(&cost), "{cost}");
    }

    #[test]
    fn integers_of_any_size_round_trip() {
        let steps = [1, -1, 2, -3, 63, 64, -4_095, i64::from(u32::MAX), i64::MAX, -i64::MAX];
        let mut encoder = Encoder::default();
        let mut model = IntModel::INITIAL;
        steps.iter().for_each(|step| assert_eq!(model.code(&mut encoder, *step), Some(*step)));
        let bytes = encoder.finish();
        let (mut decoder, mut model) = (Decoder::new(&bytes), IntModel::INITIAL);
        steps.iter().for_each(|step| assert_eq!(model.code(&mut decoder, 0), Some(*step)));
    }
}
