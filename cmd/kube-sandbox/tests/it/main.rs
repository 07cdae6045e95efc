//! The sandbox as a program.

#[cfg(unix)]
mod envtest;
mod page;
mod probe;
mod published;
mod server;
