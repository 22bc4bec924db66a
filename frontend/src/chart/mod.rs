//! Charts are pure geometry: time lines become paths, strips and bands, without a document or a signal.

pub mod band;
pub mod lanes;
pub mod line;
pub mod range;
pub mod scale;
pub mod strips;
pub mod timeline;

pub use band::{Band, outliers};
pub use lanes::lane;
pub use line::{Frame, area, line};
pub use range::Range;
pub use scale::{time_ticks, value_ticks};
pub use strips::Strips;
pub use timeline::{Kept, Mark, Series, Sums, Window, share};
