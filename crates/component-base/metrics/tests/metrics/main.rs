//! All metrics at once: every hook is told something, and what is served is held against the documents.

#![expect(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests may fail as tests do")]

mod everything;
mod hooks;
mod observability;
mod tables;
mod upstream;
