//! Holds the invariants against a server of this process while a story is played.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use jiff::Timestamp;
use kcm_apiserver::{ApiServer, AuditEvent, WatchEvent, WatchStart, Watcher};
use kcm_controller_util::SyncMetrics;
use parking_lot::Mutex;

use crate::{
    invariants::{Basis, Change, Exemption, Invariants, Violation},
    outcome::Tally,
    trail::Entry,
};

/// Sees every write, the manager's and everybody else's, in the order in which they took effect.
#[derive(Default)]
pub struct Guard(Mutex<State>);

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
    /// What has happened and was not looked at yet.
    watcher: Option<Watcher>,
    invariants: Invariants,
    tally: Tally,
}

impl Guard {
    pub(crate) fn watch(&self, server: &ApiServer) {
        self.0.lock().watcher = Some(server.watch_everything(WatchStart::Now));
    }

    /// A request was served: the manager's, if it has an entry.
    pub(crate) fn tell(&self, event: &AuditEvent, of_manager: Option<&Entry>) {
        if event.revision_after == event.revision_before && of_manager.is_none() {
            return;
        }
        let mut state = self.0.lock();
        let caused = state.catch_up(event.received, event.revision_before..event.revision_after);
        if let Some(write) = of_manager {
            state.tally.write(write);
            let changes: Vec<Change<'_>> = caused.iter().filter_map(change).collect();
            state.invariants.manager(write, &changes, Basis::current(event.received));
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

    /// Who is to be told of the manager's syncs.
    pub(crate) fn syncs(&self) -> Arc<dyn SyncMetrics> {
        Arc::clone(&self.0.lock().syncs) as _
    }

    pub(crate) fn restarted(&self) {
        self.0.lock().invariants.restarted();
    }

    pub(crate) fn unsettled(&self, write: Option<&Entry>) {
        self.0.lock().invariants.unsettled(write);
    }

    /// What was counted so far, up to the last request.
    pub fn tally(&self) -> Tally {
        self.0.lock().tally.clone()
    }

    /// What did not hold so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.0.lock().invariants.violations().to_vec()
    }

    /// What did not hold so far, and should have in a story with these exemptions.
    pub fn violations_but(&self, exempt: &[Exemption]) -> Vec<Violation> {
        let is_exempt = |violation: &Violation| exempt.iter().any(|one| one.invariant == violation.invariant);
        self.violations().into_iter().filter(|violation| !is_exempt(violation)).collect()
    }
}

impl State {
    /// Takes in what has happened; answers what happened in `revisions`, which is left to the caller to judge.
    fn catch_up(&mut self, now: Timestamp, revisions: std::ops::Range<u64>) -> Vec<WatchEvent> {
        let mut caused = Vec::new();
        // A server of this process keeps more history than there are writes between two requests.
        while let Some(event) = self.watcher.as_mut().and_then(|watcher| watcher.try_next().ok().flatten()) {
            self.tally.event(&event);
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
            self.invariants.others(change, now);
        }
    }
}

fn change(event: &WatchEvent) -> Option<Change<'_>> {
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => Some(Change::Is(object.value())),
        WatchEvent::Deleted(object) => Some(Change::Gone(object.value())),
        WatchEvent::InitialEventsEnd(_) => None,
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use kcm_client::{ClientFactory, ClientOptions, RateLimit, Request, UserAgent};
    use serde_json::json;

    use super::*;
    use crate::{InProcess, InProcessConfig, invariants::Invariant};

    /// What is neither the story nor the cluster is the manager: here somebody who breaks what can be broken.
    #[tokio::test(start_paused = true)]
    async fn rogue_manager_is_caught_at_each_write_and_the_story_is_not() {
        let cluster = InProcess::new(InProcessConfig::new(1)).await.unwrap();
        let story = cluster.world.api();
        let options = ClientOptions::new(UserAgent::new("rogue", "v0", ""), cluster.world.clock());
        let rogue = ClientFactory::in_process(cluster.server.service(), options);
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
            cluster.guard.violations().iter().map(|violation| violation.invariant).collect()
        };

        rogue.send(&create).await.unwrap();
        assert_eq!(broken(), []);
        story.send(&create).await.unwrap();
        assert_eq!(broken(), [], "it is not the manager's");
        rogue.send(&create).await.unwrap();
        assert_eq!(broken(), [Invariant::SurplusPods]);
        let same = Request::strategic_merge_patch(format!("{sets}/rs"), "{}");
        rogue.send(&same).await.unwrap();
        assert_eq!(broken(), [Invariant::SurplusPods, Invariant::IdleWrite]);
        assert_eq!(cluster.guard.tally().created.get("Pod"), Some(&3));

        let exempt = Exemption { invariant: Invariant::SurplusPods, reason: "a test".to_owned() };
        let left = cluster.guard.violations_but(&[exempt]);
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
