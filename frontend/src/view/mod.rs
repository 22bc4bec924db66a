//! The views: each a small sentence of what is shown, reading cells and deciding nothing.

mod all_jobs;
mod chart;
mod dot;
mod figure;
mod foot;
mod gate;
mod gpu_row;
mod gpu_table;
mod heat;
mod help;
mod job_entry;
mod job_head;
mod job_list;
mod job_page;
mod link_banner;
mod meter;
mod node_list;
mod node_notice;
mod node_page;
mod node_tabs;
mod process_table;
mod scope;
mod shell;
mod tiles;
mod top_bar;

pub use job_list::listed;
pub use shell::Shell;
