//! Shares: read-only access that the owner grants to teammates.
//!
//! [`policy`] decides what a viewer may see and [`table`] tracks open shares and visitors, both purely;
//! [`shares`] owns the table and notifies when a share ends; [`store`] persists shares over a restart if
//! configured.

mod link;
mod policy;
mod shares;
mod store;
mod table;

pub use policy::{NodeView, Viewer, Visibility};
pub use shares::{AccessGrant, ShareEndpoint, Shares, ViewerSession};
pub use store::{Store, StoreError};
pub use table::{EndReason, ShareError, ShareState};
