//! Encoding of messages as WebSocket frames in the form that the subprotocol selects.

use crate::version::{SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON};
use serde::{Serialize, de::DeserializeOwned};

/// The two encodings of the live wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// postcard in binary frames.
    Binary,
    /// JSON in text frames.
    Json,
}

/// Error of decoding a message.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Invalid postcard, or of another version.
    #[error("read a binary message: {0}")]
    Binary(#[from] postcard::Error),
    /// Invalid JSON, or of another version.
    #[error("read a JSON message: {0}")]
    Json(#[from] serde_json::Error),
}

impl Form {
    /// The WebSocket subprotocol that selects this form.
    pub const fn subprotocol(self) -> &'static str {
        match self {
            Self::Binary => SUBPROTOCOL_BINARY,
            Self::Json => SUBPROTOCOL_JSON,
        }
    }

    /// Encodes a message; JSON is UTF-8.
    pub fn encode<M: Serialize>(self, message: &M) -> Vec<u8> {
        match self {
            Self::Binary => postcard::to_stdvec(message).expect("message types have known lengths"),
            Self::Json => serde_json::to_vec(message).expect("message types have string keys"),
        }
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`FrameError`] if they are not a message of this version.
    pub fn decode<M: DeserializeOwned>(self, bytes: &[u8]) -> Result<M, FrameError> {
        Ok(match self {
            Self::Binary => postcard::from_bytes(bytes)?,
            Self::Json => serde_json::from_slice(bytes)?,
        })
    }
}
