//! Operator for the custom resource `Website`: a Deployment, a Service, a PodDisruptionBudget and a DNS record.
//!
//! | File | Contents |
//! |---|---|
//! | `website.rs` | the custom resource, from which the CRD is derived |
//! | `plan.rs` | decisions: pure functions from the cached objects to operations and status |
//! | `dns.rs` | the DNS provider as a trait, and a fake |
//! | `controller.rs` | performs the operations |
//! | `operator.rs` | informers and controller |
//! | `main.rs` | program |
//!
//! The tutorial of `kcm` builds it step by step.

pub mod controller;
pub mod dns;
pub mod operator;
pub mod plan;
pub mod website;
