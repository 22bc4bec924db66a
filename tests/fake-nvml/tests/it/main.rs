//! The library as seen by clients: loaded by path, through nvml-wrapper and through the plain ABI.

mod cards;
mod counters;
mod drivers;
mod every_symbol;
mod faults;
mod fields;
mod gpm;
mod links;
mod machine;
mod mig;
mod processes;
mod readme;
