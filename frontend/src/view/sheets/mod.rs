//! Sheets that lie above the page: a GPU, a process, sharing, settings and help.

pub mod gpu_sheet;
pub mod help;
pub mod note_sheet;
pub mod process_sheet;
pub mod settings_panel;
pub mod share_link;
pub mod share_list;
pub mod share_sheet;
