//! The state that views share: the page context, the address, settings and the time range of graphs.

pub mod address;
pub mod attention;
pub mod page;
pub mod settings;
pub mod time;
