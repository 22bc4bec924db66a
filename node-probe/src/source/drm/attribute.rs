//! Attributes of sysfs and files of `/proc`: opened once, read from the start, with strict bounds.

use crate::source::calls::CallTracker;
use nodeglass_protocol::{Reading, Text};
use rustix::{fs, fs::OFlags, io::Errno};
use std::{fs::File, io, os::unix::fs::FileExt, path::Path, sync::Arc};

/// Maximum length of a number with its unit and newline.
const NUMBER_BYTES: usize = 64;

/// Error of reading an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// This kernel, driver or card does not provide it.
    Missing,
    /// The device was removed or its driver unbound (`ENODEV`).
    Gone,
    /// Reading failed, with the reason.
    Failed(Text),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            // Drivers return `EINVAL` and `ENODATA` for a sensor that the card lacks.
            Some(Errno::NOENT | Errno::NOTDIR | Errno::OPNOTSUPP | Errno::INVAL | Errno::NODATA) => {
                Self::Missing
            }
            Some(Errno::NODEV | Errno::NXIO) => Self::Gone,
            Some(Errno::ACCESS) => Self::Failed("not permitted to this user".into()),
            // amdgpu returns `EPERM` during a reset.
            Some(Errno::PERM | Errno::BUSY) => Self::Failed("the GPU is resetting or suspended".into()),
            _ => Self::Failed(error.to_string().into()),
        }
    }
}

impl From<&str> for ReadError {
    fn from(why: &str) -> Self {
        Self::Failed(why.into())
    }
}

/// Converts a result to a reading; a missing attribute is unsupported.
pub fn reading<T>(result: Result<T, ReadError>) -> Reading<T> {
    match result {
        Ok(value) => Reading::Value(value),
        Err(ReadError::Missing) => Reading::Unsupported,
        Err(ReadError::Gone) => Reading::Failed("the device is gone".into()),
        Err(ReadError::Failed(why)) => Reading::Failed(why.into()),
    }
}

/// An open attribute, or the error of opening it. Opening does not wake a suspended device.
#[derive(Debug)]
pub struct Attribute(Result<File, ReadError>);

impl Attribute {
    /// Opens an attribute; an error is returned by each read.
    pub fn open(path: &Path) -> Self {
        Self(open(path))
    }

    /// An attribute that does not exist.
    pub const fn missing() -> Self {
        Self(Err(ReadError::Missing))
    }

    /// Returns whether it could be opened.
    pub const fn is_open(&self) -> bool {
        self.0.is_ok()
    }

    /// Reads the attribute into `buffer` with a single call, as the kernel requires for a consistent
    /// value.
    ///
    /// # Errors
    /// If it could not be opened or read, or fills the buffer.
    pub fn bytes<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a [u8], ReadError> {
        let file = self.0.as_ref().map_err(Clone::clone)?;
        let length = file.read_at(buffer, 0)?;
        if length == buffer.len() {
            return Err("longer than it should be".into());
        }
        Ok(&buffer[..length])
    }

    /// Reads the attribute as text without the final newline.
    ///
    /// # Errors
    /// As [`Attribute::bytes`], and if it is not UTF-8.
    pub fn text<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a str, ReadError> {
        let text = std::str::from_utf8(self.bytes(buffer)?);
        text.map(str::trim_ascii).map_err(|_| "not the text that it should be".into())
    }

    /// Reads the attribute as a number, which may be negative.
    ///
    /// # Errors
    /// As [`Attribute::text`], and if it is not a number of 64 bits.
    pub fn signed(&self) -> Result<i128, ReadError> {
        let mut buffer = [0; NUMBER_BYTES];
        let number = self.text(&mut buffer)?.parse::<i128>();
        let number = number.map_err(|_| ReadError::from("not the number that it should be"))?;
        let fits = (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&number);
        fits.then_some(number).ok_or_else(|| "not the number that it should be".into())
    }

    /// Reads the attribute as a number.
    ///
    /// # Errors
    /// As [`Attribute::signed`], and if it is negative.
    pub fn number(&self) -> Result<u64, ReadError> {
        let number = self.signed()?;
        u64::try_from(number).map_err(|_| ReadError::Failed(format!("the driver reported {number}").into()))
    }
}

/// Opens a regular file without blocking, so that a pipe in its place cannot hang the thread.
///
/// # Errors
/// If it is missing, cannot be opened, or is something else.
pub fn open(path: &Path) -> Result<File, ReadError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(fs::open(path, flags, fs::Mode::empty()).map_err(io::Error::from)?);
    if !file.metadata()?.is_file() {
        return Err("not a regular file".into());
    }
    Ok(file)
}

/// Reads a text of several lines once, up to 64 KiB.
///
/// # Errors
/// As [`Attribute::text`].
pub fn read_lines(path: &Path) -> Result<String, ReadError> {
    let mut buffer = vec![0; 64 << 10];
    Attribute::open(path).text(&mut buffer).map(str::to_owned)
}

