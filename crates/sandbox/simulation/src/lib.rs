//! Deterministic simulation testing for Kubernetes operators.

#[doc(hidden)]
pub mod engine;

pub use engine::{
    choices::{Alternative, Surprise},
    explore::{Explorer, ExtraRule, Report, Violation},
    faults::{At, FaultEffect, Incident, RequestFault, RequestPattern},
    files::ScenarioError,
    observer::Finding,
    outcome::{Outcome, SimulationError},
};
