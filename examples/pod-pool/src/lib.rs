//! Operator for the custom resource `PodPool`, which owns pods. Once with `kcm`, and once with kube-runtime alone.
//!
//! | Module | Contents |
//! |---|---|
//! | [`pool`] | the custom resource |
//! | [`reservations`] | the external system as a trait, and a fake |
//! | [`plan`] | decisions |
//! | [`controller`], [`operator`] | performs the plan, informers and controller, with `kcm` |
//! | [`on_kube_runtime`] | the same with kube-runtime alone |

#[cfg(feature = "kcm")]
pub mod controller;
#[cfg(feature = "kube-runtime")]
pub mod on_kube_runtime;
#[cfg(feature = "kcm")]
pub mod operator;
pub mod plan;
pub mod pool;
pub mod reservations;
