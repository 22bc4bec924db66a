//! Rules and texts of the page: health, attention, flags, ownership, totals, routes. Pure, without a document or a signal.

pub mod attention;
pub mod cluster;
pub mod colour_scheme;
pub mod compared;
pub mod deviation;
pub mod fuzzy_search;
pub mod job_groups;
pub mod job_health;
pub mod keys;
pub mod log_lines;
pub mod machine_groups;
pub mod metric;
pub mod node_order;
pub mod notices;
pub mod other_users;
pub mod pending_action;
pub mod playback;
pub mod query;
pub mod route;
pub mod sorting;
pub mod tab_title;
pub mod unattributed;

pub use nodeglass_rules::{
    cost, flags, health, job_names, outcome, ownership, run, severity, text, throttle, totals, xid,
};
