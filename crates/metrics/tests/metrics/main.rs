//! All metrics at once: every hook is told something, and what is served is held against the documents.

mod everything;
mod hooks;
mod observability;
mod tables;
mod upstream;
