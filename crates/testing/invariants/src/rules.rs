//! Rules of the invariants.

use jiff::{SignedDuration, Timestamp};
use kcm_api::PodTemplate;
use serde_json::Value;

use crate::{
    Basis, Change, Entry, Finding, Invariant,
    model::{Before, Model, TrackedDeployment, TrackedReplicaSet},
    object_state::{
        Bounds, COMPLETE, DeploymentState, ObjectState, PodState, ReplicaSetState, Rollout, TIMED_OUT,
    },
};

/// Checks a change by the manager.
pub(crate) fn check_change(
    model: &Model,
    before: &Before,
    after: &ObjectState,
    change: Change<'_>,
    write: &Entry,
    basis: Basis,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let deleted = matches!(change, Change::Deleted(_)) || write.verb == "delete";
    match (&before.state, after) {
        (old, ObjectState::Pod(pod)) if deleted => {
            let old = if let Some(ObjectState::Pod(old)) = old { old } else { pod };
            findings.extend(needed_pod(model, old, basis));
        }
        (_, ObjectState::ReplicaSet(set)) if deleted => {
            findings.extend(replica_set_in_use(model, set, basis));
        }
        (None, ObjectState::Pod(pod)) => {
            findings.extend(surplus_pod(model, pod, basis));
            findings.extend(recreate_old_pods(model, pod, basis));
        }
        (old, ObjectState::ReplicaSet(new)) => {
            let old = if let Some(ObjectState::ReplicaSet(old)) = old { Some(old) } else { None };
            findings.extend(surplus_replicas(model, old, new, basis));
            findings.extend(noted_sizes(model, old, new, basis));
            findings.extend(recreate_overlap(model, old, new, basis));
            match old {
                Some(old) => {
                    findings.extend(availability(model, old, new, basis));
                    findings.extend(decreased_revision(new, "revision", old.revision, new.revision));
                    findings.extend(observed_generation(
                        &new.identity.describe(),
                        (old.observed, new.observed),
                        new.generation,
                    ));
                }
                None => {
                    findings.extend(newest_revision(model, new));
                    findings.extend(created_twice(model, new));
                }
            }
        }
        (Some(ObjectState::Deployment(old)), ObjectState::Deployment(new)) => {
            findings.extend(deployment_status(old, new));
            findings.extend(conditions(model, old, new));
            findings.extend(early_timeout(old, new, basis.now));
        }
        _ => {}
    }
    findings.extend(controller_changed(before, after));
    findings
}

