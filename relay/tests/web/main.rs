//! The relay's web side as a browser, a script or a stranger meets it: over real sockets on loopback.

mod command;
mod files;
mod handshake;
mod harness;
mod limits;
mod routes;
