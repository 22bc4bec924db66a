//! The relay's web side as a browser, a script or a stranger meets it: over real sockets on loopback.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod actions;
mod command;
mod files;
mod handshake;
mod harness;
mod limits;
mod proxy;
mod routes;
