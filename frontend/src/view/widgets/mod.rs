//! Small components that several parts of the page use.

pub mod actions;
pub mod capture;
pub mod code_text;
pub mod copy;
pub mod dot;
pub mod fact_list;
pub mod focus;
pub mod later;
pub mod menu;
pub mod meter;
pub mod note_list;
pub mod sheet;
pub mod status_line;
