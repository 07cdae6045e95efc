//! Metrics of a manager: values, documentation, dashboard, alerts, and comparison with upstream.

#![expect(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests may fail as tests do")]

mod everything;
mod hooks;
mod observability;
mod tables;
mod upstream;
