//! The relay's web server as seen by browsers, scripts and strangers: over real sockets on loopback.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod actions;
mod api;
mod audit;
mod bearer_socket;
mod files;
mod handshake;
mod harness;
mod limits;
mod long_term;
mod new_jobs;
mod notes;
mod proxy;
mod reports;
mod routes;
mod silences;
mod site;
mod sockets;
mod status;
