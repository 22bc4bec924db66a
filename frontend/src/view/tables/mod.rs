//! The tables of jobs, nodes, GPUs and processes, and the component that draws each.

pub mod gpu_table;
pub mod grid;
pub mod job_usage_table;
pub mod node_list;
pub mod process_table;
