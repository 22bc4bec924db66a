//! Uids get login names, each asked for once: a directory service may be far away.

use nix::unistd::{Uid, User};
use nodeglass_protocol::Text;
use std::collections::HashMap;

/// Names that were asked for.
#[derive(Debug, Default)]
pub struct Users {
    names: HashMap<u32, Text>,
}

impl Users {
    /// The login name of a uid, or the uid in digits.
    pub fn name(&mut self, uid: u32) -> Text {
        self.names.entry(uid).or_insert_with(|| look_up(uid)).clone()
    }
}

/// Asks the system's user database (`getpwuid_r`).
pub fn look_up(uid: u32) -> Text {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name.into(),
        _ => uid.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_and_a_stranger_a_number() {
        let mut users = Users::default();
        assert_eq!(users.name(0).as_str(), "root");
        assert_eq!(users.name(3_999_999_999).as_str(), "3999999999");
    }
}
