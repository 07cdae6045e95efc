//! `informer_*` (US-1.8), and the state of caches.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kcm_api::ApiError;
use kcm_clock::Clock;
use kcm_informer::{InformerMetrics, ListWatchError};
use parking_lot::RwLock;

use crate::{
    Counter, Family, Gauge, Histogram, Registry, Spec,
    Stability::Alpha,
    clients::{NO_ANSWER, decimal},
    metrics::Refreshers,
};

const PROCESSING: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// A watch that ends sooner, and without an event, was of no use.
const SHORT: Duration = Duration::from_secs(1);

/// Versions have more digits than a float can tell apart; upstream shows as many of the last as it can.
const SHOWN_DIGITS: usize = 15;

/// Counts what informers do.
///
/// Upstream's reflectors know metrics of their own (`reflector_*`), which no component shows; ours are by another name.
pub(crate) struct Informers {
    /// The `name` label: upstream's name for a manager's informer factory.
    factory: &'static str,
    clock: Arc<dyn Clock>,
    families: Families,
    refreshers: Refreshers,
    /// In the order in which they were first heard of. There are few.
    caches: RwLock<Vec<Cache>>,
}

struct Families {
    queued: Family<Gauge, 4>,
    processing: Family<Histogram, 4>,
    version: Family<Gauge, 4>,
    objects: Family<Gauge, 1>,
    bytes: Family<Gauge, 1>,
    age: Family<Gauge, 1>,
    lists: Family<Counter, 1>,
    relists: Family<Counter, 1>,
    watches: Family<Counter, 1>,
    short_watches: Family<Counter, 1>,
    failures: Family<Counter, 2>,
    undecodable: Family<Counter, 1>,
}

/// The series of one informer.
struct Cache {
    name: Box<str>,
    processing: Arc<Histogram>,
    version: Arc<Gauge>,
    objects: Arc<Gauge>,
    lists: Arc<Counter>,
    relists: Arc<Counter>,
    watches: Arc<Counter>,
    short_watches: Arc<Counter>,
    undecodable: Arc<Counter>,
    /// When it heard of its source last, in nanoseconds of the monotonic clock.
    heard: Arc<AtomicU64>,
}

impl Informers {
    pub(crate) fn new(
        registry: &Registry,
        factory: &'static str,
        clock: Arc<dyn Clock>,
        refreshers: Refreshers,
    ) -> Self {
        Self { factory, clock, families: Families::new(registry), refreshers, caches: RwLock::default() }
    }

    /// Shows what `estimate` says at each scrape as the bytes of the cache called `name`.
    pub(crate) fn size(&self, name: &str, estimate: impl Fn() -> usize + Send + Sync + 'static) {
        let bytes = self.families.bytes.with([Place::of(name).resource]);
        self.refreshers.add(Box::new(move || {
            bytes.set(estimate() as f64);
            true
        }));
    }

    /// Tells the series of the informer called `name`.
    fn tell(&self, name: &str, what: impl FnOnce(&Cache)) {
        let find = |cache: &&Cache| &*cache.name == name;
        if let Some(found) = self.caches.read().iter().find(find) {
            return what(found);
        }
        let mut caches = self.caches.write();
        if let Some(found) = caches.iter().find(find) {
            return what(found);
        }
        let cache = self.families.cache(self.factory, name);
        self.show_age(&cache, Place::of(name).resource);
        what(&cache);
        caches.push(cache);
    }

    /// Lets each scrape say for how long nothing was heard.
    fn show_age(&self, cache: &Cache, resource: &str) {
        let (age, clock) = (self.families.age.with([resource]), Arc::clone(&self.clock));
        let heard = Arc::clone(&cache.heard);
        cache.hear(&*self.clock);
        self.refreshers.add(Box::new(move || {
            let heard = Duration::from_nanos(heard.load(Ordering::Relaxed));
            age.set_seconds(clock.monotonic().saturating_sub(heard));
            true
        }));
    }
}

impl Families {
    fn new(registry: &Registry) -> Self {
        let upstream =
            |name, help| Spec::upstream(name, Alpha, ["group", "name", "resource", "version"], help);
        let own = |name, help| Spec::own(name, ["resource"], help);
        Self {
            queued: registry.metric(upstream(
                "informer_queued_items",
                "Events that wait to be put into the cache. Always 0: there is no queue before the cache.",
            )),
            processing: registry.metric(
                upstream(
                    "informer_processing_latency_seconds",
                    "How long it took to put an event into the cache and to tell all handlers, in seconds.",
                )
                .buckets(PROCESSING),
            ),
            version: registry.metric(upstream(
                "informer_store_resource_version",
                "The newest resource version that the cache has seen, its last 15 digits.",
            )),
            objects: registry.metric(own("kcm_cache_objects", "Objects in the cache.")),
            bytes: registry.metric(own(
                "kcm_cache_bytes",
                "Memory that the cached objects take, in bytes, estimated from some of them.",
            )),
            age: registry.metric(own(
                "kcm_cache_last_event_age_seconds",
                "For how long the cache has heard nothing of its source, not even that nothing happened, in seconds.",
            )),
            lists: registry.metric(own(
                "kcm_cache_lists_total",
                "How often the cache was filled from its source, the first time included.",
            )),
            relists: registry.metric(own(
                "kcm_cache_relists_total",
                "How often the cache had to be filled anew because a watch could not go on.",
            )),
            watches: registry.metric(own("kcm_cache_watches_total", "Watches opened.")),
            short_watches: registry.metric(own(
                "kcm_cache_short_watches_total",
                "Watches that ended within a second and without an event.",
            )),
            failures: registry.metric(Spec::own(
                "kcm_cache_request_failures_total",
                ["code", "resource"],
                "Lists and watches that failed, by status code; <error> for no answer, or one that made no sense.",
            )),
            undecodable: registry.metric(own(
                "kcm_cache_undecodable_objects_total",
                "How often an object came that could not be decoded, and was left out.",
            )),
        }
    }

