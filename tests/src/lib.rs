//! Support code of the system tests: a relay process, a client, a browser, a cluster.
//!
//! Everything started here is stopped by pid on drop, and uses only loopback or network namespaces of its
//! own.

pub mod browser;
pub mod client;
pub mod documents;
pub mod findings;
pub mod forward;
pub mod http;
pub mod impostor;
pub mod jupyter;
pub mod jupyterhub;
pub mod lab;
pub mod machine;
pub mod metadata;
pub mod mixed;
pub mod nats;
pub mod nats_accounts;
pub mod nats_proxy;
pub mod nginx;
pub mod ondemand;
pub mod oracle;
pub mod other_user;
pub mod pipeline;
pub mod process;
pub mod promql;
pub mod rack;
pub mod relay;
pub mod release;
pub mod skip;
pub mod soak;
pub mod sshd;
pub mod test_tools;
pub mod tls;
pub mod tmux;
pub mod trace;

pub use browser::Browser;
pub use client::Client;
pub use forward::Forward;
pub use impostor::Impostor;
pub use lab::SlurmLab;
pub use machine::Machine;
pub use oracle::Oracle;
pub use relay::TestRelay;
use std::time::Duration;
pub use tmux::Tmux;

/// Time limit of waiting for an expected event. Generous, as machines are busy; a passing test never waits this long.
pub const TIMEOUT: Duration = Duration::from_secs(60);
