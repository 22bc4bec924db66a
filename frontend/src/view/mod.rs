//! The components of the page: they read state and render it, and decide nothing.

mod charts;
mod jobs;
mod node;
mod reports;
mod scope;
mod severity_class;
mod sheets;
mod shell;
mod tables;
mod widgets;

pub use shell::{Shell, keyboard};
pub use tables::grid::Grids;
