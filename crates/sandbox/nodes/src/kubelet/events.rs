//! Events of the simulated kubelet, counted and limited as by client-go's event correlator.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use kcm_apiserver::Object;
use kcm_clock::Timestamp;
use tracing::debug;

use crate::api::{Api, EventDraft, field};

/// Events of one object that are recorded without a limit of their rate.
const BURST: f64 = 25.0;
/// Time in which one more event of the object is allowed.
const REFILL: Duration = Duration::from_secs(300);

/// Records events. Equal events are counted in one object.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Recorded events, by UID of the pod.
    pods: HashMap<String, PodEvents>,
    created: u64,
}

#[derive(Debug)]
struct PodEvents {
    recorded: BTreeMap<EventDraft, Recorded>,
    tokens: f64,
    refilled: Timestamp,
}

#[derive(Debug)]
struct Recorded {
    name: String,
    count: u32,
}

impl Events {
    /// Records an event about the pod, or counts it if it was recorded before.
    pub(super) fn record(&mut self, api: &Api, pod: &Object, draft: EventDraft) {
        let now = api.timestamp();
        let events = self.pods.entry(pod.uid().to_owned()).or_insert_with(|| PodEvents {
            recorded: BTreeMap::new(),
            tokens: BURST,
            refilled: now,
        });
        let elapsed = Duration::try_from(now.duration_since(events.refilled)).unwrap_or_default();
        events.tokens = (events.tokens + elapsed.as_secs_f64() / REFILL.as_secs_f64()).min(BURST);
        events.refilled = now;
        if events.tokens < 1.0 {
            return;
        }
        events.tokens -= 1.0;
        if let Some(recorded) = events.recorded.get_mut(&draft) {
            recorded.count += 1;
            if let Err(error) = api.count_event(pod, &recorded.name, recorded.count) {
                debug!(?pod, %error, "Failed to count event");
            }
            return;
        }
        self.created += 1;
        let host = field(pod.value(), "/spec/nodeName");
        if let Some(name) = api.record_event(pod, &draft, host, self.created) {
            events.recorded.insert(draft, Recorded { name, count: 1 });
        }
    }

    /// Forgets the events of a removed pod.
    pub(super) fn forget(&mut self, uid: &str) {
        self.pods.remove(uid);
    }
}