/// Checks a request of the manager that changed nothing.
pub(crate) fn check_request(model: &Model, write: &Entry, changes: &[Change<'_>]) -> Option<Finding> {
    let is_controlled_resource = matches!(write.resource.as_str(), "deployments" | "replicasets" | "pods");
    let finding = |invariant, description: &str| {
        let object = format!("{} {}/{}", write.resource, write.namespace, write.name);
        Some(Finding { invariant, object, description: description.to_owned() })
    };
    if is_controlled_resource && write.code < 300 && changes.is_empty() {
        return finding(Invariant::IdleWrite, "the write changed nothing");
    }
    let is_conflict = write.verb == "create" && write.resource == "replicasets" && write.code == CONFLICT;
    let body = write.body.as_ref().filter(|_| is_conflict)?;
    let existing = model.set_named(&write.namespace, &write.name)?;
    let owner = body.pointer("/metadata/ownerReferences/0/uid").and_then(Value::as_str);
    if owner == existing.current.identity.controller()
        && same_template(&existing.current.template, &body["spec"]["template"])
    {
        return finding(Invariant::CreatedTwice, "the object exists");
    }
    None
}

/// `true` if a request counts for the bound of consecutive requests. The number of pods has its own rule, and events do not count. A create
/// of an existing pod repeats a create with a lost response, at most once per pod.
pub(crate) fn counts_as_effort(write: &Entry, changes: &[Change<'_>]) -> bool {
    match write.resource.as_str() {
        "deployments" | "replicasets" => true,
        "pods" => changes.is_empty() && !(write.verb == "create" && write.code == CONFLICT),
        _ => false,
    }
}

/// Status code of a create that fails because the object exists.
const CONFLICT: u16 = 409;

/// Checks the number of consecutive requests.
pub(crate) fn check_consecutive_writes(
    model: &Model,
    write: &Entry,
    consecutive_writes: usize,
) -> Option<Finding> {
    let max = MAX_CONSECUTIVE_WRITES + MAX_CONSECUTIVE_WRITES_PER_SET * model.count_sets();
    // Reported once.
    (consecutive_writes == max + 1).then(|| Finding {
        invariant: Invariant::Effort,
        object: format!("{} {}/{}", write.resource, write.namespace, write.name),
        description: format!("{consecutive_writes} consecutive writes without changes by other clients"),
    })
}

/// Bound of consecutive requests. A rollout step needs two writes of the Deployment and one of each ReplicaSet. Each may
/// fail with a conflict and be repeated, and all may be needed again for the resulting changes.
const MAX_CONSECUTIVE_WRITES: usize = 24;
const MAX_CONSECUTIVE_WRITES_PER_SET: usize = 6;

/// Checks the number of syncs.
pub(crate) fn check_syncs(syncs: u64, sync_triggers: usize) -> Option<Finding> {
    let max = MAX_SYNCS + MAX_SYNCS_PER_TRIGGER * sync_triggers;
    (syncs > max as u64).then(|| Finding {
        invariant: Invariant::Effort,
        object: "the manager".to_owned(),
        description: format!("{syncs} syncs in one step, for {sync_triggers} changes and requests"),
    })
}

/// Bound of syncs per step. A change of a pod or ReplicaSet enqueues its controller and the Deployment. A key may be requeued
/// until a cache is up to date, or until a deadline.
const MAX_SYNCS: usize = 32;
const MAX_SYNCS_PER_TRIGGER: usize = 3;

/// Checks that an object has at most one controller, independent of the writer.
pub(crate) fn two_controllers(state: &ObjectState) -> Option<Finding> {
    let identity = state.identity();
    (identity.controllers.len() > 1).then(|| Finding {
        invariant: Invariant::TwoControllers,
        object: identity.describe(),
        description: format!("controlled by {}", identity.controllers.join(" and ")),
    })
}

fn controller_changed(before: &Before, after: &ObjectState) -> Option<Finding> {
    let (old, new) = (before.state.as_ref()?.identity().controller()?, after.identity().controller()?);
    (old != new).then(|| Finding {
        invariant: Invariant::TwoControllers,
        object: after.identity().describe(),
        description: format!("the controller changed from {old} to {new}"),
    })
}

fn surplus_pod(model: &Model, pod: &PodState, basis: Basis) -> Option<Finding> {
    let set = model.set(pod.identity.controller()?)?;
    let (active, replicas) = (model.pods_of(set).active, set.max_replicas(basis));
    (active - set.added(basis) > replicas).then(|| Finding {
        invariant: Invariant::SurplusPods,
        object: set.current.identity.describe(),
        description: format!("{active} pods, but {replicas} replicas"),
    })
}

fn needed_pod(model: &Model, pod: &PodState, basis: Basis) -> Option<Finding> {
    let Some(set) = pod.identity.controller().and_then(|uid| model.set(uid)) else {
        return Some(Finding {
            invariant: Invariant::DeletedInUse,
            object: pod.identity.describe(),
            description: "no ReplicaSet controls it".to_owned(),
        });
    };
    if !pod.is_active() {
        return None;
    }
    let (left, replicas) = (set.with_removed(model.pods_of(set), basis), set.min_replicas(basis));
    let was_unready = model.was_unready(&pod.identity.uid, basis);
    let description = if left.active < replicas {
        format!("{} pods left, but {replicas} replicas", left.active)
    } else if pod.ready && !was_unready && left.ready < replicas {
        format!("{} ready pods left of {}, but {replicas} replicas", left.ready, left.active)
    } else {
        return None;
    };
    Some(Finding { invariant: Invariant::NeededPods, object: set.current.identity.describe(), description })
}

fn surplus_replicas(
    model: &Model,
    old: Option<&ReplicaSetState>,
    new: &ReplicaSetState,
    basis: Basis,
) -> Option<Finding> {
    let deployment = model.deployment_of(new)?;
    if new.replicas <= old.map_or(0, |old| old.replicas) {
        return None;
    }
    let size = |set: &TrackedReplicaSet| {
        let is_new = set.current.identity.uid == new.identity.uid;
        if is_new { set.current.replicas } else { set.min_replicas_of_others(basis) }
    };
    let sum: i32 = model.sets_of(deployment).map(size).sum();
    let max_replicas = deployment.bounds(basis).map(|bounds| bounds.max_replicas).max()?;
    (sum > max_replicas).then(|| Finding {
        invariant: Invariant::SurplusReplicas,
        object: deployment.current.identity.describe(),
        description: format!("its ReplicaSets have {sum} replicas, at most {max_replicas} are allowed"),
    })
}

fn noted_sizes(
    model: &Model,
    old: Option<&ReplicaSetState>,
    new: &ReplicaSetState,
    basis: Basis,
) -> Option<Finding> {
    let deployment = model.deployment_of(new)?;
    let noted = (new.desired, new.desired_max);
    let is_noted = |bounds: Bounds| {
        let max = i64::from(bounds.replicas) + i64::from(bounds.surge);
        noted == (Some(bounds.replicas.into()), Some(max))
    };
    let is_scaled = old.is_none_or(|old| old.replicas != new.replicas);
    (is_scaled && !deployment.bounds(basis).any(is_noted)).then(|| Finding {
        invariant: Invariant::NotedSizes,
        object: new.identity.describe(),
        description: format!("the annotations contain the sizes {noted:?}"),
    })
}

fn availability(
    model: &Model,
    old: &ReplicaSetState,
    new: &ReplicaSetState,
    basis: Basis,
) -> Option<Finding> {
    let deployment = model.deployment_of(new)?;
    if new.replicas >= old.replicas || is_scaled_in_proportion(model, deployment, old, new, basis) {
        return None;
    }
    // A ReplicaSet that was scaled down reports its former available pods until its next status (US-4.9). It is scaled down further
    // only if the cleanup of unhealthy replicas has ended before, at another ReplicaSet.
    let mut others = other_sets(model, deployment, new, basis);
    if old.available > old.replicas
        && old.observed < old.generation
        && others.any(|set| set.has_shrunk(basis))
    {
        return None;
    }
    let min_available = deployment.bounds(basis).map(|bounds| bounds.min_available).min()?;
    let counted = |replicas: i32, available: i32| replicas.min(available);
    // Number of available pods left, if the change reduces it below the minimum. `available` gives it per ReplicaSet.
    let below_minimum = |available: &dyn Fn(&TrackedReplicaSet) -> i32| {
        let available_of_set = model.set(&new.identity.uid).map_or(0, available);
        let reduces = counted(new.replicas, available_of_set) < counted(old.replicas, available_of_set);
        // The other ReplicaSets count with the available pods in their status, as upstream (US-4.9): one that was scaled down
        // still reports its surplus pods.
        let released: i32 =
            Model::released_sets_of(deployment, basis).map(|set| set.last.current.available).sum();
        let left = model.sets_of(deployment).map(|set| match set.current.identity.uid == new.identity.uid {
            true => counted(new.replicas, available_of_set),
            false => available(set),
        });
        let left = left.sum::<i32>() + released;
        (reduces && left < min_available).then_some(left)
    };
    // A violation must be wrong for the current state and for the state shortly before.
    let left = below_minimum(&|set| set.current.available).and(below_minimum(&|set| set.available(basis)))?;
    Some(Finding {
        invariant: Invariant::Availability,
        object: deployment.current.identity.describe(),
        description: format!("{left} available pods left, at least {min_available} required"),
    })
}

/// ReplicaSets of `deployment` other than `new` that a writer may consider, also those that were released.
fn other_sets<'a>(
    model: &'a Model,
    deployment: &'a TrackedDeployment,
    new: &'a ReplicaSetState,
    basis: Basis,
) -> impl Iterator<Item = &'a TrackedReplicaSet> {
    let released = Model::released_sets_of(deployment, basis).map(|released| &released.last);
    model.sets_of(deployment).chain(released).filter(is_other(new))
}

