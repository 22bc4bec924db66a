//! The relay as a program: its commands, and the check of what it needs.
//!
//! `main` reads the command line and runs one of [`commands`], [`doctor`], the terminal view (`nodeglass_top`) or a relay
//! (`nodeglass_app`). A sample passes through `nodeglass_launch` → `nodeglass_nodes` → `nodeglass_event_loop`
//! (`nodeglass_fleet`) → `nodeglass_live` → `nodeglass_web`. The fleet is pure; crates that own a socket, a clock or a
//! process are thin and sit at the edge.

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod commands;
pub mod doctor;
pub mod installation;
pub mod page;
