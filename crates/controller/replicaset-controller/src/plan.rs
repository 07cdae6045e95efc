use std::{fmt, sync::Arc};

use kcm_api::Pod;
use kcm_clock::Timestamp;
use kcm_controller_util::ranking::{Criterion, NodeCounts, Ranking, first_to_go};
use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{Hold, View};

/// What to do about the number of pods, with the reason in words.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "action")]
pub enum Plan {
    /// Nothing.
    Nothing {
        /// Why.
        reason: String,
    },
    /// Create this many pods, all alike.
    CreatePods {
        /// How many.
        count: usize,
        /// Why so many.
        reason: String,
    },
    /// Delete these pods.
    DeletePods {
        /// Which, in the order of their ranking.
        victims: Vec<Victim>,
        /// Why so many.
        reason: String,
    },
}

/// A pod that is to go.
#[derive(Debug, Clone, PartialEq)]
pub struct Victim {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Why this one.
    pub why: Why,
    /// For a ready pod, when there was a choice: its age in units of the age of the youngest ready pod.
    pub age_ratio: Option<f64>,
}

/// Why a pod was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// All of them go.
    AllGo,
    /// The first thing in which it differs from the first pod that stays.
    Ranked(Criterion),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllGo => f.write_str("all of them go"),
            Self::Ranked(criterion) => criterion.fmt(f),
        }
    }
}

impl Serialize for Victim {
    /// For people: the pod's name, and why.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut victim = serializer.serialize_struct("Victim", 2)?;
        victim.serialize_field("pod", &*self.pod.key.name)?;
        victim.serialize_field("why", &self.why.to_string())?;
        victim.end()
    }
}

impl Plan {
    /// Why.
    pub fn reason(&self) -> &str {
        match self {
            Self::Nothing { reason } | Self::CreatePods { reason, .. } | Self::DeletePods { reason, .. } => {
                reason
            }
        }
    }
}

/// What to do about what `view` shows at `now` (US-5.4, US-5.5).
///
/// Upstream counterpart: `manageReplicas`, as far as it decides.
pub fn plan(view: &View, now: Timestamp) -> Plan {
    match view.hold {
        Some(Hold::BeingDeleted) => {
            return Plan::Nothing { reason: "it is being deleted: only its status is kept up".to_owned() };
        }
        Some(Hold::ExpectationsPending) => {
            return Plan::Nothing {
                reason: "earlier creations or deletions have not all been seen yet".to_owned(),
            };
        }
        None => {}
    }
    let (wanted, active) = (view.replica_set.replicas(), view.active.len());
    let missing = usize::try_from(view.difference().saturating_neg()).unwrap_or(0);
    if missing > 0 {
        let count = missing.min(view.burst_replicas);
        let reason =
            format!("{wanted} wanted, {active} active: {missing} missing{}", limited(count, missing));
        return Plan::CreatePods { count, reason };
    }
    let (surplus, choice) = view.surplus();
    if surplus == 0 {
        return Plan::Nothing { reason: format!("{wanted} wanted, {active} active") };
    }
    let total = usize::try_from(view.difference()).unwrap_or(usize::MAX);
    let reason = format!("{wanted} wanted, {active} active: {total} too many{}", limited(surplus, total));
    let victims = if choice {
        choose(view, surplus, now)
    } else {
        // No sort where all go: upstream takes them as they come.
        let all = view.active.iter();
        all.map(|pod| Victim { pod: Arc::clone(pod), why: Why::AllGo, age_ratio: None }).collect()
    };
    Plan::DeletePods { victims, reason }
}

fn limited(now: usize, all: usize) -> String {
    if now < all { format!(", {now} of them in one go") } else { String::new() }
}

/// The `count` pods that rank first, fewer than there are.
fn choose(view: &View, count: usize, now: Timestamp) -> Vec<Victim> {
    let related = NodeCounts::of(&view.related);
    let youngest = youngest_ready_age(view, now);
    let ranking = Ranking { deletion_cost: view.pod_deletion_cost, ..Ranking::new(&related, now) };
    first_to_go(&view.active, count, &ranking)
        .into_iter()
        .map(|choice| Victim {
            age_ratio: age_ratio(&choice.pod, youngest, now),
            pod: choice.pod,
            why: Why::Ranked(choice.criterion),
        })
        .collect()
}

/// The age of the youngest ready pod in milliseconds, if there is any and it is older than nothing.
///
/// DEVIATION: upstream divides by it unchecked, and crashes where it is zero (US-5.5). Nothing is counted here.
fn youngest_ready_age(view: &View, now: Timestamp) -> Option<i128> {
    let ready = view.active.iter().filter(|pod| pod.ready.is_ready);
    let created = ready.filter_map(|pod| pod.creation_timestamp).max()?;
    Some(created.age(now).as_millis()).filter(|age| *age != 0)
}

/// Integer division first, as upstream does: ages below the youngest's give zero.
fn age_ratio(pod: &Pod, youngest: Option<i128>, now: Timestamp) -> Option<f64> {
    let youngest = youngest.filter(|_| pod.ready.is_ready)?;
    Some((pod.creation_timestamp?.age(now).as_millis() / youngest) as f64)
}

#[cfg(test)]
mod tests;