/// Filter for ReplicaSets other than `set`.
fn is_other(set: &ReplicaSetState) -> impl Fn(&&TrackedReplicaSet) -> bool {
    |other| other.current.identity.uid != set.identity.uid
}

/// `true` if the ReplicaSets of `deployment` may be scaled, because the Deployment was scaled since one with replicas was.
fn may_be_scaling(
    model: &Model,
    deployment: &TrackedDeployment,
    old: &ReplicaSetState,
    new: &ReplicaSetState,
    basis: Basis,
) -> bool {
    (old.replicas > 0 && old.desired.is_some() && old.desired != new.desired)
        || other_sets(model, deployment, new, basis).any(|set| set.was_scaled_for_another(new.desired, basis))
}

/// `true` if the ReplicaSets of `deployment` may be scaled in proportion, and `old` is scaled down to `new` by that.
///
/// A ReplicaSet becomes smaller if the ReplicaSets have more replicas than are allowed, or if one of them was scaled when more were
/// allowed. If none of them can grow, it loses at most the surplus.
fn is_scaled_in_proportion(
    model: &Model,
    deployment: &TrackedDeployment,
    old: &ReplicaSetState,
    new: &ReplicaSetState,
    basis: Basis,
) -> bool {
    if !may_be_scaling(model, deployment, old, new, basis) {
        return false;
    }
    let others = || {
        let others = other_sets(model, deployment, new, basis);
        others.filter(|set| set.max_replicas_of_others(basis) > 0)
    };
    let bounds = || deployment.bounds(basis).map(|bounds| bounds.max_replicas);
    let (least, most) = (bounds().min().unwrap_or(i32::MAX), bounds().max().unwrap_or(i32::MAX));
    let sum_of = |size: fn(&TrackedReplicaSet, Basis) -> i32| {
        old.replicas + others().map(|set| size(set, basis)).sum::<i32>()
    };
    let most_replicas = sum_of(TrackedReplicaSet::max_replicas_of_others);
    let notes_less = |noted: Option<i64>| noted.is_none_or(|noted| noted < most.into());
    let may_grow = notes_less(old.desired_max)
        || others().any(|set| set.has_new_size(basis) || notes_less(set.current.desired_max));
    if !may_grow && sum_of(TrackedReplicaSet::min_replicas_of_others) > most {
        return old.replicas - new.replicas <= most_replicas - least;
    }
    let notes_more = |noted: Option<i64>| noted.is_some_and(|noted| noted > least.into());
    most_replicas > least
        || notes_more(old.desired_max)
        || others().any(|set| notes_more(set.current.desired_max))
}

