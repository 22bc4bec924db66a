//! The launchers over SSH against a real sshd on loopback, and against faulty ones.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, and so do its parts")]

mod ssh {
    pub mod config;
    pub mod sshd;

    mod end;
    mod host_key;
    mod launchers;
    mod library;
    mod login;
    mod openssh;
    mod sick_host;
    mod upload;
}
