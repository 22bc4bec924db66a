//! The page of a node: notices, totals, host and topology.

pub mod host_panel;
pub mod node_head;
pub mod node_notice;
pub mod node_page;
pub mod tiles;
pub mod topology;
