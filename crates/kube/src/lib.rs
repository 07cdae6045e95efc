//! The crates of this project over a [`kube_client::Client`], and informers for [`kube_runtime::Controller`].
//!
//! For operators that use kube-rs: they keep their client, its configuration and its middleware.
//!
//! | Item | Implements | Crate |
//! |---|---|---|
//! | [`clients`], [`api_client`] | [`ClientFactory`](kcm_client::ClientFactory), through which all of the following send their requests | `kcm-client` |
//! | [`list_watch`], [`sources`] | [`ListWatch`](kcm_informer::ListWatch) | `kcm-informer` |
//! | [`LeaseClient`] | [`LeaseLock`](kcm_leader_election::LeaseLock), over an [`api_client`] | `kcm-leader-election` |
//! | [`LeaderGateLayer`] | refusal of writes while another process leads | `kcm-leader-election` |
//! | [`EventClient`] | `EventSink`, over an [`api_client`] | `kcm-events` |
//! | [`OwnerClient`] | `OwnerControl`, over an [`api_client`] | `kcm-controller-ref-manager` |
//! | `watcher`, `touched_objects` | streams for `kube_runtime::Controller`; feature `runtime`, on by default | `kcm-informer` |
//!
//! # `kcm_informer` beside `kube_runtime::reflector`
//!
//! Each row has a test in `tests/reflector.rs`. Its name is in the last column.
//!
//! | | `kcm_informer` | `kube_runtime::reflector` | Test |
//! |---|---|---|---|
//! | Indexes | objects by any value, in time proportional to the result | scan of `Store::state` | `indexes` |
//! | Handlers | old and new state of each change | new state only | `old_and_new_state` |
//! | Objects that a relist finds unchanged | keep their `Arc`; no second copy | are copied | `relist_of_unchanged_objects` |
//! | Deletion missed while the watch was down | reported, with the last known state | the object disappears from the store without an event | `missed_deletion` |
//! | Object that cannot be decoded | others are served; the last state of the object is kept | the list fails until the object is repaired; `DeserializeGuard` helps if the type is wrapped in it | `undecodable_object` |
//! | Version of the cache | `last_sync_resource_version`, for reads of a controller's own writes | none | `resource_version` |
//! | Consistent read on demand | `relist`, such as after an election | a new watcher | `relist_on_demand` |
//! | Several namespaces in one store | yes, synced when all are | the list of one removes the objects of the others | `several_namespaces` |
//! | Slow subscriber | gets the last state of each object; delays no other | delays the reflector and all other subscribers | `slow_subscriber` |
//! | Failed requests | retried with client-go's back-off, logged, counted | each is an item of the stream; the back-off is the user's choice | `errors_in_the_stream` |
//! | Task | `run` must be spawned | runs while the stream is polled | `driven_by_its_consumer` |
//! | Combinators | handlers; with [`watcher`](fn@watcher), those of `WatchStreamExt` | predicates, `modify`, back-off, joins of streams | `combinators` |
//! | Single object | an informer with a field selector | `watch_object`, `await_condition` | `single_object` |
//!
//! At rest, both take the memory of their objects; `examples/memory.rs` measures it. During a relist,
//! `kube_runtime::reflector` takes twice as much, and `kcm_informer` 1% more.
//!
//! `kube_runtime::reflector` is the better choice for a controller that needs none of the first nine rows.
//!
//! *Not part of this crate:* a client, decisions, the control loop.
//!
//! [`kube_runtime::Controller`]: https://docs.rs/kube-runtime/latest/kube_runtime/struct.Controller.html

#![warn(missing_debug_implementations)]

mod clients;
mod error;
mod leader_gate;
mod list_watch;
#[cfg(feature = "runtime")]
mod watcher;

pub use clients::{api_client, clients};
pub use error::api_error;
pub use kcm_client::{EventClient, LeaseClient, OwnerClient};
pub use leader_gate::{GatedService, LeaderGateLayer};
pub use list_watch::{list_watch, sources};
#[cfg(feature = "runtime")]
pub use watcher::{touched_objects, watcher};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
