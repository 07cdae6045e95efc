//! Metrics of informers: `informer_*` (US-1.8) and the state of caches.

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
use kcm_metrics::{Counter, Family, Gauge, Histogram, Registry, Spec, Stability::Alpha};
use parking_lot::{Mutex, RwLock};

use super::clients::{NO_RESPONSE, decimal};

const PROCESSING: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Watches without events that end within this time are counted as short.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// Number of trailing digits of a resource version that are exported. An `f64` represents 15 digits exactly.
const VERSION_DIGITS: usize = 15;

/// Metrics of all informers.
///
/// Upstream's `reflector_*` metrics are not used: no upstream component exports them.
pub(super) struct Informers {
    /// Label `name`: name of the informer factory.
    factory: &'static str,
    clock: Arc<dyn Clock>,
    families: Families,
    ages: Arc<Mutex<Vec<Age>>>,
    /// In the order of first use. There are few.
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

/// Time since the last event of one cache, computed at each scrape.
struct Age {
    gauge: Arc<Gauge>,
    last_event: Arc<AtomicU64>,
}

fn update_ages(ages: &Mutex<Vec<Age>>, clock: &dyn Clock) {
    for Age { gauge, last_event } in &*ages.lock() {
        let last_event = Duration::from_nanos(last_event.load(Ordering::Relaxed));
        gauge.set_seconds(clock.monotonic().saturating_sub(last_event));
    }
}

/// Time series of one informer.
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
    /// Time of the last event, bookmark or list, in nanoseconds of the monotonic clock.
    last_event: Arc<AtomicU64>,
}

impl Informers {
    pub(super) fn new(registry: &Registry, factory: &'static str, clock: Arc<dyn Clock>) -> Self {
        let ages = Arc::default();
        let (scraped, now) = (Arc::clone(&ages), Arc::clone(&clock));
        registry.on_scrape(Box::new(move || {
            update_ages(&scraped, &*now);
            true
        }));
        Self { factory, clock, families: Families::new(registry), ages, caches: RwLock::default() }
    }

    /// Exports the result of `estimate` as the size of the cache called `name`.
    pub(super) fn export_size(
        &self,
        name: &str,
        estimate: impl Fn() -> usize + Send + Sync + 'static,
        registry: &Registry,
    ) {
        let bytes = self.families.bytes.with([Gvr::of_informer(name).resource]);
        registry.on_scrape(Box::new(move || {
            bytes.set(estimate() as f64);
            true
        }));
    }

    /// Calls `update` with the time series of the informer called `name`.
    fn with_cache(&self, name: &str, update: impl FnOnce(&Cache)) {
        let find = |cache: &&Cache| &*cache.name == name;
        if let Some(found) = self.caches.read().iter().find(find) {
            return update(found);
        }
        let mut caches = self.caches.write();
        if let Some(found) = caches.iter().find(find) {
            return update(found);
        }
        let cache = self.families.cache(self.factory, name);
        self.export_age(&cache, Gvr::of_informer(name).resource);
        update(&cache);
        caches.push(cache);
    }

    /// Exports the time since the last event of a cache.
    fn export_age(&self, cache: &Cache, resource: &str) {
        cache.record_event(&*self.clock);
        let age =
            Age { gauge: self.families.age.with([resource]), last_event: Arc::clone(&cache.last_event) };
        self.ages.lock().push(age);
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
                "Events that wait to be applied to the cache. Always 0: events are applied directly.",
            )),
            processing: registry.metric(
                upstream(
                    "informer_processing_latency_seconds",
                    "Duration of applying an event to the cache and of calling all handlers, in seconds.",
                )
                .buckets(PROCESSING),
            ),
            version: registry.metric(upstream(
                "informer_store_resource_version",
                "Last 15 digits of the newest resource version in the cache.",
            )),
            objects: registry.metric(own("kcm_cache_objects", "Objects in the cache.")),
            bytes: registry
                .metric(own("kcm_cache_bytes", "Estimated memory of the cached objects, in bytes.")),
            age: registry.metric(own(
                "kcm_cache_last_event_age_seconds",
                "Time since the last event, bookmark or list, in seconds.",
            )),
            lists: registry
                .metric(own("kcm_cache_lists_total", "Lists that filled the cache, including the first.")),
            relists: registry
                .metric(own("kcm_cache_relists_total", "Relists because a watch could not be resumed.")),
            watches: registry.metric(own("kcm_cache_watches_total", "Watches opened.")),
            short_watches: registry.metric(own(
                "kcm_cache_short_watches_total",
                "Watches that ended within a second without an event.",
            )),
            failures: registry.metric(Spec::own(
                "kcm_cache_request_failures_total",
                ["code", "resource"],
                "Failed lists and watches by status code of the response, <error> without a valid response.",
            )),
            undecodable: registry.metric(own(
                "kcm_cache_undecodable_objects_total",
                "Objects that could not be decoded and are not in the cache.",
            )),
        }
    }

    fn cache(&self, factory: &str, name: &str) -> Cache {
        let Gvr { group, version, resource } = Gvr::of_informer(name);
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
            last_event: Arc::default(),
        }
    }
}

