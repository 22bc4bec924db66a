//! A share shows a teammate what its owner chose, for as long as its owner lets it.
//!
//! [`policy`] decides what gets through, purely; [`table`] knows which shares are open, and who looks, purely;
//! [`shares`] is the one place that holds the table and tells everybody when a share ends; [`store`] keeps
//! it over a restart where that was asked for; [`remote`] is `relay share`, which asks the relay that runs.

mod link;
mod policy;
mod remote;
mod shares;
mod store;
mod table;
mod words;

pub use policy::{NodeView, Viewer, Visibility};
pub use remote::{carry_out, retry, tab_link};
pub use shares::{Admission, Door, Shares, Visit};
pub use store::{Store, StoreError};
pub use table::{Ending, Refusal, Standing};
