//! Delta and run-length encoded queue of codes: unchanged slots cost almost no memory.
//!
//! The bytes are tokens, oldest first. Each encodes the codes that follow the previous one, in
//! wrapping 16-bit arithmetic:
//!
//! | first byte | encodes |
//! |---|---|
//! | `00`–`7F` | one code, as a zigzag difference of this value plus 1 |
//! | `80`–`BF` | 1 to 64 repetitions of the previous code |
//! | `C0`–`FE` | one code, as a zigzag difference from 129 on: its upper byte, followed by the
//! lower byte |
//! | `FF` | one literal code in the following two bytes, little endian |
//!
//! Zigzag: 1 stands for −1, 2 for 1, 3 for −2 and so on.

use std::fmt;

const RUN: u8 = 0x80;
const LONGEST_RUN: u8 = 64;
const WIDE: u8 = 0xC0;
const LITERAL: u8 = 0xFF;
/// Smallest difference that needs two bytes, and smallest that needs three.
const WIDE_FROM: u16 = 0x81;
const TOO_WIDE: u16 = WIDE_FROM + ((LITERAL - WIDE) as u16) * 256;

/// A queue of 16-bit codes, oldest first.
#[derive(Clone, Default)]
pub struct Codes {
    /// Tokens; those before `start` are popped, and their space is reclaimed when needed.
    bytes: Vec<u8>,
    start: u32,
    len: u32,
    /// The code that the first token is relative to.
    before: u16,
    last: u16,
    /// Number of repetitions in the last token; 0 if it is not a repetition.
    run: u8,
    /// Positions near the end, the older one first.
    marks: [Mark; 2],
}

/// Number of codes between two marks.
const MARK_INTERVAL: u16 = 32;

/// A position at which iteration can start: tokens cannot be read backwards, and most readers only need the
/// newest codes.
#[derive(Clone, Copy, Default)]
struct Mark {
    /// Start of the token in `bytes`.
    byte: u32,
    /// Number of codes after this position.
    after: u16,
    /// The code that the token is relative to.
    code: u16,
    /// Number of repetitions of the token that precede this position.
    skipped: u8,
}

/// A decoded token: `count` equal codes.
struct Token {
    bytes: usize,
    count: u8,
    code: u16,
}

impl Token {
    /// Decodes the first token; `None` if it is truncated.
    fn read(bytes: &[u8], before: u16) -> Option<Self> {
        let follows = |difference: u16| {
            before.wrapping_add_signed((difference >> 1) as i16 ^ -((difference & 1) as i16))
        };
        Some(match *bytes.first()? {
            byte @ ..RUN => Self { bytes: 1, count: 1, code: follows(u16::from(byte) + 1) },
            byte @ RUN..WIDE => Self { bytes: 1, count: byte - RUN + 1, code: before },
            byte @ WIDE..LITERAL => {
                let difference = WIDE_FROM + u16::from_be_bytes([byte - WIDE, *bytes.get(1)?]);
                Self { bytes: 2, count: 1, code: follows(difference) }
            }
            LITERAL => {
                Self { bytes: 3, count: 1, code: u16::from_le_bytes([*bytes.get(1)?, *bytes.get(2)?]) }
            }
        })
    }
}

