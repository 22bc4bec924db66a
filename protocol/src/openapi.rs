//! Schemas of identities and texts for the description of the HTTP API (feature `openapi`).

use crate::note::NoteId;
use crate::share::ShareId;
use crate::{GpuUuid, JobId, LongText, NodeName, Text};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

macro_rules! schema_of {
    ($($name:ident => $schema:expr;)*) => {$(
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                $schema.into()
            }
        }

        impl ToSchema for $name {}
    )*};
}

schema_of! {
    // The length is in bytes, so at most as many characters; longer texts are cut.
    Text => ObjectBuilder::new().schema_type(Type::String);
    LongText => ObjectBuilder::new().schema_type(Type::String);
    NodeName => ObjectBuilder::new()
        .schema_type(Type::String)
        .max_length(Some(253))
        .pattern(Some("^[A-Za-z0-9][A-Za-z0-9._-]*$"));
    GpuUuid => ObjectBuilder::new().schema_type(Type::String);
    ShareId => ObjectBuilder::new()
        .schema_type(Type::String)
        .max_length(Some(ShareId::MAX_BYTES))
        .pattern(Some("^[a-z0-9]+$"));
    JobId => ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(u32::MAX));
    NoteId => ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some((1_u64 << 53) - 1));
}