fn recreate_overlap(
    model: &Model,
    old: Option<&ReplicaSetState>,
    new: &ReplicaSetState,
    basis: Basis,
) -> Option<Finding> {
    let deployment = model.deployment_of(new)?;
    if new.replicas <= old.map_or(0, |old| old.replicas) || !deployment.is_recreate(basis) {
        return None;
    }
    // The strategy Recreate does not apply to a sync that scales (US-4.7). That creates no ReplicaSet.
    if old.is_some_and(|old| may_be_scaling(model, deployment, old, new, basis)) {
        return None;
    }
    let others = model.sets_of(deployment).filter(is_other(new));
    let left: i32 = others.map(|set| model.unfinished_pods(set, basis)).sum();
    (left > 0).then(|| Finding {
        invariant: Invariant::RecreateOverlap,
        object: deployment.current.identity.describe(),
        description: format!("{left} old pods exist when new pods are requested"),
    })
}

/// The pod is a violation also if its creator may not have observed the scale-down: the manager must wait for that.
fn recreate_old_pods(model: &Model, pod: &PodState, basis: Basis) -> Option<Finding> {
    let old = model.set(pod.identity.controller()?)?;
    let deployment = model.deployment_of(&old.current)?;
    if !deployment.is_recreate(basis) {
        return None;
    }
    let new = model.sets_of(deployment).find(|set| set.was_scaled_up_after(old))?;
    Some(Finding {
        invariant: Invariant::RecreateOldPods,
        object: old.current.identity.describe(),
        description: format!(
            "new pod, but {} has {} replicas",
            new.current.identity.name, new.current.replicas
        ),
    })
}

