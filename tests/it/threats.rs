//! Tests of the threats in docs/SECURITY.md, each under its number (`t01_…` to `t34_…`).

mod browser;
mod evil_sshd;
mod keys;
mod limits;
mod log_files;
mod names;
mod proxy;
mod runtime_dir;
mod sharing_page;
mod stored_shares;
mod supply_chain;
mod tls;
