//! The job list, and the page of a job with its tabs.

pub mod all_jobs;
mod attention_line;
pub mod attention_list;
mod attention_row;
mod cluster;
mod finding_tools;
mod gpu_cells;
pub mod job_about;
pub mod job_entry;
pub mod job_group;
pub mod job_head;
pub mod job_list;
pub mod job_nodes;
pub mod job_page;
mod job_progress;
mod log_search;
pub mod logs;
mod machine_groups;
mod machines;
mod node_picker;
pub mod node_tabs;
pub mod section;
pub mod silence;
pub mod unknown_job;
mod users;
