//! The views: each a small sentence of what is shown, reading cells and deciding nothing.

mod actions;
mod all_jobs;
mod chart;
mod copy;
mod dot;
mod fact_list;
mod figure;
mod foot;
mod gate;
mod gpu_row;
mod gpu_sheet;
mod gpu_table;
mod heat;
mod help;
mod host_panel;
mod job_about;
mod job_entry;
mod job_head;
mod job_list;
mod job_page;
mod link_banner;
mod logs;
mod meter;
mod node_list;
mod node_notice;
mod node_page;
mod node_tabs;
mod process_sheet;
mod process_table;
mod scope;
mod sheet;
mod shell;
mod tiles;
mod top_bar;

pub use job_list::listed;
pub use shell::Shell;