impl Codes {
    /// Validates an encoded queue whose first token is relative to `before`; `None` if a token is
    /// truncated or there are more than `most` codes.
    pub fn read(before: u16, bytes: Vec<u8>, most: usize) -> Option<Self> {
        let front = Mark { code: before, ..Mark::default() };
        let mut codes = Self { before, last: before, marks: [front; 2], ..Self::default() };
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let token = Token::read(rest, codes.last)?;
            codes.run = if rest[0] & WIDE == RUN { token.count } else { 0 };
            codes.len += u32::from(token.count);
            codes.last = token.code;
            rest = &rest[token.bytes..];
            if codes.len as usize > most {
                return None;
            }
            codes.advance_marks(u16::from(token.count), (bytes.len() - rest.len()) as u32);
        }
        Some(Self { bytes, ..codes })
    }

    /// Returns the code that the first token is relative to, and the tokens.
    pub fn encoded(&self) -> (u16, &[u8]) {
        (self.before, &self.bytes[self.start as usize..])
    }

    /// Number of codes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether there are no codes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the newest code.
    pub fn last(&self) -> Option<u16> {
        (!self.is_empty()).then_some(self.last)
    }

    /// Iterates from oldest to newest.
    pub fn iter(&self) -> Iter<'_> {
        let (before, bytes) = self.encoded();
        Iter { bytes, code: before, left: 0 }
    }

    /// Iterates from oldest to newest without the oldest `skipped` codes; in constant time if few remain.
    pub fn iter_from(&self, skipped: usize) -> Iter<'_> {
        let wanted = self.len().saturating_sub(skipped);
        let Some(mark) = self.marks.iter().rev().find(|mark| usize::from(mark.after) >= wanted) else {
            let mut iter = self.iter();
            iter.skip_codes(skipped);
            return iter;
        };
        let mut iter = Iter { bytes: &self.bytes[mark.byte as usize..], code: mark.code, left: 0 };
        iter.skip_codes(usize::from(mark.skipped) + usize::from(mark.after) - wanted);
        iter
    }

    /// Appends the newest code.
    pub fn push(&mut self, code: u16) {
        self.write_code(code);
        self.advance_marks(1, self.bytes.len() as u32);
    }

    /// Counts `count` more codes, and places a mark at the end, which is at `end` in `bytes`, if it is time.
    fn advance_marks(&mut self, count: u16, end: u32) {
        self.marks.iter_mut().for_each(|mark| mark.after += count);
        if self.marks[1].after >= MARK_INTERVAL {
            // A repetition may still be extended.
            let byte = end - u32::from(self.run > 0);
            self.marks = [self.marks[1], Mark { byte, after: 0, code: self.last, skipped: self.run }];
        }
    }

    fn write_code(&mut self, code: u16) {
        self.len += 1;
        if code == self.last {
            match self.bytes.last_mut().filter(|_| (1..LONGEST_RUN).contains(&self.run)) {
                Some(byte) => {
                    *byte += 1;
                    self.run += 1;
                }
                None => {
                    self.run = 1;
                    self.write(&[RUN]);
                }
            }
            return;
        }
        let difference = code.wrapping_sub(self.last) as i16;
        let difference = ((difference << 1) ^ (difference >> 15)) as u16;
        self.last = code;
        self.run = 0;
        match difference {
            ..WIDE_FROM => self.write(&[(difference - 1) as u8]),
            WIDE_FROM..TOO_WIDE => {
                let [upper, lower] = (difference - WIDE_FROM).to_be_bytes();
                self.write(&[WIDE + upper, lower]);
            }
            TOO_WIDE.. => {
                let [lower, upper] = code.to_le_bytes();
                self.write(&[LITERAL, lower, upper]);
            }
        }
    }

    /// Removes the oldest `count` codes.
    pub fn pop_front(&mut self, mut count: usize) {
        if count == 0 {
            return;
        }
        if count >= self.len() {
            *self = Self::default();
            return;
        }
        self.len -= count as u32;
        while let Some(token) = Token::read(&self.bytes[self.start as usize..], self.before) {
            if count < usize::from(token.count) {
                // Only repetitions have a count above one.
                self.bytes[self.start as usize] -= count as u8;
                if self.bytes.len() - self.start as usize == token.bytes {
                    self.run -= count as u8;
                }
                break;
            }
            count -= usize::from(token.count);
            self.before = token.code;
            self.start += token.bytes as u32;
        }
        let front = Mark { byte: self.start, after: self.len as u16, code: self.before, skipped: 0 };
        self.marks.iter_mut().filter(|mark| mark.byte <= front.byte).for_each(|mark| *mark = front);
    }

    /// Appends a token. Reclaims popped space if that is enough, and grows by small steps
    /// otherwise: a relay holds very many queues.
    fn write(&mut self, token: &[u8]) {
        if self.bytes.capacity() - self.bytes.len() < token.len() {
            let held = self.bytes.len() - self.start as usize;
            if self.start as usize > held / 8 + token.len() {
                self.bytes.drain(..self.start as usize);
                self.marks.iter_mut().for_each(|mark| mark.byte -= self.start);
                self.start = 0;
            } else {
                self.bytes.reserve_exact((self.bytes.len() / 4).max(24));
            }
        }
        self.bytes.extend_from_slice(token);
    }
}

impl FromIterator<u16> for Codes {
    fn from_iter<I: IntoIterator<Item = u16>>(all: I) -> Self {
        let mut codes = Self::default();
        all.into_iter().for_each(|code| codes.push(code));
        codes.bytes.shrink_to_fit();
        codes
    }
}

impl PartialEq for Codes {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for Codes {}

impl fmt::Debug for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Iterator over codes.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    code: u16,
    left: u8,
}