fn replica_set_in_use(model: &Model, set: &ReplicaSetState, basis: Basis) -> Option<Finding> {
    let description = match model.deployment_of(set) {
        None if model.was_released(set, basis) => return None,
        None => "no Deployment controls it",
        Some(_) if set.replicas > 0 || set.pods > 0 => "it has pods",
        Some(deployment) if deployment.has_unobserved_template(basis) => return None,
        Some(deployment) if same_template(&set.template, &deployment.current.template) => {
            "it is the new ReplicaSet"
        }
        Some(_) if set.observed < set.generation => "its last change was not observed",
        Some(deployment) if history_is_within_limit(model, deployment, set, basis) => {
            "the Deployment does not have more old ReplicaSets than its history limit"
        }
        Some(_) => return None,
    };
    Some(Finding {
        invariant: Invariant::DeletedInUse,
        object: set.identity.describe(),
        description: description.to_owned(),
    })
}

/// `true` if a Deployment had at most as many old ReplicaSets as it keeps, before the deletion of `deleted`.
fn history_is_within_limit(
    model: &Model,
    deployment: &TrackedDeployment,
    deleted: &ReplicaSetState,
    basis: Basis,
) -> bool {
    let others = || model.sets_of(deployment).filter(is_other(deleted));
    let is_new = |set: &TrackedReplicaSet| same_template(&set.current.template, &deployment.current.template);
    let released = Model::released_sets_of(deployment, basis).filter(|set| !set.by_manager);
    let released = released.map(|set| &set.last).filter(is_other(deleted));
    // Of several ReplicaSets with the template, one is the new one.
    let old = 1 + others().count() + released.count() - usize::from(others().any(is_new));
    deployment.bounds(basis).map(|bounds| bounds.history).min().is_some_and(|limit| old <= limit)
}

fn created_twice(model: &Model, new: &ReplicaSetState) -> Option<Finding> {
    let deployment = model.deployment_of(new)?;
    let mut others = model.sets_of(deployment).filter(is_other(new));
    let other = others.find(|set| same_template(&set.current.template, &new.template))?;
    Some(Finding {
        invariant: Invariant::CreatedTwice,
        object: new.identity.describe(),
        description: format!("{} has the same template", other.current.identity.describe()),
    })
}

fn newest_revision(model: &Model, new: &ReplicaSetState) -> Option<Finding> {
    let deployment = model.deployment_of(new)?;
    let others = model.sets_of(deployment).filter(is_other(new));
    let highest = others.filter_map(|set| set.current.revision).max()?;
    (new.revision.unwrap_or(0) <= highest).then(|| Finding {
        invariant: Invariant::Revisions,
        object: new.identity.describe(),
        description: format!(
            "new ReplicaSet with revision {:?}, but revision {highest} exists",
            new.revision
        ),
    })
}

fn deployment_status(old: &DeploymentState, new: &DeploymentState) -> Vec<Finding> {
    let mut findings = Vec::new();
    let object = new.identity.describe();
    if new.collisions < old.collisions {
        findings.push(Finding {
            invariant: Invariant::Collisions,
            object: object.clone(),
            description: format!("from {} to {}", old.collisions, new.collisions),
        });
    }
    if let (Some(from), to) = (old.revision, new.revision)
        && to.is_none_or(|to| to < from)
    {
        let description = format!("from revision {from} to {to:?}");
        findings.push(Finding { invariant: Invariant::Revisions, object: object.clone(), description });
    }
    findings.extend(observed_generation(&object, (old.observed, new.observed), new.generation));
    findings
}

