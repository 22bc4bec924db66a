//! Shared parts of the sources of AMD and Intel: GPUs that the kernel describes in sysfs and `/proc/PID/fdinfo`. They
//! load no library and write no files.

pub mod attribute;
pub mod card;
pub mod clients;
pub mod facts;
pub mod fdinfo;
pub mod hwmon;
pub mod link;
mod names;
pub mod session;
