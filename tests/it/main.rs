//! One binary holds every test of the whole system, so that it is linked once; a module is a ring's part.

mod browser;
mod house;
mod instructions;
mod lab;
mod other_users;
mod peers;
mod relay;
mod steady;
mod threats;
