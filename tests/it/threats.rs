//! What an attacker would try is tried here, each under the number of its threat (`t01_…` to `t34_…`).

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
