//! The relay finds jobs, runs a probe on each of their nodes, keeps the picture, and shows it to whoever may look.
//!
//! A sample's way through it: `launch` → `nodes` → `fleet` → `hub` → `web`. The fleet is pure; what
//! has a socket, a clock or a process is thin and sits at the edge.

pub mod about;
pub mod access;
pub mod actions;
pub mod app;
pub mod clock;
pub mod config;
pub mod fleet;
pub mod hub;
pub mod launch;
pub mod log;
mod memory;
pub mod nodes;
pub mod share;
pub mod slurm;
pub mod terminal;
pub mod web;
