//! Maps errors of libssh2 to launch errors, which state whether a retry may help.

use crate::LaunchError;
use libssh2_sys as raw;
use ssh2::ErrorCode;

/// The advice where the system's ssh may log in.
pub(super) const OPENSSH: &str =
    "use --launcher openssh, which logs in with the `ssh` program of the relay's machine";

/// Maps an error during the handshake.
pub(super) fn handshake(error: &ssh2::Error) -> LaunchError {
    match error.code() {
        // "Unable to exchange encryption keys" and the like: no common algorithm.
        ErrorCode::Session(
            raw::LIBSSH2_ERROR_KEX_FAILURE
            | raw::LIBSSH2_ERROR_KEY_EXCHANGE_FAILURE
            | raw::LIBSSH2_ERROR_METHOD_NONE
            | raw::LIBSSH2_ERROR_METHOD_NOT_SUPPORTED
            | raw::LIBSSH2_ERROR_ALGO_UNSUPPORTED
            | raw::LIBSSH2_ERROR_HOSTKEY_INIT,
        ) => capability(
            format!("the built-in SSH and this host know no common algorithm ({})", error.message()),
            OPENSSH,
        ),
        ErrorCode::Session(raw::LIBSSH2_ERROR_HOSTKEY_SIGN) => LaunchError::HostKey {
            why: "the host could not prove that it holds its host key".into(),
            advice: "this can be an attack; ask the administrators before you log in".into(),
        },
        _ => unreachable(format!("the SSH handshake failed: {}", error.message())),
    }
}

/// Maps an error after the handshake.
pub(super) fn broken(doing: &str, error: &ssh2::Error) -> LaunchError {
    unreachable(format!("the connection broke while {doing}: {}", error.message()))
}

pub(super) fn unreachable(why: impl AsRef<str>) -> LaunchError {
    LaunchError::Unreachable { why: why.as_ref().into() }
}

pub(super) fn capability(why: impl AsRef<str>, advice: &str) -> LaunchError {
    LaunchError::Capability { why: why.as_ref().into(), advice: advice.into() }
}
