//! Rules and texts of the page: health, attention, flags, ownership, totals, routes. Pure, without a document or a signal.

pub mod attention;
pub mod colour_scheme;
pub mod deviation;
pub mod flags;
pub mod fuzzy_search;
pub mod health;
pub mod job_groups;
pub mod job_health;
pub mod keys;
pub mod log_lines;
pub mod machine_groups;
pub mod metric;
pub mod node_order;
pub mod notices;
pub mod outcome;
pub mod ownership;
pub mod pending_action;
pub mod query;
pub mod route;
pub mod severity;
pub mod tab_title;
pub mod text;
pub mod throttle;
pub mod totals;
pub mod unattributed;
pub mod xid;
