//! Rules of the invariants.

use kcm_api::PodTemplate;
use serde_json::Value;

use super::{
    Basis, Change, Found, Invariant,
    facts::{Deployment, Facts, Pod, ReplicaSet},
    model::{Before, KnownSet, Model},
};
use crate::write_log::Entry;

/// Checks a change by the manager.
pub(super) fn of_change(
    model: &Model,
    before: &Before,
    after: &Facts,
    change: Change<'_>,
    write: &Entry,
    basis: Basis,
) -> Vec<Found> {
    let mut found = Vec::new();
    let gone = matches!(change, Change::Gone(_)) || write.verb == "delete";
    match (&before.facts, after) {
        (old, Facts::Pod(pod)) if gone => {
            let old = if let Some(Facts::Pod(old)) = old { old } else { pod };
            found.extend(needed_pod(model, old, basis));
        }
        (_, Facts::ReplicaSet(set)) if gone => found.extend(set_in_use(model, set, basis)),
        (None, Facts::Pod(pod)) => found.extend(surplus_pod(model, pod, basis)),
        (old, Facts::ReplicaSet(new)) => {
            let old = if let Some(Facts::ReplicaSet(old)) = old { Some(old) } else { None };
            found.extend(surplus_replicas(model, old, new, basis));
            found.extend(recreate_overlap(model, old, new, basis));
            match old {
                Some(old) => {
                    found.extend(availability(model, old, new, basis));
                    found.extend(going_back(new, "revision", old.revision, new.revision));
                    found.extend(observed(&new.is.describe(), (old.observed, new.observed), new.generation));
                }
                None => {
                    found.extend(newest_revision(model, new));
                    found.extend(created_twice(model, new));
                }
            }
        }
        (Some(Facts::Deployment(old)), Facts::Deployment(new)) => found.extend(deployment(old, new)),
        _ => {}
    }
    found.extend(taken_away(before, after));
    found
}

