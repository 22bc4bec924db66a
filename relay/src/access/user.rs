//! A login name is looked up where the system looks: files, LDAP, sssd, whatever NSS knows.

use std::ffi::CString;
use std::mem::MaybeUninit;

/// Longest entry of the password database that is read, in bytes.
const ENTRY: usize = 64 * 1024;

/// The uid of a login name (`getpwnam_r`), if there is such a user.
pub fn uid_of(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let (mut entry, mut found) = (MaybeUninit::<libc::passwd>::uninit(), std::ptr::null_mut());
    let mut strings = vec![0; ENTRY];
    #[expect(unsafe_code, reason = "the password database is only reached through libc")]
    // SAFETY: every pointer is to memory that outlives the call, of the length given; `entry` is
    // read only when the call said through `found` that it filled it in.
    unsafe {
        let code =
            libc::getpwnam_r(name.as_ptr(), entry.as_mut_ptr(), strings.as_mut_ptr(), ENTRY, &mut found);
        (code == 0 && !found.is_null()).then(|| entry.assume_init().pw_uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_nobody_else_by_chance() {
        assert_eq!(uid_of("root"), Some(0));
        assert_eq!(uid_of("no-such-user-here"), None);
        assert_eq!(uid_of("a\0b"), None);
    }
}
