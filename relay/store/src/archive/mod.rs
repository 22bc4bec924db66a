//! Stores the long-term history on disk, on a thread of its own, and restores it when a relay starts.
//!
//! The directory has segments of ten-second slots, one an hour, and of one-minute slots, one a day. A segment is a
//! [file of frames](nodeglass_platform::frame_file), each with the slots of all nodes. A run of the relay only appends to segments
//! that it created. `runs` lists when relays ran; `job-*.end` holds the last picture of one ended job.

mod ended;
mod load;
mod runs;
mod segment;
mod writer;

pub use ended::EndedJob;
pub use load::load;
pub use writer::{Archive, ArchiveError, SegmentWriter, Storing};

#[cfg(test)]
mod tests;