/// Reads a small attribute once.
///
/// # Errors
/// As [`Attribute::text`].
pub fn read_text(path: &Path) -> Result<String, ReadError> {
    let mut buffer = [0; 512];
    Attribute::open(path).text(&mut buffer).map(str::to_owned)
}

/// Reads an attribute once as a number.
///
/// # Errors
/// As [`Attribute::number`].
pub fn read_number(path: &Path) -> Result<u64, ReadError> {
    Attribute::open(path).number()
}

/// Reads an attribute once as a hexadecimal number: `0x1002`.
pub fn read_hex(path: &Path) -> Option<u32> {
    let text = read_text(path).ok()?;
    u32::from_str_radix(text.strip_prefix("0x").unwrap_or(&text), 16).ok()
}

/// Reads a text once as a reading; an empty one is unsupported.
pub fn read_reading(path: &Path) -> Reading<Text> {
    match read_text(path) {
        Ok(text) if text.is_empty() => Reading::Unsupported,
        result => reading(result.map(Text::from)),
    }
}

/// Reads the attributes of one device, and records whether it is gone.
#[derive(Debug, Default)]
pub struct Reader {
    is_gone: bool,
    /// Tracks each read for the watchdog.
    calls: Arc<CallTracker>,
}

impl Reader {
    /// Creates a reader whose reads are tracked one by one.
    pub fn tracked(calls: &Arc<CallTracker>) -> Self {
        Self { is_gone: false, calls: Arc::clone(calls) }
    }

    /// Returns whether a read reported that the device is gone.
    pub const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Converts a result to a reading.
    pub fn take<T>(&mut self, result: Result<T, ReadError>) -> Reading<T> {
        self.calls.begin_next_call();
        self.is_gone |= matches!(result, Err(ReadError::Gone));
        reading(result)
    }

    /// Reads a number.
    pub fn number(&mut self, attribute: &Attribute) -> Reading<u64> {
        self.take(attribute.number())
    }

    /// Reads a temperature in m°C as °C. The catalogue has no negative values, so one fails.
    pub fn celsius(&mut self, attribute: &Attribute) -> Reading<u64> {
        let celsius = attribute.signed().and_then(|millidegrees| match millidegrees {
            0..=300_000 => u64::try_from(millidegrees / 1_000).map_err(|_| ReadError::Missing),
            other => Err(ReadError::Failed(format!("the driver reported {} °C", other / 1_000).into())),
        });
        self.take(celsius)
    }

    /// Reads a share in %, which fails above 100.
    pub fn percent(&mut self, attribute: &Attribute) -> Reading<u64> {
        let percent = attribute.number().and_then(|percent| match percent {
            0..=100 => Ok(percent),
            other => Err(ReadError::Failed(format!("the driver reported {other} %").into())),
        });
        self.take(percent)
    }
}

/// Returns the first reading that is a value, or else the first one.
pub fn or_else<T>(first: Reading<T>, second: impl FnOnce() -> Reading<T>) -> Reading<T> {
    match first {
        Reading::Value(_) => first,
        Reading::Unsupported => second(),
        first => match second() {
            value @ Reading::Value(_) => value,
            _ => first,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    fn number(content: &str) -> Reading<u64> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, content).unwrap();
        reading(read_number(&path))
    }

    #[test]
    fn numbers_are_read_strictly() {
        assert_eq!(number("42\n"), Reading::Value(42));
        assert_eq!(number("18446744073709551615\n"), Reading::Value(u64::MAX));
        for content in ["", "N/A\n", "18446744073709551616\n", "99999999999999999999999999999999999999999\n"]
        {
            assert_eq!(
                number(content),
                Reading::Failed("not the number that it should be".into()),
                "{content}"
            );
        }
        assert_eq!(number("-5\n"), Reading::Failed("the driver reported -5".into()));
        assert_eq!(number(&"7".repeat(1 << 20)), Reading::Failed("longer than it should be".into()));
    }

    #[test]
    fn a_missing_attribute_is_unsupported_and_a_negative_temperature_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("temp1_input");
        assert_eq!(reading(read_number(&path)), Reading::Unsupported);
        std::fs::write(&path, "-40000\n").unwrap();
        let mut reader = Reader::default();
        assert_eq!(
            reader.celsius(&Attribute::open(&path)),
            Reading::Failed("the driver reported -40 °C".into())
        );
        std::fs::write(&path, "64500\n").unwrap();
        assert_eq!(reader.celsius(&Attribute::open(&path)), Reading::Value(64));
    }

    #[test]
    fn a_pipe_a_folder_or_a_loop_in_place_of_a_file_fails_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(reading(read_number(&path)), Reading::Failed("not a regular file".into()));
        assert_eq!(reading(read_number(folder.path())), Reading::Failed("not a regular file".into()));
        let link = folder.path().join("loop");
        std::os::unix::fs::symlink(&link, &link).unwrap();
        assert!(matches!(reading(read_number(&link)), Reading::Failed(_)));
    }
}
