//! The sandbox as a program.

mod page;
mod probe;
mod published;
mod server;
