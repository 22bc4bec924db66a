//! What the tests of the whole system hold on to: a relay as a program, a viewer, a browser, a cluster.
//!
//! Everything here ends what it started, by pid, when it is dropped, and speaks to loopback or to
//! network namespaces of its own only.

pub mod browser;
pub mod http;
pub mod impostor;
pub mod instruments;
pub mod lab;
pub mod machine;
pub mod nginx;
pub mod process;
pub mod relay;
pub mod skip;
pub mod stage;
pub mod stranger;
pub mod viewer;

pub use browser::Browser;
pub use impostor::Impostor;
pub use lab::SlurmLab;
pub use machine::Machine;
pub use relay::TestRelay;
pub use viewer::Viewer;

use std::time::Duration;

/// How long a test waits for something that must happen. Long, for machines are busy; a test that
/// passes never waits it out.
pub const PATIENCE: Duration = Duration::from_secs(60);
