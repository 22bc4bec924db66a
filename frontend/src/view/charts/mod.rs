//! Graphs: heat maps, plots, sparklines, and the time range that they share.

pub mod colour_map;
pub mod export;
pub mod finding_marks;
pub mod gpu_groups;
pub mod graph;
pub mod graph_panel;
pub mod heat_map;
pub mod heat_map_input;
mod heat_map_paint;
pub mod mini_heat_map;
pub mod named_gaps;
pub mod note_marks;
pub mod overlay;
pub mod plot;
pub mod plot_area;
pub mod plot_paint;
pub mod sparkline;
pub mod summary;
pub mod throttle_lanes;
pub mod time_bar;
pub mod time_line;
pub mod tooltip;