    fn cache(&self, factory: &str, name: &str) -> Cache {
        let Place { group, version, resource } = Place::of(name);
        let upstream = [group, factory, resource, version];
        self.queued.with(upstream).set(0.0);
        Cache {
            name: name.into(),
            processing: self.processing.with(upstream),
            version: self.version.with(upstream),
            objects: self.objects.with([resource]),
            lists: self.lists.with([resource]),
            relists: self.relists.with([resource]),
            watches: self.watches.with([resource]),
            short_watches: self.short_watches.with([resource]),
            undecodable: self.undecodable.with([resource]),
            heard: Arc::default(),
        }
    }
}

impl Cache {
    fn hear(&self, clock: &dyn Clock) {
        let now = u64::try_from(clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
        self.heard.store(now, Ordering::Relaxed);
    }
}

impl InformerMetrics for Informers {
    fn store_changed(&self, informer: &str, objects: usize, resource_version: &str) {
        self.tell(informer, |cache| {
            cache.objects.set(objects as f64);
            if let Some(version) = last_digits(resource_version) {
                cache.version.set(version);
            }
            cache.hear(&*self.clock);
        });
    }

    fn listed(&self, informer: &str, relist: bool) {
        self.tell(informer, |cache| {
            cache.lists.inc();
            if relist {
                cache.relists.inc();
            }
        });
    }

    fn request_failed(&self, informer: &str, error: &ListWatchError) {
        let mut digits = [0; 5];
        let code = match error.downcast_ref() {
            Some(ApiError::Status(status)) => decimal(status.code, &mut digits),
            _ => NO_ANSWER,
        };
        self.families.failures.with([code, Place::of(informer).resource]).inc();
    }

    fn watch_started(&self, informer: &str) {
        self.tell(informer, |cache| cache.watches.inc());
    }

    fn records_durations(&self) -> bool {
        true
    }

    fn processed(&self, informer: &str, took: Duration) {
        self.tell(informer, |cache| cache.processing.observe_seconds(took));
    }

    fn watch_ended(&self, informer: &str, lasted: Duration, events: u64) {
        if events == 0 && lasted < SHORT {
            self.tell(informer, |cache| cache.short_watches.inc());
        }
    }

    fn undecodable(&self, informer: &str) {
        self.tell(informer, |cache| cache.undecodable.inc());
    }
}

fn last_digits(version: &str) -> Option<f64> {
    let from = version.len().saturating_sub(SHOWN_DIGITS);
    version.get(from..)?.parse::<u64>().ok().map(|number| number as f64)
}

/// Which resource an informer is for.
#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
}

impl<'a> Place<'a> {
    /// From an informer's name: a resource that is known here, or any in full as `resource.version.group`.
    fn of(name: &'a str) -> Self {
        let core = |resource| Self { group: "", version: "v1", resource };
        match name {
            "pods" | "replicationcontrollers" => core(name),
            "deployments" | "replicasets" => Self { group: "apps", ..core(name) },
            name => {
                let mut parts = name.splitn(3, '.');
                let (resource, version) = (parts.next().unwrap_or(name), parts.next().unwrap_or_default());
                Self { group: parts.next().unwrap_or_default(), version, resource }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_of_an_informer_is_known_or_spelled_out() {
        let place = |group, version, resource| Place { group, version, resource };
        assert_eq!(Place::of("pods"), place("", "v1", "pods"));
        assert_eq!(Place::of("replicasets"), place("apps", "v1", "replicasets"));
        assert_eq!(Place::of("leases.v1.coordination.k8s.io"), place("coordination.k8s.io", "v1", "leases"));
        assert_eq!(Place::of("widgets"), place("", "", "widgets"));
    }

    #[test]
    fn version_is_shown_by_its_last_fifteen_digits() {
        assert_eq!(last_digits("42"), Some(42.0));
        assert_eq!(last_digits("1234567890123456789"), Some(567_890_123_456_789.0));
        assert_eq!(last_digits(""), None);
        assert_eq!(last_digits("abc"), None);
    }
}
