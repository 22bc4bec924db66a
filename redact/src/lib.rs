//! Redacts what probe and relay read before anything else sees it: secrets in command lines and
//! environments ([`mask`]), escape sequences in log files ([`log`]).

pub mod log;
pub mod mask;