/// Checks that a rollout is marked as timed out only after its deadline.
fn early_timeout(old: &DeploymentState, new: &DeploymentState, now: Timestamp) -> Option<Finding> {
    if old.status.progress == TIMED_OUT || new.status.progress != TIMED_OUT {
        return None;
    }
    let (invariant, description) = match old.deadline {
        Some(deadline) if deadline.at < now => return None,
        Some(deadline) => {
            let early = now.duration_until(deadline.at);
            (Invariant::EarlyTimeout, format!("{TIMED_OUT}, {early:#} before the deadline"))
        }
        None => {
            let before = &old.status.progress;
            (Invariant::Conditions, format!("{TIMED_OUT} follows {before:?}, which has no deadline"))
        }
    };
    Some(Finding { invariant, object: new.identity.describe(), description })
}

/// Time after the progress deadline within which a rollout is marked. It is longer than the delay of two surprises, and than the
/// election of another manager after one surprise.
const MAX_TIMEOUT_DELAY: SignedDuration = SignedDuration::from_secs(30);

/// Checks that a Deployment that did not change for a time was marked as timed out when its deadline had passed.
pub(crate) fn missed_timeout(before: &Before, now: Timestamp) -> Option<Finding> {
    let Some((ObjectState::Deployment(old), since)) = before.state.as_ref().zip(before.since) else {
        return None;
    };
    let due = old.deadline.filter(|deadline| deadline.is_checked)?.at.max(since);
    let delay = now.duration_since(due);
    (delay > MAX_TIMEOUT_DELAY).then(|| Finding {
        invariant: Invariant::MissedTimeout,
        object: old.identity.describe(),
        description: format!("Progressing is {:?} {delay:#} after the deadline", old.status.progress),
    })
}

/// Compares the conditions that a status write changes with its numbers. Writes of other parts leave both as they are.
fn conditions(model: &Model, old: &DeploymentState, new: &DeploymentState) -> Vec<Finding> {
    let Some(bounds) = model.deployment(&new.identity.uid).and_then(TrackedDeployment::observed_bounds)
    else {
        return Vec::new();
    };
    if (&old.status, old.observed) == (&new.status, new.observed) {
        return Vec::new();
    }
    let Rollout { replicas, updated, available, is_available, progress } = &new.status;
    let mut descriptions = Vec::new();
    if let Some(is_available) = is_available
        && *is_available != (*available >= bounds.available_from)
    {
        descriptions
            .push(format!("Available is {is_available} with {available} of {} pods", bounds.replicas));
    }
    let was_complete = old.status.progress == COMPLETE;
    let is_complete = [replicas, updated, available].iter().all(|number| **number == bounds.replicas);
    if !was_complete && progress == COMPLETE && !is_complete {
        let numbers = format!("{replicas} pods, {updated} updated and {available} available");
        descriptions.push(format!("the rollout is complete with {numbers}, of {}", bounds.replicas));
    }
    // Without pods, the reason may be based on that of a ReplicaSet that the same sync has created (US-4.8).
    if was_complete && progress == "ReplicaSetUpdated" && replicas == updated && *replicas > 0 {
        descriptions
            .push(format!("{progress} follows a complete rollout, and all {replicas} pods are updated"));
    }
    let object = new.identity.describe();
    let finding =
        |description| Finding { invariant: Invariant::Conditions, object: object.clone(), description };
    descriptions.into_iter().map(finding).collect()
}

fn decreased_revision(
    set: &ReplicaSetState,
    what: &str,
    from: Option<i64>,
    to: Option<i64>,
) -> Option<Finding> {
    let from = from?;
    to.is_none_or(|to| to < from).then(|| Finding {
        invariant: Invariant::Revisions,
        object: set.identity.describe(),
        description: format!("from {what} {from} to {to:?}"),
    })
}

fn observed_generation(object: &str, (old, new): (i64, i64), generation: i64) -> Option<Finding> {
    let description = if new > generation {
        format!("observed generation {new}, but generation {generation}")
    } else if new < old {
        format!("from {old} to {new}")
    } else {
        return None;
    };
    Some(Finding { invariant: Invariant::ObservedGeneration, object: object.to_owned(), description })
}

/// `true` if both templates are equal, except for the pod-template-hash label.
fn same_template(one: &Value, other: &Value) -> bool {
    match (PodTemplate::from_value(one), PodTemplate::from_value(other)) {
        (Ok(one), Ok(other)) => one.equal_ignore_hash(&other),
        _ => false,
    }
}
