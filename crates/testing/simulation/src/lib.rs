//! Whole clusters in simulated time, drawn from seeds, with several controller managers and everything that can go
//! wrong around them.
//!
//! *Upstream counterpart:* none.
//!
//! A [`Scenario`] is data: workloads, what users do to them, what happens to managers, hosts and requests.
//! [`Scenario::draw`] draws it from a seed, [`Scenario::run`] runs it and judges every write. What is found can be
//! made small by [`Scenario::shrunk`] and kept in a file. The same scenario always gives the same [`Outcome`].
//!
//! | part | file |
//! |---|---|
//! | scenarios as data, and their files | `scenario.rs` |
//! | drawing them | `draw.rs` |
//! | running them | `simulate.rs` |
//! | hosts and processes: clocks, stops, how far they see | `host.rs` |
//! | the network, and what happens to requests | `network.rs` |
//! | managers with elections | `managers.rs` |
//! | choice points and surprises | `choices.rs` |
//! | all schedules of a scenario | `explore.rs` |
//! | users | `users.rs` |
//! | judging each write | `judge.rs`, `ledger.rs` |
//! | judging the end | `effect.rs` |
//! | making scenarios small | `shrink.rs` |
//!
//! See `docs/simulation.md`.
//!
//! *Not in this crate:* code that the controllers use, real time, threads.

mod choices;
mod draw;
mod effect;
mod explore;
mod host;
mod judge;
mod ledger;
mod managers;
mod network;
mod requests;
mod scenario;
mod shrink;
mod simulate;
mod users;
mod webhooks;

pub use choices::{Alternative, Surprise};
pub use explore::{Explorer, ExtraRule, Report, Violation};
pub use judge::Finding;
pub use scenario::{
    At, DELETABLE_NAMESPACE, FaultEffect, Incident, ManagerSettings, NAMESPACE, Nodes, PodWebhook, Policy,
    RequestFault, Requests, Scenario, ScenarioError, Strategy, UserAction, Workload, WorkloadKind,
};
pub use simulate::{Outcome, SimulationError};
