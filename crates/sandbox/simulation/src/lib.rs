//! Deterministic simulation testing for Kubernetes operators.

#[doc(hidden)]
pub mod engine;

mod check;
mod draw;
mod process;
mod recorder;
mod rules;
mod scenario;
mod simulate;
mod simulation;
mod world;

pub use check::Failure;
pub use engine::{
    choices::{Alternative, Surprise},
    explore::{Explorer, ExtraRule, Report, Violation},
    faults::{At, FaultEffect, Incident, RequestFault, RequestPattern},
    files::ScenarioError,
    network::ProcessConnection,
    observer::Finding,
    outcome::{Outcome, SimulationError},
};
pub use process::{ExitResult, ManagerProcess};
pub use rules::RULES;
pub use scenario::{Action, Scenario};
pub use simulation::Simulation;
pub use world::{World, Write};