/// Checks a request of the manager without effect.
pub(super) fn of_request(model: &Model, write: &Entry, changes: &[Change<'_>]) -> Option<Found> {
    let about_ours = matches!(write.resource.as_str(), "deployments" | "replicasets" | "pods");
    let said = |invariant, how: &str| {
        let object = format!("{} {}/{}", write.resource, write.namespace, write.name);
        Some(Found { invariant, object, how: how.to_owned() })
    };
    if about_ours && write.code < 300 && changes.is_empty() {
        return said(Invariant::IdleWrite, "the write changed nothing");
    }
    let taken = write.verb == "create" && write.resource == "replicasets" && write.code == 409;
    let body = write.body.as_ref().filter(|_| taken)?;
    let there = model.set_named(&write.namespace, &write.name)?;
    let owner = body.pointer("/metadata/ownerReferences/0/uid").and_then(Value::as_str);
    if owner == there.now.is.controller() && same_template(&there.now.template, &body["spec"]["template"]) {
        return said(Invariant::CreatedTwice, "the object exists");
    }
    None
}

/// `true` if a request counts as an effort to settle. The number of pods has its own rule, and events do not count. A create
/// of an existing pod repeats a create with a lost response, at most once per pod.
pub(super) fn is_effort(write: &Entry, changes: &[Change<'_>]) -> bool {
    match write.resource.as_str() {
        "deployments" | "replicasets" => true,
        "pods" => changes.is_empty() && !(write.verb == "create" && write.code == CONFLICT),
        _ => false,
    }
}

/// Status code of a create that fails because the object exists.
const CONFLICT: u16 = 409;

/// Checks the number of consecutive requests.
pub(super) fn of_effort(model: &Model, write: &Entry, in_a_row: usize) -> Option<Found> {
    let enough = EFFORT + EFFORT_PER_SET * model.count_sets();
    // Reported once.
    (in_a_row == enough + 1).then(|| Found {
        invariant: Invariant::Effort,
        object: format!("{} {}/{}", write.resource, write.namespace, write.name),
        how: format!("{in_a_row} consecutive writes without changes by other clients"),
    })
}

/// Bound of consecutive requests. A rollout step needs two writes of the Deployment and one of each ReplicaSet. Each may
/// fail with a conflict and be repeated, and all may be needed again for the resulting changes.
const EFFORT: usize = 24;
const EFFORT_PER_SET: usize = 6;

/// Checks the number of syncs.
pub(super) fn of_syncs(syncs: u64, occasions: usize) -> Option<Found> {
    let enough = SYNCS + SYNCS_PER_OCCASION * occasions;
    (syncs > enough as u64).then(|| Found {
        invariant: Invariant::Effort,
        object: "the manager".to_owned(),
        how: format!("{syncs} syncs in one step, for {occasions} changes and requests"),
    })
}

/// Bound of syncs per step. A change of a pod or ReplicaSet enqueues its controller and the Deployment. A key may be requeued
/// until a cache is up to date, or until a deadline.
const SYNCS: usize = 32;
const SYNCS_PER_OCCASION: usize = 3;

/// Checks that an object has at most one controller, independent of the writer.
pub(super) fn two_controllers(facts: &Facts) -> Option<Found> {
    let is = facts.is();
    (is.controllers.len() > 1).then(|| Found {
        invariant: Invariant::TwoControllers,
        object: is.describe(),
        how: format!("controlled by {}", is.controllers.join(" and ")),
    })
}

fn taken_away(before: &Before, after: &Facts) -> Option<Found> {
    let (old, new) = (before.facts.as_ref()?.is().controller()?, after.is().controller()?);
    (old != new).then(|| Found {
        invariant: Invariant::TwoControllers,
        object: after.is().describe(),
        how: format!("the controller changed from {old} to {new}"),
    })
}

fn surplus_pod(model: &Model, pod: &Pod, basis: Basis) -> Option<Found> {
    let set = model.set(pod.is.controller()?)?;
    let (active, wanted) = (model.pods_of(set).active, set.largest(basis));
    (active - set.gained(basis) > wanted).then(|| Found {
        invariant: Invariant::SurplusPods,
        object: set.now.is.describe(),
        how: format!("{active} pods, but {wanted} replicas"),
    })
}

fn needed_pod(model: &Model, pod: &Pod, basis: Basis) -> Option<Found> {
    let Some(set) = pod.is.controller().and_then(|uid| model.set(uid)) else {
        return Some(Found {
            invariant: Invariant::DeletedInUse,
            object: pod.is.describe(),
            how: "no ReplicaSet controls it".to_owned(),
        });
    };
    if !pod.is_active() {
        return None;
    }
    let (left, wanted) = (set.with_lost(model.pods_of(set), basis), set.smallest(basis));
    let was_unready = model.was_unready(&pod.is.uid, basis);
    let how = if left.active < wanted {
        format!("{} pods left, but {wanted} replicas", left.active)
    } else if pod.ready && !was_unready && left.ready < wanted {
        format!("{} ready pods left of {}, but {wanted} replicas", left.ready, left.active)
    } else {
        return None;
    };
    Some(Found { invariant: Invariant::NeededPods, object: set.now.is.describe(), how })
}

fn surplus_replicas(
    model: &Model,
    old: Option<&ReplicaSet>,
    new: &ReplicaSet,
    basis: Basis,
) -> Option<Found> {
    let deployment = model.deployment_of(new)?;
    if new.replicas <= old.map_or(0, |old| old.replicas) {
        return None;
    }
    let size = |set: &KnownSet| {
        let is_new = set.now.is.uid == new.is.uid;
        if is_new { set.now.replicas } else { set.smallest_seen(basis) }
    };
    let sum: i32 = model.sets_of(deployment).map(size).sum();
    let at_most = deployment.wishes(basis).map(|wish| wish.at_most).max()?;
    (sum > at_most).then(|| Found {
        invariant: Invariant::SurplusReplicas,
        object: deployment.now.is.describe(),
        how: format!("its ReplicaSets have {sum} replicas, at most {at_most} are allowed"),
    })
}

fn availability(model: &Model, old: &ReplicaSet, new: &ReplicaSet, basis: Basis) -> Option<Found> {
    let deployment = model.deployment_of(new)?;
    // A ReplicaSet that is scaled with its Deployment is scaled proportionally.
    let is_scaling = old.desired != new.desired;
    if new.replicas >= old.replicas || is_scaling {
        return None;
    }
    // Surplus pods of a ReplicaSet still count as available (US-4.9).
    let is_held_up = |set: &KnownSet| set.now.pods > set.now.replicas && set.now.is.uid != new.is.uid;
    if basis.is_old() && model.sets_of(deployment).any(is_held_up) {
        return None;
    }
    let at_least = deployment.wishes(basis).map(|wish| wish.at_least).min()?;
    let promised = |replicas: i32, available: i32| replicas.min(available);
    // Number of available pods left, if the change reduces it below the minimum. `available` gives it per ReplicaSet.
    let lacking = |available: &dyn Fn(&KnownSet) -> i32| {
        let has = model.set(&new.is.uid).map_or(0, available);
        let takes = promised(new.replicas, has) < promised(old.replicas, has);
        // The other ReplicaSets count with the available pods in their status, as upstream (US-4.9): one that was scaled down
        // still reports its surplus pods.
        let lost: i32 = Model::lost_sets_of(deployment, basis).map(|lost| lost.available).sum();
        let left = model.sets_of(deployment).map(|set| match set.now.is.uid == new.is.uid {
            true => promised(new.replicas, has),
            false => available(set),
        });
        let left = left.sum::<i32>() + lost;
        (takes && left < at_least).then_some(left)
    };
    // A violation must be wrong for the current state and for the state shortly before.
    let left = lacking(&|set| set.now.available).and(lacking(&|set| set.available(basis)))?;
    Some(Found {
        invariant: Invariant::Availability,
        object: deployment.now.is.describe(),
        how: format!("{left} available pods left, at least {at_least} required"),
    })
}

fn recreate_overlap(
    model: &Model,
    old: Option<&ReplicaSet>,
    new: &ReplicaSet,
    basis: Basis,
) -> Option<Found> {
    let deployment = model.deployment_of(new)?;
    if new.replicas <= old.map_or(0, |old| old.replicas)
        || !deployment.wishes(basis).all(|wish| wish.recreate)
    {
        return None;
    }
    let others = model.sets_of(deployment).filter(|set| set.now.is.uid != new.is.uid);
    let left: i32 = others.map(|set| model.unfinished_seen(set, basis)).sum();
    (left > 0).then(|| Found {
        invariant: Invariant::RecreateOverlap,
        object: deployment.now.is.describe(),
        how: format!("{left} old pods exist when new pods are requested"),
    })
}

fn set_in_use(model: &Model, set: &ReplicaSet, basis: Basis) -> Option<Found> {
    let how = match model.deployment_of(set) {
        None if model.has_lost(set, basis) => return None,
        None => "no Deployment controls it",
        Some(_) if set.replicas > 0 || set.pods > 0 => "it has pods",
        Some(deployment) if deployment.has_unseen_template(basis) => return None,
        Some(deployment) if same_template(&set.template, &deployment.now.template) => {
            "it is the new ReplicaSet"
        }
        Some(_) => return None,
    };
    Some(Found { invariant: Invariant::DeletedInUse, object: set.is.describe(), how: how.to_owned() })
}

fn created_twice(model: &Model, new: &ReplicaSet) -> Option<Found> {
    let deployment = model.deployment_of(new)?;
    let other = model
        .sets_of(deployment)
        .find(|set| set.now.is.uid != new.is.uid && same_template(&set.now.template, &new.template))?;
    Some(Found {
        invariant: Invariant::CreatedTwice,
        object: new.is.describe(),
        how: format!("{} has the same template", other.now.is.describe()),
    })
}

fn newest_revision(model: &Model, new: &ReplicaSet) -> Option<Found> {
    let deployment = model.deployment_of(new)?;
    let others = model.sets_of(deployment).filter(|set| set.now.is.uid != new.is.uid);
    let highest = others.filter_map(|set| set.now.revision).max()?;
    (new.revision.unwrap_or(0) <= highest).then(|| Found {
        invariant: Invariant::Revisions,
        object: new.is.describe(),
        how: format!("new ReplicaSet with revision {:?}, but revision {highest} exists", new.revision),
    })
}

fn deployment(old: &Deployment, new: &Deployment) -> Vec<Found> {
    let mut found = Vec::new();
    let object = new.is.describe();
    if new.collisions < old.collisions {
        found.push(Found {
            invariant: Invariant::Collisions,
            object: object.clone(),
            how: format!("from {} to {}", old.collisions, new.collisions),
        });
    }
    if let (Some(from), to) = (old.revision, new.revision)
        && to.is_none_or(|to| to < from)
    {
        let how = format!("from revision {from} to {to:?}");
        found.push(Found { invariant: Invariant::Revisions, object: object.clone(), how });
    }
    found.extend(observed(&object, (old.observed, new.observed), new.generation));
    found
}

fn going_back(set: &ReplicaSet, what: &str, from: Option<i64>, to: Option<i64>) -> Option<Found> {
    let from = from?;
    to.is_none_or(|to| to < from).then(|| Found {
        invariant: Invariant::Revisions,
        object: set.is.describe(),
        how: format!("from {what} {from} to {to:?}"),
    })
}

fn observed(object: &str, (old, new): (i64, i64), generation: i64) -> Option<Found> {
    let how = if new > generation {
        format!("observed generation {new}, but generation {generation}")
    } else if new < old {
        format!("from {old} to {new}")
    } else {
        return None;
    };
    Some(Found { invariant: Invariant::ObservedGeneration, object: object.to_owned(), how })
}

/// `true` if both templates are equal, except for the pod-template-hash label.
fn same_template(one: &Value, other: &Value) -> bool {
    match (PodTemplate::from_value(one), PodTemplate::from_value(other)) {
        (Ok(one), Ok(other)) => one.equal_ignore_hash(&other),
        _ => false,
    }
}
