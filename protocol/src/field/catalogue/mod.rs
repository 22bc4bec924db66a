//! The catalogue of metrics: one table per kind of row. Fields, readings, resolution, history,
//! summaries, columns, graphs, sheets, exports and the tables of `PROTOCOL.md` derive from it.
//!
//! The order of a table is part of the wire format: new rows are appended.

mod gpu;
mod host;
mod job;
mod process;

pub use gpu::{GpuField, GpuSample};
pub use host::{HostField, HostSample};
pub use job::{JobField, JobReadings};
pub use process::{ProcessField, ProcessReadings};

/// Number of fields that fulfil a condition, and these fields in their order; for constants.
macro_rules! select {
    ($kind:ident, |$metric:ident| $condition:expr) => {{
        const fn is_selected($metric: &Metric<$kind>) -> bool {
            $condition
        }
        const COUNT: usize = {
            let (mut at, mut count) = (0, 0);
            while at < METRICS.len() {
                count += is_selected(&METRICS[at]) as usize;
                at += 1;
            }
            count
        };
        const SELECTED: [$kind; COUNT] = {
            let (mut at, mut count, mut selected) = (0, 0, [ALL[0]; COUNT]);
            while at < METRICS.len() {
                if is_selected(&METRICS[at]) {
                    selected[count] = ALL[at];
                    count += 1;
                }
                at += 1;
            }
            selected
        };
        &SELECTED
    }};
}

/// Defines the fields of a kind of row, and the readings of a probe that fill them. Each entry is `Field: reading /
/// divisor = metric`. The divisor converts the unit of the reading to the unit of the field (1 if omitted). JSON
/// omits readings that are not yet taken.
macro_rules! catalogue {
    (@divisor) => { 1 };
    (@divisor $divisor:literal) => { $divisor };
    (
        $(#[$doc:meta])* fields $fields:ident = $row_kind:literal;
        $(#[$rdoc:meta])* readings $readings:ident { $($(#[$pdoc:meta])* $plain:ident: $type:ty,)* }
        $($(#[$fdoc:meta])* $field:ident: $reading:ident $(/ $divisor:literal)? = $metric:expr;)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $fields { $($(#[$fdoc])* $field,)* }

        const ALL: &[$fields] = &[$($fields::$field,)*];
        const METRICS: &[Metric<$fields>] =
            &[$($metric.read_from(stringify!($reading), catalogue!(@divisor $($divisor)?)),)*];
        const _: () = assert!(ALL.len() <= ROW_WIDTH);

        impl Field for $fields {
            const ALL: &'static [Self] = ALL;
            const ROW_KIND: &'static str = $row_kind;
            const HISTORY: &'static [Self] = select!($fields, |metric| metric.has_history());
            const SUMMARY_HISTORY: &'static [Self] =
                select!($fields, |metric| matches!(metric.retention, Retention::Summary));
            const SUMMARY: &'static [Self] = select!($fields, |metric| metric.in_summary);
            const FAULT: Option<&'static str> = {
                let names: &[&'static str] = &[$(stringify!($plain),)*];
                if names.is_empty() { None } else { Some(names[0]) }
            };

            fn index(self) -> usize {
                self as usize
            }

            fn metric(self) -> &'static Metric<Self> {
                &METRICS[self as usize]
            }
        }

        $(#[$rdoc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        pub struct $readings {
            $($(#[$pdoc])* pub $plain: $type,)*
            $(
                $(#[$fdoc])*
                #[serde(default, skip_serializing_if = "crate::Reading::is_not_yet")]
                pub $reading: crate::Reading<u64>,
            )*
        }

        impl $readings {
            /// Iterates mutably over all readings in field order.
            pub fn readings_mut(&mut self) -> impl Iterator<Item = &mut crate::Reading<u64>> {
                [$(&mut self.$reading,)*].into_iter()
            }
        }

        impl ReadingSet for $readings {
            type Fields = $fields;

            fn reading(&self, field: $fields) -> &crate::Reading<u64> {
                match field { $($fields::$field => &self.$reading,)* }
            }

            fn fault(&self) -> Option<&Option<crate::Text>> {
                None $(.or(Some(&self.$plain)))*
            }
        }
    };
}

use catalogue;
use select;
