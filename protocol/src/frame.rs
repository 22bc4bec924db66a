//! A message becomes a WebSocket frame and back, in the form the subprotocol chose.

use crate::version::{SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON};
use serde::{Serialize, de::DeserializeOwned};

/// The two forms of wire two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// postcard in binary frames.
    Binary,
    /// JSON in text frames.
    Json,
}

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Not postcard of this version.
    #[error("read a binary message: {0}")]
    Binary(#[from] postcard::Error),
    /// Not JSON of this version.
    #[error("read a JSON message: {0}")]
    Json(#[from] serde_json::Error),
}

impl Form {
    /// The WebSocket subprotocol that asks for this form.
    pub const fn subprotocol(self) -> &'static str {
        match self {
            Self::Binary => SUBPROTOCOL_BINARY,
            Self::Json => SUBPROTOCOL_JSON,
        }
    }

    /// The form of a subprotocol.
    pub fn of_subprotocol(name: &str) -> Option<Self> {
        [Self::Binary, Self::Json].into_iter().find(|form| form.subprotocol() == name)
    }

    /// The bytes of a message; JSON is UTF-8.
    pub fn encode<M: Serialize>(self, message: &M) -> Vec<u8> {
        match self {
            Self::Binary => postcard::to_stdvec(message).expect("message types have known lengths"),
            Self::Json => serde_json::to_vec(message).expect("message types have string keys"),
        }
    }

    /// The message in a frame's bytes.
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
