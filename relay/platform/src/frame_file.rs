//! Append-only files of frames with length and checksum: after a crash, the file opens up to its last complete frame.
//!
//! A file begins with eight bytes that name its kind and format version. A frame is the length of its payload and its
//! CRC-32, four bytes each, little-endian, followed by the payload.

use std::io::{self, Read, Write};

/// Maximum length of a payload in bytes; a longer length is a sign of damage.
pub const MAX_PAYLOAD: usize = 16 << 20;
/// Length of the header of a file in bytes.
pub const HEADER: usize = 8;
/// Length of the header of a frame in bytes.
const FRAME_HEADER: usize = 8;

/// Kind and format version of a file. The kind is four ASCII characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Name of the content in the file.
    pub kind: [u8; 4],
    /// Name of the content for the user: `recording`.
    pub name: &'static str,
    /// Version of the payloads.
    pub version: u32,
}

/// Error of opening a file.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It is not a file of this kind.
    #[error("it is not a {expected} of nodeglass")]
    OtherKind {
        /// [`Format::name`] of the kind that was expected.
        expected: &'static str,
    },
    /// It is of another version.
    #[error("it has format version {found}, this build reads version {expected}")]
    OtherVersion {
        /// The version of the file.
        found: u32,
        /// The version of this build.
        expected: u32,
    },
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The end of a file's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// After a complete frame.
    Complete,
    /// In the middle of a frame: the writer was killed, or still writes.
    Truncated,
    /// A frame does not match its checksum, or its length is impossible.
    Damaged,
}

/// Reads the frames of a file in order.
#[derive(Debug)]
pub struct FrameReader<R> {
    input: R,
    /// Bytes up to the end of the last complete frame.
    valid: u64,
    end: Option<End>,
}

impl Format {
    fn header(self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&self.kind);
        header[4..].copy_from_slice(&self.version.to_le_bytes());
        header
    }
}

/// Writes the header of a file.
///
/// # Errors
/// Those of `output`.
pub fn write_header(output: &mut impl Write, format: Format) -> io::Result<()> {
    output.write_all(&format.header())
}

/// Appends a frame to a buffer, so that it can be written with one call.
///
/// # Panics
/// If the payload exceeds [`MAX_PAYLOAD`].
pub fn push_frame(buffer: &mut Vec<u8>, payload: &[u8]) {
    assert!(payload.len() <= MAX_PAYLOAD, "payload of {} bytes", payload.len());
    buffer.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    buffer.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
    buffer.extend_from_slice(payload);
}

impl<R: Read> FrameReader<R> {
    /// Opens a file of a format. An empty one, or one that was cut within its header, has no frames.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(mut input: R, format: Format) -> Result<Self, OpenError> {
        let mut found = [0; HEADER];
        let length = read_up_to(&mut input, &mut found)?;
        let expected = format.header();
        let kind = length.min(4);
        if found[..kind] != expected[..kind] {
            return Err(OpenError::OtherKind { expected: format.name });
        }
        if length < HEADER {
            return Ok(Self { input, valid: 0, end: Some(End::Truncated) });
        }
        let [.., a, b, c, d] = found;
        let version = u32::from_le_bytes([a, b, c, d]);
        if version != format.version {
            return Err(OpenError::OtherVersion { found: version, expected: format.version });
        }
        Ok(Self { input, valid: HEADER as u64, end: None })
    }

    /// The payload of the next frame; `None` at the end of the complete ones.
    ///
    /// # Errors
    /// Those of the input.
    pub fn next_frame(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.end.is_some() {
            return Ok(None);
        }
        let mut header = [0; FRAME_HEADER];
        let length = read_up_to(&mut self.input, &mut header)?;
        if length < FRAME_HEADER {
            self.end = Some(if length == 0 { End::Complete } else { End::Truncated });
            return Ok(None);
        }
        let [a, b, c, d, e, f, g, h] = header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > MAX_PAYLOAD {
            self.end = Some(End::Damaged);
            return Ok(None);
        }
        // Not allocated at once: a damaged length must not cost more than the file is long.
        let mut payload = Vec::new();
        (&mut self.input).take(length as u64).read_to_end(&mut payload)?;
        if payload.len() < length {
            self.end = Some(End::Truncated);
            return Ok(None);
        }
        if crc32fast::hash(&payload) != u32::from_le_bytes([e, f, g, h]) {
            self.end = Some(End::Damaged);
            return Ok(None);
        }
        self.valid += (FRAME_HEADER + length) as u64;
        Ok(Some(payload))
    }

    /// Bytes up to the end of the last frame that was read: where a writer continues after a crash.
    pub fn valid(&self) -> u64 {
        self.valid
    }

    /// Returns the end of the frames; `None` while there may be more.
    pub fn end(&self) -> Option<End> {
        self.end
    }
}

/// Fills a buffer or reads to the end of the input; returns the number of bytes.
fn read_up_to(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: Format = Format { kind: *b"test", name: "test", version: 3 };

    fn file(payloads: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_header(&mut bytes, FORMAT).unwrap();
        payloads.iter().for_each(|payload| push_frame(&mut bytes, payload));
        bytes
    }

    fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, u64, End) {
        let mut reader = FrameReader::open(bytes, FORMAT).unwrap();
        let mut payloads = Vec::new();
        while let Some(payload) = reader.next_frame().unwrap() {
            payloads.push(payload);
        }
        (payloads, reader.valid(), reader.end().unwrap())
    }

    #[test]
    fn a_file_cut_at_any_byte_opens_up_to_its_last_complete_frame() {
        let all: [&[u8]; 4] = [b"first", b"", b"third frame", &[7; 300]];
        let bytes = file(&all);
        for cut in 0..=bytes.len() {
            let (payloads, valid, end) = read(&bytes[..cut]);
            assert_eq!(payloads, all[..payloads.len()]);
            assert!(valid <= cut as u64);
            let complete = file(&all[..payloads.len()]);
            assert_eq!(end == End::Complete, complete.len() == cut, "cut at {cut}");
            assert!(cut < HEADER || valid == complete.len() as u64);
            // Nothing that is complete is missing.
            let next = all.get(payloads.len()).map_or(usize::MAX, |_| file(&all[..=payloads.len()]).len());
            assert!(cut < next);
        }
    }

    #[test]
    fn a_changed_byte_ends_the_file_there_and_is_never_returned() {
        let all: [&[u8]; 3] = [b"first", b"second", b"third"];
        let bytes = file(&all);
        for position in HEADER..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0x55;
            let (payloads, _, end) = read(&damaged);
            assert_eq!(payloads, all[..payloads.len()], "byte {position}");
            assert!(payloads.len() < all.len() && end != End::Complete, "byte {position}");
        }
    }

    #[test]
    fn another_kind_or_version_is_an_error_of_its_own() {
        let other = Format { kind: *b"misc", name: "misc", version: 3 };
        assert!(matches!(
            FrameReader::open(&file(&[])[..], other),
            Err(OpenError::OtherKind { expected }) if expected == "misc"
        ));
        let newer = Format { version: 4, ..FORMAT };
        assert!(matches!(
            FrameReader::open(&file(&[])[..], newer),
            Err(OpenError::OtherVersion { found: 3, expected: 4 })
        ));
    }
}
