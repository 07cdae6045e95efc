//! Checks the invariants on the embedded API server while a story is played.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use jiff::Timestamp;
use kcm_apiserver::{ApiServer, AuditEvent, WatchEvent, WatchStart, Watcher};
use kcm_invariants::{Basis, Change, Entry, Exemption, Invariants, Violation};
use kcm_runtime::SyncMetrics;
use parking_lot::Mutex;

use crate::summary::WriteCounts;

/// Observes all writes, of the manager and of other clients, in the order in which they take effect.
#[derive(Default)]
pub struct InvariantChecker(Mutex<State>);

/// Counts the syncs of all controllers.
#[derive(Debug, Default)]
pub(crate) struct Syncs(AtomicU64);

impl SyncMetrics for Syncs {
    fn started(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct State {
    syncs: Arc<Syncs>,
    /// Changes that have not been processed yet.
    watcher: Option<Watcher>,
    invariants: Invariants,
    counts: WriteCounts,
}

impl InvariantChecker {
    pub(crate) fn watch(&self, server: &ApiServer) {
        self.0.lock().watcher = Some(server.watch_everything(WatchStart::Now));
    }

    /// Handles a served request. `of_manager` is its entry if the manager sent it.
    pub(crate) fn handle(&self, event: &AuditEvent, of_manager: Option<&Entry>) {
        if event.revision_after == event.revision_before && of_manager.is_none() {
            return;
        }
        let mut state = self.0.lock();
        let caused = state.catch_up(event.received, event.revision_before..event.revision_after);
        if let Some(write) = of_manager {
            state.counts.write(write);
            let changes: Vec<Change<'_>> = caused.iter().filter_map(change).collect();
            state.invariants.check_write(write, &changes, Basis::current(event.received));
        } else {
            for event_of in &caused {
                state.others(event_of, event.received);
            }
        }
    }

    pub(crate) fn begin_step(&self, place: &str) {
        let mut state = self.0.lock();
        let syncs = state.syncs.0.load(Ordering::Relaxed);
        state.invariants.begin_step(place, syncs);
    }

    pub(crate) fn end(&self) {
        let mut state = self.0.lock();
        let syncs = state.syncs.0.load(Ordering::Relaxed);
        state.invariants.end_step(syncs);
    }

    /// Metrics that count the syncs of the manager.
    pub(crate) fn syncs(&self) -> Arc<dyn SyncMetrics> {
        Arc::clone(&self.0.lock().syncs) as _
    }

    pub(crate) fn unsettled(&self, write: Option<&Entry>) {
        self.0.lock().invariants.report_unsettled(write);
    }

    /// Counts up to the last request.
    pub fn counts(&self) -> WriteCounts {
        self.0.lock().counts.clone()
    }

    /// Violations so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.0.lock().invariants.violations().to_vec()
    }

    /// Violations so far, without the exempt invariants.
    pub fn violations_except(&self, exempt: &[Exemption]) -> Vec<Violation> {
        let is_exempt = |violation: &Violation| exempt.iter().any(|one| one.invariant == violation.invariant);
        self.violations().into_iter().filter(|violation| !is_exempt(violation)).collect()
    }
}

impl State {
    /// Processes all pending changes. Returns those with a revision in `revisions`, which the caller must check.
    fn catch_up(&mut self, now: Timestamp, revisions: std::ops::Range<u64>) -> Vec<WatchEvent> {
        let mut caused = Vec::new();
        // The watch cannot expire: the server keeps more history than there are writes between two requests.
        while let Some(event) = self.watcher.as_mut().and_then(|watcher| watcher.try_next().ok().flatten()) {
            self.counts.event(&event);
            if event.revision() > revisions.start && event.revision() <= revisions.end {
                caused.push(event);
            } else {
                self.others(&event, now);
            }
        }
        caused
    }

    fn others(&mut self, event: &WatchEvent, now: Timestamp) {
        if let Some(change) = change(event) {
            self.invariants.observe_change(change, now);
        }
    }
}

fn change(event: &WatchEvent) -> Option<Change<'_>> {
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => Some(Change::Applied(object.value())),
        WatchEvent::Deleted(object) => Some(Change::Deleted(object.value())),
        WatchEvent::InitialEventsEnd(_) => None,
    }
}

impl fmt::Debug for InvariantChecker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InvariantChecker").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use kcm_client::{ClientFactory, ClientOptions, RateLimit, Request, UserAgent};
    use serde_json::json;

    use super::*;
    use kcm_invariants::Invariant;

    use kcm_apiserver::Faults;

    use crate::InProcess;

    /// All clients except the story and the simulated components are the manager. Here, a manager that violates invariants.
    #[tokio::test(start_paused = true)]
    async fn violations_of_the_manager_are_detected_and_the_story_is_ignored() {
        let in_process = InProcess::new(1, None, Faults::default()).await.unwrap();
        let story = in_process.cluster.api();
        let options = ClientOptions::new(UserAgent::new("rogue", "v0", ""), in_process.cluster.clock());
        let rogue = ClientFactory::in_process(in_process.server.service(), options);
        let rogue = rogue.client("rogue", RateLimit::UNLIMITED);

        let template = json!({
            "metadata": {"labels": {"app": "rs"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "rs"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "rs"}}, "template": template},
        });
        let sets = "/apis/apps/v1/namespaces/default/replicasets";
        let made = story.send(&Request::post(sets, set.to_string())).await.unwrap();
        let made: serde_json::Value = serde_json::from_slice(&made).unwrap();
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": made["metadata"]["uid"],
            "controller": true,
        });
        let mut pod = template.clone();
        pod["metadata"]["generateName"] = json!("rs-");
        pod["metadata"]["ownerReferences"] = json!([owner]);
        let create = Request::post("/api/v1/namespaces/default/pods", pod.to_string());
        let broken = || -> Vec<Invariant> {
            in_process.checker.violations().iter().map(|violation| violation.invariant).collect()
        };

        rogue.send(&create).await.unwrap();
        assert_eq!(broken(), []);
        story.send(&create).await.unwrap();
        assert_eq!(broken(), [], "the manager did not create it");
        rogue.send(&create).await.unwrap();
        assert_eq!(broken(), [Invariant::SurplusPods]);
        let same = Request::strategic_merge_patch(format!("{sets}/rs"), "{}");
        rogue.send(&same).await.unwrap();
        assert_eq!(broken(), [Invariant::SurplusPods, Invariant::IdleWrite]);
        assert_eq!(in_process.checker.counts().created.get("Pod"), Some(&3));

        let exempt = Exemption { invariant: Invariant::SurplusPods, reason: "a test".to_owned() };
        let left = in_process.checker.violations_except(&[exempt]);
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
