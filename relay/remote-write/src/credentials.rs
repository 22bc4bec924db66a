//! Credentials for a server, read from a file that only its owner can read.

use base64ct::{Base64, Encoding};
use hyper::header::HeaderValue;
use nodeglass_platform::private_file::{self, PrivateFileError};
use std::path::{Path, PathBuf};

/// Maximum size of the file in bytes.
const MAX_BYTES: u64 = 16 * 1024;

/// The value of `Authorization`. Not shown.
#[derive(Clone, Debug)]
pub struct Credentials(HeaderValue);

/// Error of reading credentials. Reads well after the name of a setting.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file cannot be read, or others can read it.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// It has another form.
    #[error("{} must have one line: USER:PASSWORD, or Bearer TOKEN", .0.display())]
    Form(PathBuf),
}

impl Credentials {
    /// Reads a file with one line: `USER:PASSWORD` for basic authentication, or `Bearer TOKEN`.
    ///
    /// # Errors
    /// [`CredentialsError`].
    pub fn read(path: &Path) -> Result<Self, CredentialsError> {
        let text = private_file::read_text(path, MAX_BYTES)?;
        Self::parse(text.trim_end_matches(['\r', '\n']))
            .ok_or_else(|| CredentialsError::Form(path.to_owned()))
    }

    fn parse(line: &str) -> Option<Self> {
        let value = match line.strip_prefix("Bearer ") {
            Some(token) => format!("Bearer {}", token.trim()),
            None => {
                line.split_once(':').map(|_| format!("Basic {}", Base64::encode_string(line.as_bytes())))?
            }
        };
        let mut value = HeaderValue::try_from(value).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }

    /// The value of `Authorization`.
    pub fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_a_password_or_a_token_and_never_shown() {
        let basic = Credentials::parse("alice:s3:cret").unwrap();
        assert_eq!(basic.header(), "Basic YWxpY2U6czM6Y3JldA==");
        assert_eq!(Credentials::parse("Bearer t0ken").unwrap().header(), "Bearer t0ken");
        assert!(!format!("{basic:?}").contains("YWxp"), "{basic:?}");
        for wrong in ["", "t0ken", "a:b\nc:d\n\u{7f}", "Bearer a\nb"] {
            let parsed = Credentials::parse(wrong);
            assert!(parsed.is_none() || wrong.starts_with("a:"), "{wrong:?}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        use std::fs;
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("auth");
        fs::write(&path, "alice:s3cret\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = Credentials::read(&path).unwrap_err();
        assert!(
            matches!(error, CredentialsError::File(PrivateFileError::Open { mode: 0o644, .. })),
            "{error}"
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(Credentials::read(&path).unwrap().header(), "Basic YWxpY2U6czNjcmV0");
    }
}
