//! One binary with every test of the whole system, so that it is linked once; each module belongs
//! to one tier.

mod browser;
mod faults;
mod findings;
mod gpu_check;
mod house;
mod instructions;
mod lab;
mod mcp;
mod nats;
mod other_users;
mod own_load;
mod packages;
mod peers;
mod plain_hosts;
mod portable;
mod programs;
mod python;
mod recording;
mod relay;
mod remote_write;
mod soak;
mod steady;
mod storage;
mod threats;
mod top;
mod versions;
mod vscode;
