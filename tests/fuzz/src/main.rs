//! libFuzzer feeds the target named by `NODEGLASS_FUZZ` with inputs that increase its coverage.

#![no_main]

use nodeglass_fuzz::{Target, target};
use std::sync::LazyLock;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("NODEGLASS_FUZZ").unwrap_or_default();
    target(&name).expect("NODEGLASS_FUZZ names a target; `cargo xtask fuzz` sets it")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET(bytes));
