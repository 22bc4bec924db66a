//! The page that is built into this program.

use nodeglass_web::assets::PageFile;

/// Its files; none if the program was built without the page.
pub static FILES: &[PageFile] = include!(concat!(env!("OUT_DIR"), "/page.rs"));
