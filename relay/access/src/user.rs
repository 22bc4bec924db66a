//! Looks up login names through NSS: files, LDAP, sssd or other configured sources.

use nodeglass_protocol::Text;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;

/// Maximum length of a password database entry, in bytes.
const ENTRY: usize = 64 * 1024;

/// The uid of a login name, if the user exists and the lookup succeeds.
pub fn uid_of(name: &str) -> Option<u32> {
    look_up(name).ok().flatten()
}

/// The uid of a login name (`getpwnam_r`), if the user exists.
///
/// # Errors
/// Why the lookup failed, such as a directory service that does not respond.
pub fn look_up(name: &str) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let (mut entry, mut found) = (MaybeUninit::<libc::passwd>::uninit(), std::ptr::null_mut());
    let mut strings = vec![0; ENTRY];
    #[expect(unsafe_code, reason = "the password database is only reached through libc")]
    // SAFETY: every pointer is to memory that outlives the call, of the length given; `entry` is
    // read only if the call reported through `found` that it filled it in.
    unsafe {
        let code =
            libc::getpwnam_r(name.as_ptr(), entry.as_mut_ptr(), strings.as_mut_ptr(), ENTRY, &mut found);
        match code {
            0 if !found.is_null() => Ok(Some(entry.assume_init().pw_uid)),
            // What some sources return instead of "not found", see getpwnam(3).
            0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => Ok(None),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// The login name of a uid, if the user exists, as it is shown.
pub fn name_of(uid: u32) -> Option<Text> {
    name_bytes_of(uid).map(|name| Text::from_bytes(&name))
}

/// The login name of a uid as it is stored, if the user exists and it is UTF-8.
pub fn exact_name_of(uid: u32) -> Option<String> {
    String::from_utf8(name_bytes_of(uid)?).ok()
}

/// The login name of a uid (`getpwuid_r`), if the user exists.
fn name_bytes_of(uid: u32) -> Option<Vec<u8>> {
    let (mut entry, mut found) = (MaybeUninit::<libc::passwd>::uninit(), std::ptr::null_mut());
    let mut strings = vec![0; ENTRY];
    #[expect(unsafe_code, reason = "the password database is only reached through libc")]
    // SAFETY: as above; `pw_name` points into `strings`, which outlives it, and ends in NUL.
    unsafe {
        let code = libc::getpwuid_r(uid, entry.as_mut_ptr(), strings.as_mut_ptr(), ENTRY, &mut found);
        let found = code == 0 && !found.is_null();
        found.then(|| CStr::from_ptr(entry.assume_init().pw_name).to_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_looked_up_and_an_unknown_uid_has_no_name() {
        assert_eq!(uid_of("root"), Some(0));
        assert_eq!(uid_of("no-such-user-here"), None);
        assert_eq!(uid_of("a\0b"), None);
    }

    #[test]
    fn a_uid_has_the_name_that_leads_back_to_it() {
        assert_eq!(name_of(0), Some("root".into()));
        assert_eq!(name_of(4_000_000_000), None);
    }
}
