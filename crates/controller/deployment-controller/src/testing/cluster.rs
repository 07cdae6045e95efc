//! Fake cluster with one Deployment and its ReplicaSets, and with the resource versions of an API server.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use kcm_api::{ApiError, Deployment, ObjectKey, ReplicaSet, Time, error::reason};
use kcm_clock::Timestamp;

use super::{START, template};
use crate::{
    error::SyncError,
    plan::{Action, ActionResult, Plan, PlanEnd, PlannedAction, SyncOutcome, plan},
    view::View,
};

/// One Deployment, its ReplicaSets, and the transcript of its syncs.
pub(crate) struct FakeCluster {
    pub(crate) deployment: Deployment,
    pub(crate) sets: BTreeMap<String, ReplicaSet>,
    /// Errors of the next writes, by the beginning of the action's text. The writes are not executed.
    pub(crate) write_errors: Vec<(&'static str, ApiError)>,
    /// Errors of the next writes, by the beginning of the action's text. The writes are executed.
    pub(crate) lost_responses: Vec<(&'static str, ApiError)>,
    /// See [`View::coalesce_status_writes`].
    pub(crate) coalesce_status_writes: bool,
    /// If `true`, the cache does not contain the ReplicaSets.
    pub(crate) cache_is_stale: bool,
    /// If `true`, a ReplicaSet whose name prevents a create cannot be read.
    pub(crate) existing_is_unreadable: bool,
    /// Number of writes that failed because of their resource version.
    pub(crate) conflicts: usize,
    /// Actions of the last sync.
    pub(crate) last_actions: Vec<PlannedAction>,
    /// Plans of all syncs.
    pub(crate) transcript: String,
    seconds: i64,
    version: u64,
}

impl FakeCluster {
    pub(crate) fn new(deployment: Deployment) -> Self {
        Self {
            deployment,
            sets: BTreeMap::new(),
            write_errors: Vec::new(),
            lost_responses: Vec::new(),
            coalesce_status_writes: true,
            cache_is_stale: false,
            existing_is_unreadable: false,
            conflicts: 0,
            last_actions: Vec::new(),
            transcript: String::new(),
            seconds: 0,
            version: 100,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Time::from_unix(START + self.seconds).timestamp()
    }

    pub(crate) fn advance(&mut self, seconds: i64) {
        self.seconds += seconds;
    }

    /// Changes the spec or the annotations of the Deployment, as a user does.
    pub(crate) fn edit(&mut self, title: &str, edit: impl FnOnce(&mut Deployment)) {
        edit(&mut self.deployment);
        self.deployment.metadata.generation += 1;
        self.deployment.metadata.resource_version = self.next_version();
        writeln!(self.transcript, "\n== {title}").unwrap();
    }

    pub(crate) fn set_image(&mut self, image: &str) {
        self.edit(&format!("image {image}"), |d| d.spec.template = template(image));
    }

    /// Updates the status of the ReplicaSets as if they had all their pods. At most `ready` pods become available.
    pub(crate) fn run_replica_sets(&mut self, ready: i32) {
        let mut left = ready;
        let names: Vec<String> = self.sets.keys().cloned().collect();
        for name in names {
            let version = self.next_version();
            let Some(set) = self.sets.get_mut(&name) else { continue };
            let size = set.replicas();
            let available = set.status.available_replicas.min(size);
            let more = (size - available).clamp(0, left.max(0));
            left -= more;
            set.status.replicas = size;
            set.status.fully_labeled_replicas = size;
            set.status.ready_replicas = available + more;
            set.status.available_replicas = available + more;
            set.status.terminating_replicas = Some(0);
            set.status.observed_generation = set.metadata.generation;
            set.metadata.resource_version = version;
        }
    }

    /// Returns the ReplicaSet with this image.
    pub(crate) fn set(&self, image: &str) -> &ReplicaSet {
        let template = template(image);
        self.sets.values().find(|set| set.spec.template.equal_ignore_hash(&template)).unwrap()
    }

    pub(crate) fn view(&self) -> View {
        let is_cached = |set: &&ReplicaSet| {
            !self.cache_is_stale
                && set.metadata.controller().is_some_and(|owner| owner.uid == self.deployment.metadata.uid)
        };
        let sets = self.sets.values().filter(is_cached);
        let running = sets.clone().filter(|set| set.status.replicas > 0);
        View {
            deployment: Arc::new(self.deployment.clone()),
            running: running.map(|set| Arc::clone(&set.metadata.uid)).collect(),
            unobserved_scale_downs: BTreeSet::new(),
            replica_sets: sets.cloned().map(Arc::new).collect(),
            terminating_replicas: true,
            coalesce_status_writes: self.coalesce_status_writes,
        }
    }

    /// Plans a sync and performs its actions.
    pub(crate) fn sync(&mut self) -> Result<SyncOutcome, SyncError> {
        let (view, now) = (self.view(), self.now());
        let mut results = Vec::new();
        let mut performed: Vec<String> = Vec::new();
        loop {
            let plan = plan(&view, &results, now);
            let lines: Vec<String> = plan.actions.iter().map(ToString::to_string).collect();
            assert!(lines.starts_with(&performed), "{lines:#?}\ndoes not begin with\n{performed:#?}");
            let mut succeeded = true;
            for planned in &plan.actions[results.len()..] {
                let result = self.perform(&planned.action);
                succeeded = !result.is_failure();
                results.push(result);
                if !succeeded {
                    break;
                }
            }
            performed = lines[..results.len()].to_vec();
            if succeeded && let PlanEnd::Done(outcome) = &plan.end {
                let seconds = self.seconds;
                writeln!(self.transcript, "\nsync at {seconds} s\n{}", with_failures(&plan, &results))
                    .unwrap();
                let outcome = outcome.clone();
                self.last_actions = plan.actions;
                return outcome;
            }
        }
    }

    /// Repeats the sync and [`run_replica_sets`](Self::run_replica_sets) until nothing changes.
    pub(crate) fn settle(&mut self, ready: i32) {
        for _ in 0..100 {
            let before = (self.deployment.clone(), self.sets.clone());
            self.sync().unwrap();
            self.run_replica_sets(ready);
            let statuses = |sets: &BTreeMap<String, ReplicaSet>| {
                sets.iter().map(|(name, set)| (name.clone(), set.status.clone())).collect::<Vec<_>>()
            };
            if before.0 == self.deployment && statuses(&before.1) == statuses(&self.sets) {
                return;
            }
            self.advance(1);
        }
        panic!("does not settle:\n{}", self.transcript);
    }

    pub(crate) fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// Performs `action` and returns its result.
    pub(crate) fn perform(&mut self, action: &Action) -> ActionResult {
        let text = action.to_string();
        if let Some(at) = self.write_errors.iter().position(|(prefix, _)| text.starts_with(prefix)) {
            return match self.write_errors.remove(at).1 {
                error if error.is_already_exists() => ActionResult::AlreadyExists { error, existing: None },
                error => ActionResult::Failed(error),
            };
        }
        if let Some(at) = self.lost_responses.iter().position(|(prefix, _)| text.starts_with(prefix)) {
            let (_, error) = self.lost_responses.remove(at);
            self.perform(action);
            return ActionResult::Failed(error);
        }
        match action {
            Action::CreateReplicaSet(sent) => self.create(sent),
            Action::UpdateReplicaSet(sent) => self.update_set(sent),
            Action::DeleteReplicaSet(set) => match self.sets.remove(&*set.metadata.name) {
                Some(_) => ActionResult::Done,
                None => ActionResult::Failed(ApiError::status(404, reason::NOT_FOUND, "not found")),
            },
            Action::UpdateDeployment(sent) | Action::UpdateDeploymentStatus(sent) => {
                if sent.metadata.resource_version != self.deployment.metadata.resource_version {
                    return self.conflict(&sent.metadata.key());
                }
                let mut next = (**sent).clone();
                if matches!(action, Action::UpdateDeploymentStatus(_)) {
                    next.spec = self.deployment.spec.clone();
                } else {
                    next.status = self.deployment.status.clone();
                    if next != self.deployment {
                        next.metadata.generation += 1;
                    }
                }
                if next != self.deployment {
                    next.metadata.resource_version = self.next_version();
                }
                self.deployment = next.clone();
                ActionResult::Deployment(Arc::new(next))
            }
            Action::RecordEvent { .. } => ActionResult::Done,
        }
    }

    fn create(&mut self, sent: &ReplicaSet) -> ActionResult {
        let name = sent.metadata.name.to_string();
        if let Some(existing) = self.sets.get(&name) {
            let existing = (!self.existing_is_unreadable).then(|| Arc::new(existing.clone()));
            let error = ApiError::status(409, reason::ALREADY_EXISTS, format!("\"{name}\" already exists"));
            return ActionResult::AlreadyExists { error, existing };
        }
        let mut set = sent.clone();
        set.metadata.uid = format!("uid-of-{name}").into();
        set.metadata.resource_version = self.next_version();
        set.metadata.generation = 1;
        set.metadata.creation_timestamp = Some(self.now().into());
        self.sets.insert(name, set.clone());
        ActionResult::ReplicaSet(Arc::new(set))
    }

    fn update_set(&mut self, sent: &ReplicaSet) -> ActionResult {
        let version = self.next_version();
        let Some(stored) = self.sets.get_mut(&*sent.metadata.name) else {
            return ActionResult::Failed(ApiError::status(404, reason::NOT_FOUND, "not found"));
        };
        if stored.metadata.resource_version != sent.metadata.resource_version {
            return self.conflict(&sent.metadata.key());
        }
        let mut next = sent.clone();
        next.status = stored.status.clone();
        if next.spec != stored.spec {
            next.metadata.generation += 1;
        }
        next.metadata.resource_version = version;
        *stored = next.clone();
        ActionResult::ReplicaSet(Arc::new(next))
    }

    fn conflict(&mut self, key: &ObjectKey) -> ActionResult {
        self.conflicts += 1;
        let message = format!("Operation cannot be fulfilled on {key}: the object has been modified");
        ActionResult::Failed(ApiError::status(409, reason::CONFLICT, message))
    }
}

/// Returns the text of the plan. Failed actions are marked.
fn with_failures(plan: &Plan, results: &[ActionResult]) -> String {
    let text = plan.to_string();
    let marks = results.iter().map(|result| if result.is_failure() { " [failed]" } else { "" });
    let mut marks = marks.chain(std::iter::repeat(""));
    text.lines()
        .map(|line| format!("{line}{}", marks.next().unwrap_or_default()))
        .collect::<Vec<_>>()
        .join("\n")
}
