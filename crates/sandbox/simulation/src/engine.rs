//! Parts of the engine. They are public for simulations with scenarios of another type, and no documented interface.
#![allow(missing_docs, reason = "no documented interface")]

pub mod choices;
pub mod explore;
pub mod faults;
pub mod files;
mod fingerprint;
pub mod host;
pub mod known;
pub mod managers;
pub mod network;
mod objects;
pub mod observer;
pub mod outcome;
pub mod parallel;
pub mod random;
pub mod shrink;
pub mod step;
pub mod surprises;
pub mod timeline;
