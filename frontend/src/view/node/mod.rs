//! The page of a node: notices, totals, host, topology and faults.

pub mod host_panel;
pub mod node_faults;
pub mod node_head;
pub mod node_notice;
pub mod node_page;
pub mod tiles;
pub mod topology;
