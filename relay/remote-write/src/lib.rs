//! Sends the series of `/metrics` to a server by Prometheus remote write 1.0.
//!
//! [`Series`] converts the state of the relay to a [`Round`] of compressed requests; a [`Sender`] delivers rounds in order,
//! on a task of its own, and keeps what the server does not accept yet in a [`Spool`] of bounded size. [`promql`] reads
//! them back.

mod credentials;
pub mod promql;
mod request;
mod sender;
mod series;
mod spool;

pub use credentials::{Credentials, CredentialsError};
pub use request::Round;
pub use sender::{Counts, Sender, State};
pub use series::Series;
pub use spool::Spool;
