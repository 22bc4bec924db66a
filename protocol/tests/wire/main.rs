//! Frozen bytes of each version: if one of these tests fails, the change is wrong, not the test.
//!
//! A new message gets a new file, written once with `NODEGLASS_FREEZE=1 cargo test -p nodeglass-protocol`;
//! existing files are never overwritten.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may end where it fails")]

mod page;
mod probe;
mod relay;
mod values;

use nodeglass_protocol::frame::Form;
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;
use std::path::PathBuf;

/// Compares the bytes of `message` with those of the file, and checks that they round-trip.
fn frozen<M: Serialize + DeserializeOwned + Debug>(name: &str, form: Form, message: &M) {
    let extension = if form == Form::Binary { "bin" } else { "json" };
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/frozen/v2").join(format!("{name}.{extension}"));
    let bytes = form.encode(message);
    if !path.exists() && std::env::var_os("NODEGLASS_FREEZE").is_some() {
        std::fs::write(&path, &bytes).unwrap();
    }
    let kept = std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; see the top of this file", path.display()));
    assert_eq!(kept, bytes, "{name}: {}", String::from_utf8_lossy(&bytes));
    let read: M = form.decode(&kept).unwrap();
    assert_eq!(form.encode(&read), kept, "{name} does not survive reading");
}

fn both<M: Serialize + DeserializeOwned + Debug>(name: &str, message: &M) {
    frozen(name, Form::Binary, message);
    frozen(name, Form::Json, message);
}
