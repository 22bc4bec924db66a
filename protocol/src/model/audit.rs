//! The audit log: who viewed through which share, and which actions were performed; owner only.

use crate::Text;
use crate::request::AuditEntry;
use crate::share::{Scope, ShareId};
use serde::{Deserialize, Serialize};

/// The records of the last days.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditLog {
    /// Whether this relay records anything; `false` with `--no-audit`, where earlier records may remain.
    pub is_recorded: bool,
    /// The records, newest first, at most [`AuditLog::MAX_RECORDS`].
    pub records: Vec<AuditRecord>,
    /// Number of older records of these days that are left out.
    pub omitted: u32,
}

impl AuditLog {
    /// Maximum number of records of one answer.
    pub const MAX_RECORDS: usize = 2_000;
    /// Maximum number of days of one query.
    pub const MAX_DAYS: u32 = 366;
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AuditRecord {
    /// A guest viewed.
    View(View),
    /// An action was performed or refused.
    Action(AuditEntry),
}

/// One connection of a guest, or a series of requests of one guest to the HTTP API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct View {
    /// The share that was used.
    pub share: ShareId,
    /// The share's label, by the owner; may be empty.
    pub label: Text,
    /// The scope of the share.
    pub scope: Scope,
    /// The viewer.
    pub viewer: ViewerIdentity,
    /// The client that the viewer used.
    pub client: ViewClient,
    /// Begin in ms since 1970 by the login node's clock.
    pub began_ms: u64,
    /// End.
    pub end: ViewEnd,
}

/// Identity of a viewer, as reported by the kernel or a trusted proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ViewerIdentity {
    /// Login name.
    pub user: Option<Text>,
    /// Address of another machine.
    pub address: Option<Text>,
    /// Whether a trusted proxy says so, not the kernel.
    pub by_proxy: bool,
}

/// The client that a guest used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ViewClient {
    /// The page, or another client of the live wire.
    Page,
    /// The HTTP API; requests less than five minutes apart are one view.
    Api,
}

/// The end of a view, in ms since 1970 by the login node's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ViewEnd {
    /// It goes on.
    Open,
    /// It ended.
    Ended {
        /// When.
        at_ms: u64,
    },
    /// The relay was killed; the view ended at some time after this one.
    Unknown {
        /// When it was last known to go on.
        seen_ms: u64,
    },
}

impl AuditRecord {
    /// When it began, in ms since 1970 by the login node's clock.
    pub fn at_ms(&self) -> u64 {
        match self {
            Self::View(view) => view.began_ms,
            Self::Action(entry) => entry.wall_ms,
        }
    }
}