impl Iter<'_> {
    /// Decodes the next token if the current one is used up; returns how many codes are left of it.
    fn open(&mut self) -> Option<u8> {
        if self.left == 0 {
            let token = Token::read(self.bytes, self.code)?;
            self.bytes = &self.bytes[token.bytes..];
            (self.code, self.left) = (token.code, token.count);
        }
        Some(self.left)
    }

    /// Skips codes, or all that are left.
    fn skip_codes(&mut self, mut count: usize) {
        while count > 0 {
            let Some(left) = self.open() else { return };
            let step = usize::from(left).min(count);
            self.left -= step as u8;
            count -= step;
        }
    }
}

impl Iterator for Iter<'_> {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        self.left = self.open()? - 1;
        Some(self.code)
    }

    /// Skips repetitions in constant time.
    fn nth(&mut self, skipped: usize) -> Option<u16> {
        self.skip_codes(skipped);
        self.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Deterministic pseudo-random numbers.
    fn random_numbers(seed: u64) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(seed | 1), |n| {
            let n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Some(n)
        })
        .map(|n| n >> 33)
    }

    fn assert_holds(codes: &Codes, expected: &VecDeque<u16>) {
        for skipped in [0, 1, 31, 32, 33, 64, 65].map(|newest| expected.len().saturating_sub(newest)) {
            assert!(codes.iter_from(skipped).eq(expected.iter().skip(skipped).copied()), "{skipped}");
        }
        assert_eq!(codes.iter().collect::<VecDeque<_>>(), *expected);
        assert_eq!((codes.len(), codes.last()), (expected.len(), expected.back().copied()));
        let (before, bytes) = codes.encoded();
        let read = Codes::read(before, bytes.to_vec(), expected.len()).unwrap();
        assert_eq!((&read, read.run), (codes, codes.run));
        assert!(expected.is_empty() || Codes::read(before, bytes.to_vec(), expected.len() - 1).is_none());
    }

    #[test]
    fn codes_behave_like_a_queue() {
        for widest in [2, 3, 100, 129, 130, 16_000, 40_000, 65_536] {
            let (mut codes, mut expected) = (Codes::default(), VecDeque::new());
            for pair in random_numbers(widest).take(4_000).collect::<Vec<_>>().chunks(2) {
                let again = if pair[0] % 3 == 0 { pair[0] as usize % 90 } else { 1 };
                let code = (pair[1] % widest) as u16;
                for _ in 0..again {
                    codes.push(code);
                    expected.push_back(code);
                }
                let over = expected.len().saturating_sub(600);
                codes.pop_front(over);
                expected.drain(..over);
                if pair[0] % 50 == 0 {
                    assert_holds(&codes, &expected);
                }
            }
            assert_holds(&codes, &expected);
            while !expected.is_empty() {
                let few = expected.len().min(7);
                codes.pop_front(few);
                expected.drain(..few);
                assert_holds(&codes, &expected);
            }
        }
    }

    #[test]
    fn iteration_can_start_anywhere() {
        let all: Vec<u16> = (0..400).map(|n| [5, 5, 5, 5, 5, 9][n % 6] * (n as u16 / 100)).collect();
        let codes: Codes = all.iter().copied().collect();
        for skipped in [0, 1, 4, 5, 99, 100, 250, 399, 400, 1_000] {
            assert_eq!(codes.iter().nth(skipped), all.get(skipped).copied(), "{skipped}");
            assert!(codes.iter_from(skipped).eq(all.iter().skip(skipped).copied()), "{skipped}");
        }
    }

    #[test]
    fn unchanged_codes_cost_almost_nothing_and_jumps_little() {
        let encoded = |codes: Vec<u16>| codes.into_iter().collect::<Codes>().encoded().1.len();
        assert_eq!(encoded(vec![4_000; 600]), 12);
        assert_eq!(encoded((0..600).map(|n| 300 + n % 60).collect()), 601);
        assert_eq!(encoded((0..600).map(|n| if n % 2 == 0 { 0 } else { 65_535 }).collect()), 600);
    }

    #[test]
    fn allocated_space_stays_close_to_the_content() {
        let mut codes = Codes::default();
        for n in random_numbers(7).take(20_000) {
            codes.push((n % 100) as u16);
            codes.pop_front(codes.len().saturating_sub(600));
        }
        let held = codes.encoded().1.len();
        assert!(codes.bytes.capacity() <= held + held / 3, "{} for {held}", codes.bytes.capacity());
    }

    #[test]
    fn truncated_tokens_are_rejected() {
        for bytes in [&[WIDE][..], &[LITERAL], &[LITERAL, 7], &[3, 0xFE]] {
            assert!(Codes::read(0, bytes.to_vec(), 600).is_none());
        }
    }
}
