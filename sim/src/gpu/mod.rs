//! The GPUs of a node at any time: models, facts, readings and health.

pub(crate) mod energy;
pub(crate) mod facts;
pub(crate) mod health;
pub(crate) mod readings;
pub(crate) mod traffic;
pub(crate) mod vendor;

use nodeglass_protocol::Reading;

/// A reading that only some models support.
fn if_any(there: bool, value: u64) -> Reading<u64> {
    if there { Reading::Value(value) } else { Reading::Unsupported }
}
