//! What an attacker would try is tried here, each under the number of its threat (`t01_…` to `t34_…`).

mod browser;
mod keys;
mod limits;
mod proxy;
mod sharing_page;
mod supply_chain;
mod tls;
