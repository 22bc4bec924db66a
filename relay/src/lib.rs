//! The relay: finds a user's jobs, runs a probe on each of their nodes, and shows the readings in a
//! browser.
//!
//! A sample passes through `launch` → `nodes` → `event_loop` (`fleet`) → `live` → `web`. The fleet is pure; modules that
//! own a socket, a clock or a process are thin and sit at the edge.

pub mod about;
pub mod access;
pub mod actions;
pub mod api;
pub mod app;
pub mod archive;
pub mod auth;
mod backoff;
pub mod capturer;
pub mod clock;
pub mod config;
mod disk_thread;
pub mod doctor;
pub mod event_loop;
pub mod findings;
pub mod fleet;
pub mod frame_file;
pub mod history;
pub mod hosts;
pub mod launch;
pub mod live;
pub mod local_time;
pub mod log;
mod memory;
pub mod nodes;
pub mod notify;
pub mod recording;
mod regular_file;
pub mod report;
mod report_webhook;
pub mod share;
pub mod slurm;
pub mod state_dir;
pub mod store;
mod token_bucket;
pub mod top;
pub mod web;
pub mod webhook;
mod wrap;
