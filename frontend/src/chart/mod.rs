//! Charts are pure geometry: time lines become path texts, without a document or a signal.

pub mod line;
pub mod timeline;

pub use line::{Frame, area, line};
pub use timeline::{Series, Window, merged, share};
