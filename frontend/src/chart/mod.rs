//! Chart geometry: series become paths, strips and bands. Pure, without a document or a signal.

pub mod band;
pub mod colour_scale;
pub mod finding_marks;
pub mod intervals;
pub mod line;
pub mod note_marks;
pub mod range;
pub mod scale;
pub mod strips;
pub mod timeline;
pub mod tooltip;
pub mod topology;

pub use band::Band;
pub use colour_scale::ColourScale;
pub use finding_marks::{SpanMark, holds_at, span_mark};
pub use intervals::{interval_path, intervals};
pub use line::{Frame, area, line};
pub use note_marks::{NoteMark, Side, note_marks, notes_near, shown_times};
pub use range::{Limit, Range, RangeStep};
pub use scale::{round_top, time_ticks, value_ticks};
pub use strips::Strips;
pub use timeline::{Extreme, Point, Series, Sums, Window, WindowCache, share};
pub use tooltip::Placement;
pub use topology::{Block, TopologyGpu, TopologyPicture, topology_picture};
