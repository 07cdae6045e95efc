//! Expectations: creations and deletions that a controller has requested and its caches do not contain yet.
//!
//! Upstream counterpart: the expectations of `pkg/controller/controller_utils.go`.
//!
//! A controller reads a cache that lags behind its own writes. Example: a controller that has created five pods syncs
//! again before the cache contains them, and would create five more. It therefore records the number of creations and
//! deletions before it sends the requests. Event handlers lower the numbers. While one of them is greater than zero, the
//! controller creates and deletes nothing. If an event never arrives, expectations expire after
//! [`EXPECTATIONS_TIMEOUT`].
//!
//! * [`ControllerExpectations`] counts creations and deletions.
//! * [`UidTrackingExpectations`] also records which deletions are expected. A deletion is observed up to three times
//!   (updates and the final event), and deletions by other clients must not be counted.
//!
//! Counts can become negative: a creation can be observed before its request returns an error. The next
//! `expect_creations` or `expect_deletions` replaces them.
//!
//! Not part of this crate: the reaction to unfulfilled expectations, caches, types of objects.

#![warn(missing_debug_implementations)]

mod counting;
mod uid_tracking;

pub use counting::{ControllerExpectations, EXPECTATIONS_TIMEOUT};
pub use uid_tracking::UidTrackingExpectations;

use std::{fmt::Display, hash::Hash};

/// Key of the object that a controller syncs. Implemented for all types with the required traits.
pub trait Key: Clone + Eq + Hash + Display + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + Display + Send + Sync + 'static> Key for K {}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