impl Cache {
    fn record_event(&self, clock: &dyn Clock) {
        let now = u64::try_from(clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
        self.last_event.store(now, Ordering::Relaxed);
    }
}

impl InformerMetrics for Informers {
    fn store_changed(&self, informer: &str, objects: usize, resource_version: &str) {
        self.with_cache(informer, |cache| {
            cache.objects.set(objects as f64);
            if let Some(version) = last_digits(resource_version) {
                cache.version.set(version);
            }
            cache.record_event(&*self.clock);
        });
    }

    fn listed(&self, informer: &str, relist: bool) {
        self.with_cache(informer, |cache| {
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
            _ => NO_RESPONSE,
        };
        self.families.failures.with([code, Gvr::of_informer(informer).resource]).inc();
    }

    fn watch_started(&self, informer: &str) {
        self.with_cache(informer, |cache| cache.watches.inc());
    }

    fn records_durations(&self) -> bool {
        true
    }

    fn processed(&self, informer: &str, took: Duration) {
        self.with_cache(informer, |cache| cache.processing.observe_seconds(took));
    }

    fn watch_ended(&self, informer: &str, lasted: Duration, events: u64) {
        if events == 0 && lasted < SHORT_WATCH {
            self.with_cache(informer, |cache| cache.short_watches.inc());
        }
    }

    fn undecodable(&self, informer: &str) {
        self.with_cache(informer, |cache| cache.undecodable.inc());
    }
}

fn last_digits(version: &str) -> Option<f64> {
    let from = version.len().saturating_sub(VERSION_DIGITS);
    version.get(from..)?.parse::<u64>().ok().map(|number| number as f64)
}

/// Group, version and resource of an informer.
#[derive(Debug, PartialEq, Eq)]
struct Gvr<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
}

impl<'a> Gvr<'a> {
    /// Parses the name of an informer: a resource of this project's controllers or of the core group, or
    /// `resource.version.group`.
    fn of_informer(name: &'a str) -> Self {
        let core = |resource| Self { group: "", version: "v1", resource };
        match name {
            "deployments" | "replicasets" => Self { group: "apps", ..core(name) },
            name if !name.contains('.') => core(name),
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
    fn parses_names_of_informers() {
        let gvr = |group, version, resource| Gvr { group, version, resource };
        assert_eq!(Gvr::of_informer("pods"), gvr("", "v1", "pods"));
        assert_eq!(Gvr::of_informer("replicasets"), gvr("apps", "v1", "replicasets"));
        assert_eq!(
            Gvr::of_informer("leases.v1.coordination.k8s.io"),
            gvr("coordination.k8s.io", "v1", "leases")
        );
        assert_eq!(Gvr::of_informer("services"), gvr("", "v1", "services"));
    }

    #[test]
    fn exports_the_last_digits_of_versions() {
        assert_eq!(last_digits("42"), Some(42.0));
        assert_eq!(last_digits("1234567890123456789"), Some(567_890_123_456_789.0));
        assert_eq!(last_digits(""), None);
        assert_eq!(last_digits("abc"), None);
    }
}
