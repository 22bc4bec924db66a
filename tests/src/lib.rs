//! What the tests of the whole system hold on to: a relay as a program, a viewer, a browser, a cluster.
//!
//! Everything here ends what it started, by pid, when it is dropped, and speaks to loopback or to
//! network namespaces of its own only.

pub mod browser;
pub mod client;
pub mod http;
pub mod impostor;
pub mod lab;
pub mod machine;
pub mod nginx;
pub mod other_user;
pub mod pipeline;
pub mod process;
pub mod relay;
pub mod skip;
pub mod test_tools;

pub use browser::Browser;
pub use client::Client;
pub use impostor::Impostor;
pub use lab::SlurmLab;
pub use machine::Machine;
pub use relay::TestRelay;

use std::time::Duration;

/// How long a test waits for something that must happen. Long, for machines are busy; a test that
/// passes never waits it out.
pub const TIMEOUT: Duration = Duration::from_secs(60);
