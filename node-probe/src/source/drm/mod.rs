//! GPUs that the kernel describes in sysfs and `/proc/PID/fdinfo`: what the sources of AMD and Intel
//! share. No library is loaded and nothing is written.

pub mod attribute;
pub mod card;
pub mod clients;
pub mod facts;
pub mod fdinfo;
pub mod hwmon;
pub mod link;
mod names;
pub mod session;
