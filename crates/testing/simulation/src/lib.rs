//! Clusters in simulated time, with several controller managers and faults between them and the API server: drawn from
//! seeds, or all schedules of a small scenario.
//!
//! *Upstream counterpart:* none.
//!
//! A [`Scenario`] is data: workloads, actions of users, incidents of managers and hosts, faults of requests.
//! [`Scenario::draw`] draws it from a seed, [`Scenario::run`] runs it and checks every write. [`Scenario::shrunk`] returns a
//! smaller scenario that violates the same rule. An [`Explorer`] runs the schedules of a scenario with a bounded number of
//! [`Surprise`]s. The same scenario always gives the same [`Outcome`].
//!
//! | part | file |
//! |---|---|
//! | scenarios as data, and their files | `scenario.rs` |
//! | scenarios of seeds | `draw.rs` |
//! | runs | `simulate.rs` |
//! | kinds of requests | `requests.rs` |
//! | controller managers with elections | `program.rs` |
//! | users | `users.rs` |
//! | rules for each write | `judge.rs`, `ledger.rs` |
//! | rules for the end | `effect.rs` |
//! | smaller scenarios | `shrink.rs` |
//! | explorations in copies of processes | `copies.rs`, `workers.rs` |
//!
//! Processes, network, choice points and exploration are those of `kcm-simulation`. See `docs/simulation.md`.
//!
//! *Not in this crate:* code that the controllers use, real time, threads.

use kcm_simulation::engine::{choices, explore, host, managers, network, outcome, surprises};
#[doc(hidden)]
pub use kcm_simulation::engine::{explore::Bounds, known::Survey, parallel};
pub use kcm_simulation::{
    Alternative, Finding, Outcome, SimulationError, Surprise,
    engine::explore::{ExtraRule, Report, Violation},
};

mod copies;
mod draw;
mod effect;
mod judge;
mod ledger;
mod program;
mod requests;
mod scenario;
mod shrink;
mod simulate;
mod users;
mod webhooks;
mod workers;

pub use copies::run_parts;
pub use scenario::{
    At, DELETABLE_NAMESPACE, FaultEffect, Incident, ManagerSettings, NAMESPACE, Nodes, PodWebhook, Policy,
    RequestFault, Requests, Scenario, ScenarioError, Strategy, UserAction, Workload, WorkloadKind,
};

pub use workers::Workers;

/// Exploration of a scenario.
pub type Explorer = explore::Explorer<Scenario>;
