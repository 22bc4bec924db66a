//! The built-in SSH client against a real sshd on loopback, and against faulty ones.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, and so do its parts")]

mod ssh {
    pub mod config;
    pub mod sshd;

    mod end;
    mod host_key;
    mod journey;
    mod library;
    mod login;
    mod sick_host;
    mod upload;
}
