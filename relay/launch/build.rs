//! Refuses a build with a libssh2 that differs from Cargo.lock.

use std::env;
use std::io;

/// Makes libssh2-sys link the system's library, of any age.
const SYSTEM_LIBSSH2: &str = "LIBSSH2_SYS_USE_PKG_CONFIG";

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    // The distribution's libssh2 lacks fixes that the version in Cargo.lock has.
    println!("cargo:rerun-if-env-changed={SYSTEM_LIBSSH2}");
    if env::var_os(SYSTEM_LIBSSH2).is_some() {
        let why = format!("unset {SYSTEM_LIBSSH2}: the relay is built with the libssh2 of Cargo.lock only");
        return Err(io::Error::other(why));
    }
    Ok(())
}
