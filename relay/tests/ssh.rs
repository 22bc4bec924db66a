//! The built-in SSH client meets a real sshd on loopback, and sshds that are ill.

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
