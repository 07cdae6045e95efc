//! A world for tests: one Deployment, its ReplicaSets, and a server that keeps upstream's rules about versions.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use kcm_api::{ApiError, Deployment, ObjectKey, ReplicaSet, Time, error::reason};
use kcm_clock::Timestamp;

use super::{START, template};
use crate::{Action, Answer, End, Outcome, Plan, SyncError, View, plan};

/// See the module.
pub(crate) struct World {
    pub(crate) deployment: Deployment,
    pub(crate) sets: BTreeMap<String, ReplicaSet>,
    /// Errors for the next writes, by the beginning of what the action is called.
    pub(crate) refusals: Vec<(&'static str, ApiError)>,
    /// Errors in place of the answers to the next writes, which are executed, by the beginning of what the action is
    /// called.
    pub(crate) lost: Vec<(&'static str, ApiError)>,
    /// Whether the cache lags behind, so that a sync finds no ReplicaSets.
    pub(crate) unseen: bool,
    /// Whether it lags so far behind that it does not know who holds a name.
    pub(crate) holders_unseen: bool,
    /// How many writes were refused because they were built on an old version.
    pub(crate) conflicts: usize,
    /// All that was done, and why.
    pub(crate) transcript: String,
    seconds: i64,
    version: u64,
}

impl World {
    pub(crate) fn new(deployment: Deployment) -> Self {
        Self {
            deployment,
            sets: BTreeMap::new(),
            refusals: Vec::new(),
            lost: Vec::new(),
            unseen: false,
            holders_unseen: false,
            conflicts: 0,
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

    /// Somebody changes the Deployment's spec or annotations.
    pub(crate) fn edit(&mut self, what: &str, edit: impl FnOnce(&mut Deployment)) {
        edit(&mut self.deployment);
        self.deployment.metadata.generation += 1;
        self.deployment.metadata.resource_version = self.next_version();
        writeln!(self.transcript, "\n== {what}").unwrap();
    }

    pub(crate) fn set_image(&mut self, image: &str) {
        self.edit(&format!("image {image}"), |d| d.spec.template = template(image));
    }

    /// The ReplicaSets come to have the pods that they are to have, `ready` of them at most becoming available.
    pub(crate) fn follow(&mut self, ready: i32) {
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

    /// The ReplicaSet with this image.
    pub(crate) fn set(&self, image: &str) -> &ReplicaSet {
        let template = template(image);
        self.sets.values().find(|set| set.spec.template.equal_ignore_hash(&template)).unwrap()
    }

    pub(crate) fn view(&self) -> View {
        let ours = |set: &&ReplicaSet| {
            !self.unseen
                && set.metadata.controller().is_some_and(|owner| owner.uid == self.deployment.metadata.uid)
        };
        let sets = self.sets.values().filter(ours);
        let running = sets.clone().filter(|set| set.status.replicas > 0);
        View {
            deployment: Arc::new(self.deployment.clone()),
            running: running.map(|set| Arc::clone(set.uid())).collect(),
            replica_sets: sets.cloned().map(Arc::new).collect(),
            terminating_replicas: true,
        }
    }

    /// One sync, planned and carried out.
    pub(crate) fn sync(&mut self) -> Result<Outcome, SyncError> {
        let (view, now) = (self.view(), self.now());
        let mut answers = Vec::new();
        let mut before: Vec<String> = Vec::new();
        loop {
            let plan = plan(&view, &answers, now);
            let lines: Vec<String> = plan.actions.iter().map(ToString::to_string).collect();
            assert!(lines.starts_with(&before), "{lines:#?}\ndoes not begin as\n{before:#?}");
            let mut all_well = true;
            for planned in &plan.actions[answers.len()..] {
                let answer = self.answer(&planned.action);
                all_well = !answer.is_failure();
                answers.push(answer);
                if !all_well {
                    break;
                }
            }
            before = lines[..answers.len()].to_vec();
            if all_well && let End::Done(outcome) = &plan.end {
                let since = self.seconds;
                writeln!(self.transcript, "\nsync at {since} s\n{}", with_failures(&plan, &answers)).unwrap();
                return outcome.clone();
            }
        }
    }

    /// Syncs and follows until nothing is left to do; `ready` pods become available each time.
    pub(crate) fn settle(&mut self, ready: i32) {
        for _ in 0..100 {
            let before = (self.deployment.clone(), self.sets.clone());
            self.sync().unwrap();
            self.follow(ready);
            let sizes = |sets: &BTreeMap<String, ReplicaSet>| {
                sets.iter().map(|(name, set)| (name.clone(), set.status.clone())).collect::<Vec<_>>()
            };
            if before.0 == self.deployment && sizes(&before.1) == sizes(&self.sets) {
                return;
            }
            self.advance(1);
        }
        panic!("never settles:\n{}", self.transcript);
    }

    pub(super) fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// What a server says to `action`, and what becomes of the world.
    pub(crate) fn answer(&mut self, action: &Action) -> Answer {
        let called = action.to_string();
        if let Some(at) = self.refusals.iter().position(|(what, _)| called.starts_with(what)) {
            return match self.refusals.remove(at).1 {
                error if error.is_already_exists() => Answer::NameTaken { error, holder: None },
                error => Answer::Failed(error),
            };
        }
        if let Some(at) = self.lost.iter().position(|(what, _)| called.starts_with(what)) {
            let (_, error) = self.lost.remove(at);
            self.answer(action);
            return Answer::Failed(error);
        }
        match action {
            Action::CreateReplicaSet(sent) => self.create(sent),
            Action::UpdateReplicaSet(sent) => self.update_set(sent),
            Action::DeleteReplicaSet(set) => match self.sets.remove(&*set.metadata.name) {
                Some(_) => Answer::Done,
                None => Answer::Failed(ApiError::status(404, reason::NOT_FOUND, "not found")),
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
                Answer::Deployment(Arc::new(next))
            }
            Action::Event(_) => Answer::Done,
        }
    }

    fn create(&mut self, sent: &ReplicaSet) -> Answer {
        let name = sent.metadata.name.to_string();
        if let Some(holder) = self.sets.get(&name) {
            let holder = (!self.holders_unseen).then(|| Arc::new(holder.clone()));
            let error = ApiError::status(409, reason::ALREADY_EXISTS, format!("\"{name}\" already exists"));
            return Answer::NameTaken { error, holder };
        }
        let mut set = sent.clone();
        set.metadata.uid = format!("uid-of-{name}").into();
        set.metadata.resource_version = self.next_version();
        set.metadata.generation = 1;
        set.metadata.creation_timestamp = Some(self.now().into());
        self.sets.insert(name, set.clone());
        Answer::ReplicaSet(Arc::new(set))
    }

    fn update_set(&mut self, sent: &ReplicaSet) -> Answer {
        let version = self.next_version();
        let Some(stored) = self.sets.get_mut(&*sent.metadata.name) else {
            return Answer::Failed(ApiError::status(404, reason::NOT_FOUND, "not found"));
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
        Answer::ReplicaSet(Arc::new(next))
    }

    fn conflict(&mut self, key: &ObjectKey) -> Answer {
        self.conflicts += 1;
        let message = format!("Operation cannot be fulfilled on {key}: the object has been modified");
        Answer::Failed(ApiError::status(409, reason::CONFLICT, message))
    }
}

/// The plan, each failed action marked.
fn with_failures(plan: &Plan, answers: &[Answer]) -> String {
    let text = plan.to_string();
    let marks = answers.iter().map(|answer| if answer.is_failure() { " [failed]" } else { "" });
    let mut marks = marks.chain(std::iter::repeat(""));
    text.lines()
        .map(|line| format!("{line}{}", marks.next().unwrap_or_default()))
        .collect::<Vec<_>>()
        .join("\n")
}
