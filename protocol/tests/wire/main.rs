//! Frozen bytes of each version: if one of these tests fails, the change is wrong, not the test.
//!
//! A new message gets a new file, which `cargo xtask generate` writes; existing files are never overwritten. Version 2 is not
//! released yet: a new field changes the messages that have it, so that all files of it are deleted and written again, and the
//! others must not differ.

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
        .unwrap_or_else(|error| panic!("{}: {error}; see the top of {}", path.display(), file!()));
    let at = kept.iter().zip(&bytes).take_while(|(kept, byte)| kept == byte).count();
    let near =
        |bytes: &[u8]| bytes[at.saturating_sub(30)..bytes.len().min(at + 30)].escape_ascii().to_string();
    assert!(
        kept == bytes,
        "{name}.{extension}, which clients of this version read, has other bytes from number {at} on: {} instead of {}; \
         see the top of {}",
        near(&bytes),
        near(&kept),
        file!()
    );
    let read: M = form.decode(&kept).unwrap();
    assert_eq!(form.encode(&read), kept, "{name} does not survive reading");
}

fn both<M: Serialize + DeserializeOwned + Debug>(name: &str, message: &M) {
    frozen(name, Form::Binary, message);
    frozen(name, Form::Json, message);
}
