//! Shares, as the owner's programs read them.

use nodeglass_protocol::share::{ClosedShare, Share, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Open shares, current viewers, and stored shares that stay closed at this relay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShareList {
    /// Open shares, oldest first.
    pub shares: Vec<Share>,
    /// Connected pages in order of connection.
    pub visitors: Vec<Visitor>,
    /// Stored shares of relays that watched something else, which open at those only.
    #[serde(default)]
    pub closed: Vec<ClosedShare>,
}
