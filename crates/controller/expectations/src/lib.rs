//! Own writes of a controller: creations, deletions and other writes that its caches may not contain yet.
//!
//! Upstream counterparts: the expectations of `pkg/controller/controller_utils.go`, and `pkg/controller/util/consistency`
//! (US-3.7). Upstream has no counterpart of [`PendingNames`], [`WrittenObjects`] and [`MissingObjects`].
//!
//! A controller reads caches that lag behind its writes. Example: a controller that has created five pods syncs again
//! before the cache contains them, and would create five more. A controller has one [`OwnWrites`], which its syncs and the
//! event handlers of its informers share. It has five records by owner, the object that is synced:
//!
//! | Record | Contents, until | Effect on a sync |
//! |---|---|---|
//! | [`UidTrackingExpectations`] | creations and deletions that were requested, until events report them, the versions of the responses are cached, or [`EXPECTATIONS_TIMEOUT`] | creates and deletes nothing |
//! | [`ConsistencyStore`] | versions of written objects, until the caches contain them | is postponed |
//! | [`PendingNames`] | names of creations without a known result, until the object is cached or cannot be created any more | counts them among the missing objects, and requests them again |
//! | [`WrittenObjects`] | objects that the API server returned, until the caches contain them | uses them in place of the cached ones |
//! | [`MissingObjects`] | an owner that a write has not found, until its deletion is observed | is postponed |
//!
//! A controller uses the records that it needs. The ReplicaSet controller creates pods with generated names, and a repeated
//! creation would make a surplus pod: it uses the first three and waits. The Deployment controller writes objects with a
//! resource version or a fixed name, and the API server refuses repeated writes: it uses written objects and does not wait.
//! Both use missing objects.
//!
//! # Order
//!
//! A sync may rely on the following, if it makes its calls in this order:
//!
//! | Step | What the sync may rely on | Reason for the order |
//! |---|---|---|
//! | 1. [`OwnWrites::begin`] | The caches contain all writes of earlier syncs whose versions are known. | Before the object is read: even its absence may be outdated. |
//! | 2. its result | If `true`, each object that an earlier sync has created or deleted is in the cache or gone, or its creation has a pending name. | Before the owned objects are listed: one that was observed in between would be created again. |
//! | 3. read and list | The list contains the objects of all names that are not pending any more. | After `begin`, which removes the names of cached objects. |
//! | 4. [`expect_creations`](OwnWrites::expect_creations), [`expect_deletions`](OwnWrites::expect_deletions) | Each event of the requested objects lowers the expectations. | Before the first request: the event may precede the response. |
//! | 5. [`PendingNames::requested`] | If the sync is aborted, the name is not lost. | Before each request. |
//! | 6. [`OwnWrites::created`], [`ConsistencyStore::wrote_at`], [`WrittenObjects::wrote`] | The next sync has the response. | After each response. |
//! | 7. [`lower`](UidTrackingExpectations::lower) | Failed and skipped requests are not expected. | After the last response. |
//!
//! If the object does not exist any more, the sync calls [`OwnWrites::forget`].
//!
//! Event handlers call the methods `observe_…` before they add keys to the queue; those of `kcm-runtime` do.
//!
//! Not part of this crate: requests, caches, types of objects. ADR 0014 has the alternatives.

#![warn(missing_debug_implementations)]

// In model tests, shuttle chooses the thread that takes a lock.
#[cfg(feature = "shuttle")]
extern crate shuttle_dashmap as dashmap;

mod consistency;
mod counting;
mod missing_objects;
mod own_writes;
mod pending_names;
mod uid_tracking;
mod written_objects;

pub use consistency::{ConsistencyStore, GroupResource, NotReady, ReadVersion};
pub use counting::{ControllerExpectations, EXPECTATIONS_TIMEOUT};
pub use missing_objects::MissingObjects;
pub use own_writes::{DeletedObject, OwnWrites};
pub use pending_names::{Attempts, NextStep, PendingNames};
pub use uid_tracking::UidTrackingExpectations;
pub use written_objects::WrittenObjects;

use std::{fmt::Display, hash::Hash};

/// Key of the object that a controller syncs. Implemented for all types with the required traits.
pub trait Key: Clone + Eq + Hash + Display + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + Display + Send + Sync + 'static> Key for K {}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
