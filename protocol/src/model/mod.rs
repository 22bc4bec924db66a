//! The entities that both wires describe.

pub mod audit;
pub mod capture;
pub mod cluster;
pub mod confinement;
pub mod finding;
pub mod gpu;
pub mod history;
pub mod host;
pub mod insight;
pub mod job;
pub mod job_devices;
pub mod note;
pub mod picture;
pub mod process;
pub mod range;
pub mod replay;
pub mod report;
pub mod request;
pub mod share;
pub mod source;
pub mod trace;
pub mod unattributed;
