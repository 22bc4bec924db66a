//! Tables without their drawing: columns, values, order, filter, choice and export. Pure, without a document.

pub mod choice;
pub mod column;
pub mod coverage;
pub mod definition;
pub mod export;
pub mod filter;
pub mod gpus;
pub mod job_usage;
pub mod jobs;
pub mod nodes;
pub mod processes;
pub mod sort;
pub mod sum;
pub mod value;
pub mod window;

pub use column::{CellStyle, Column, widths};
pub use definition::Now;
pub use value::{CellUnit, Value};

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> [(&'static str, Vec<Column>); 5] {
        [
            ("gpus", gpus::columns()),
            ("processes", processes::columns()),
            ("nodes", nodes::columns()),
            ("uses", job_usage::columns()),
            ("jobs", jobs::columns(false)),
        ]
    }

    #[test]
    fn every_name_identifies_one_column() {
        for (table, columns) in tables() {
            let mut names: Vec<&str> = columns
                .iter()
                .flat_map(|column| column.aliases.iter().chain([&column.id]))
                .copied()
                .collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{table}");
            assert!(
                names.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_')),
                "{table}"
            );
        }
    }

    #[test]
    fn every_column_is_described_and_the_default_fits_a_laptop() {
        for (table, columns) in tables() {
            assert!(columns.iter().all(|column| !column.about.is_empty() && column.width > 0), "{table}");
            let shown = column::fitting(&columns, &[], 320);
            assert!((2..6).contains(&shown.len()), "{table} on a phone: {shown:?}");
            assert!(column::fitting(&columns, &[], 1_100).len() >= 6, "{table}");
        }
    }
}
