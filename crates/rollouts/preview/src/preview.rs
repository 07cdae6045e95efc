//! Preview of a change: two runs of the embedded cluster, and the answers from them.

use std::time::Duration;

use kcm_api::Deployment;
use kcm_apiserver::strict;
use kcm_deployment_util::{annotations::REVISION, fenceposts, rollout};
use serde_json::Value;

use crate::{
    PreviewError, Snapshot,
    capacity::{check_nodes, check_quotas},
    change::{Change, LAST_APPLIED},
    cluster::{RunConfig, RunEnd, Unready, plan, run},
    diff::diff,
    history::{History, stuck_message},
    range::duration_range,
    refusal::{self, Refusal},
    report::{
        API_VERSION, Bounds, Condition, Deadline, DryRun, DurationRange, Effect, End, NeverReady,
        NewReplicaSet, Outcome, Preview, Replicas,
    },
    size,
    timings::{TimingOptions, Timings},
    warnings::{Facts, warnings},
};

/// Predicts the course of `change`, starting from the objects in `snapshot`.
///
/// The objects are copied into an embedded API server. The change is made there, and the real controllers run in simulated
/// time until the rollout is complete or stuck. A second run assumes that no new pod becomes ready.
///
/// Nothing is sent to the cluster.
///
/// # Errors
///
/// If the change is not possible or too large, `kubectl` or the API server rejects it, or the simulation cannot be run.
pub fn preview(
    snapshot: &Snapshot,
    change: &Change,
    options: &TimingOptions,
) -> Result<Preview, PreviewError> {
    preview_with_progress(snapshot, change, options, &|_| {})
}

/// Same as [`preview`]. Calls `progress` with the share of the new pods that the simulation has created.
///
/// # Errors
///
/// Those of [`preview`].
pub fn preview_with_progress(
    snapshot: &Snapshot,
    change: &Change,
    options: &TimingOptions,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Preview, PreviewError> {
    let request = change.request(snapshot)?;
    if let Change::Apply(manifest) = change {
        check_fields(manifest)?;
    }
    let after = plan(snapshot, &request)?;
    size::check(snapshot, &after)?;
    let timings = Timings::resolve(options, snapshot, &after);
    let refusals = refusal::standing(snapshot, &after);
    let expected = RunConfig {
        snapshot,
        request: &request,
        timings: &timings,
        unready: Unready::First(timings.unready),
        refusals: &refusals,
        quota_delay: Duration::ZERO,
        progress: &|_| {},
    };
    let simulate = |config| Ok(History::read(&run(config)?, &snapshot.name, &snapshot.limit_ranges));
    // Each run has a separate thread.
    let (history, never_ready) = std::thread::scope(|scope| {
        let never_ready = scope.spawn(|| simulate(RunConfig { unready: Unready::All, ..expected }));
        let history = simulate(RunConfig { progress, ..expected });
        (history, never_ready.join().unwrap_or(Err(PreviewError::Panicked)))
    });
    let (history, never_ready) = (history?, never_ready?);
    let range =
        duration_range(&history, &refusals, !snapshot.quotas.is_empty(), snapshot.taken, |quota_delay| {
            simulate(RunConfig { quota_delay, ..expected })
        })?;
    Ok(report(snapshot, &timings, history, &never_ready, &refusals, range))
}

/// Rejects fields that Deployments do not have, as `fieldValidation=Strict`.
fn check_fields(manifest: &Value) -> Result<(), PreviewError> {
    let (version, kind) = ("apps/v1", "Deployment");
    // Other errors are those of the API server.
    match strict::decode_value(version, kind, manifest.clone()) {
        Ok(decoded) if !decoded.strict_errors.is_empty() => {
            Err(PreviewError::UnknownFields(strict::strict_message(version, kind, &decoded.strict_errors)))
        }
        _ => Ok(()),
    }
}

fn report(
    snapshot: &Snapshot,
    timings: &Timings,
    history: History,
    never_ready: &History,
    refusals: &[Refusal],
    range: Option<DurationRange>,
) -> Preview {
    let before: Option<Deployment> =
        snapshot.deployment.as_ref().and_then(|live| serde_json::from_value(live.clone()).ok());
    let after = &history.deployment;
    let replica_set = new_replica_set(snapshot, &history);
    let effect = effect(before.as_ref(), after, replica_set.as_ref());
    let template_changes = match &before {
        Some(before) if !before.spec.template.equal_ignore_hash(&after.spec.template) => {
            diff(&before.spec.template.to_value(), &after.spec.template.to_value())
        }
        _ => Vec::new(),
    };
    let deadline = deadline(&history);
    let (quotas, nodes) = (check_quotas(snapshot, &history), check_nodes(snapshot, &history));
    let facts = Facts {
        snapshot,
        before: before.as_ref(),
        effect,
        history: &history,
        deadline: &deadline,
        quotas: &quotas,
        nodes: &nodes,
        refusals,
    };
    let warnings = warnings(&facts);
    let conditions = conditions(&facts);
    Preview {
        api_version: API_VERSION,
        kind: "RolloutPreview",
        namespace: snapshot.namespace.clone(),
        name: snapshot.name.clone(),
        dry_run: DryRun::default(),
        effect,
        replica_set,
        template_changes,
        replicas: Replicas { before: before.map_or(0, |before| before.replicas()), after: after.replicas() },
        bounds: bounds(after),
        timings: *timings,
        outcome: outcome(&history, refusals, range),
        deadline,
        quotas,
        nodes,
        never_ready: (history.pods_created > 0).then(|| never_ready_report(never_ready)),
        conditions,
        warnings,
        unreadable: snapshot.unreadable.clone(),
        steps: history.steps,
        writes: history.writes,
        write_totals: history.write_totals,
    }
}

fn effect(before: Option<&Deployment>, after: &Deployment, new: Option<&NewReplicaSet>) -> Effect {
    let Some(before) = before else { return Effect::Create };
    let (was_paused, is_paused) = (before.spec.paused, after.spec.paused);
    if was_paused && !is_paused {
        // The template may have changed during the pause.
        return match new {
            Some(NewReplicaSet { previous_revision: None, .. }) => Effect::NewReplicaSet,
            _ => Effect::Resume,
        };
    }
    if !before.spec.template.equal_ignore_hash(&after.spec.template) {
        return match new {
            _ if after.spec.paused => Effect::Paused,
            Some(NewReplicaSet { previous_revision: Some(_), .. }) => Effect::ReusedReplicaSet,
            _ => Effect::NewReplicaSet,
        };
    }
    if is_paused && !was_paused {
        Effect::Pause
    } else if before.replicas() != after.replicas() {
        Effect::Scale
    } else if has_same_settings(before, after) {
        Effect::Nothing
    } else {
        Effect::Settings
    }
}

/// `true` if the Deployments differ at most in the template, the status, and annotations of the controller and of
/// `kubectl apply`.
fn has_same_settings(before: &Deployment, after: &Deployment) -> bool {
    let mut spec = before.spec.clone();
    spec.template.clone_from(&after.spec.template);
    spec == after.spec && metadata(before) == metadata(after)
}

/// Labels and annotations that users set.
fn metadata(deployment: &Deployment) -> Vec<(&str, &str)> {
    let is_set = |name: &str| !name.starts_with("deployment.kubernetes.io/") && name != LAST_APPLIED;
    let metadata = &deployment.metadata;
    let all = metadata.labels.iter().chain(metadata.annotations.iter());
    all.map(|(name, value)| (&**name, &**value)).filter(|(name, _)| is_set(name)).collect()
}

fn new_replica_set(snapshot: &Snapshot, history: &History) -> Option<NewReplicaSet> {
    let set = history.new_replica_set()?;
    let name = set.metadata.name.to_string();
    let old = snapshot.own_replica_sets().into_iter().find(|old| old["metadata"]["name"] == *name);
    let previous = old.map(|old| old["metadata"]["annotations"][REVISION].as_str().unwrap_or("0"));
    Some(NewReplicaSet {
        hash: set
            .spec
            .template
            .labels()
            .get(kcm_api::POD_TEMPLATE_HASH_LABEL)
            .map(ToString::to_string)
            .unwrap_or_default(),
        revision: set.metadata.annotations.get(REVISION).and_then(|revision| revision.parse().ok()),
        previous_revision: previous.and_then(|revision| revision.parse().ok()),
        name,
    })
}

fn bounds(deployment: &Deployment) -> Bounds {
    Bounds {
        strategy: deployment.spec.strategy.type_.clone(),
        max_surge: fenceposts::max_surge(deployment),
        max_unavailable: fenceposts::max_unavailable(deployment),
        max_pods: fenceposts::max_total_replicas(deployment),
        min_available: fenceposts::min_available(deployment),
    }
}

/// Reason why there are more pods than the bound.
fn most_pods_reason(history: &History) -> Option<&'static str> {
    let most = history.most_pods.pods;
    (most > fenceposts::max_total_replicas(&history.deployment)).then_some({
        if most <= history.before.pods {
            "as many before the change"
        } else {
            "all ReplicaSets are first scaled in proportion"
        }
    })
}

/// Reason why fewer pods are available than the bound.
fn fewest_available_reason(history: &History) -> Option<&'static str> {
    let fewest = history.fewest_available.pods;
    (fewest < fenceposts::min_available(&history.deployment)).then_some({
        if fewest >= history.before.available {
            "no more before the change"
        } else {
            "all ReplicaSets are first scaled in proportion"
        }
    })
}

/// Conditions that a pipeline may fail on.
fn conditions(facts: &Facts<'_>) -> Vec<Condition> {
    let Facts { history, deadline, quotas, nodes, .. } = facts;
    let fewest = history.fewest_available.pods;
    let kept = history.before.available.min(history.deployment.replicas());
    let holds = [
        (Condition::Deadline, deadline.exceeded_at_seconds.is_some()),
        (Condition::Capacity, nodes.fits == Some(false)),
        (Condition::Quota, quotas.iter().any(|check| !check.fits)),
        (Condition::Unavailable, fewest < kept),
        (Condition::NoneAvailable, fewest == 0 && kept > 0),
    ];
    holds.into_iter().filter(|(_, holds)| *holds).map(|(condition, _)| condition).collect()
}

fn outcome(history: &History, refusals: &[Refusal], range: Option<DurationRange>) -> Outcome {
    let end = match history.end {
        RunEnd::Complete => End::Complete,
        _ if history.deployment.spec.paused => End::Paused,
        RunEnd::Stuck => End::Stuck,
        RunEnd::Unfinished => End::Unfinished,
    };
    // A refused deletion has no condition in the Deployment.
    let refused = refusals.iter().find(|refusal| refusal.stands).map(|refusal| refusal.message.clone());
    Outcome {
        end,
        duration_seconds: history.completed_at.filter(|_| end == End::Complete),
        duration_range: range.filter(|_| end == End::Complete),
        settled_seconds: history.settled_at,
        most_pods: history.most_pods,
        most_pods_reason: most_pods_reason(history),
        most_pods_with_terminating: history.most_with_terminating,
        fewest_available: history.fewest_available,
        fewest_available_reason: fewest_available_reason(history),
        available_before: history.before.available,
        available_after: history.steps.last().map_or(0, |step| step.available),
        pods_created: history.pods_created,
        pods_deleted: history.pods_deleted,
        message: refused.or_else(|| stuck_message(&history.deployment)).filter(|_| end == End::Stuck),
    }
}

fn deadline(history: &History) -> Deadline {
    let seconds = rollout::progress_deadline(&history.deployment);
    let longest = history.longest_wait;
    let at_risk = seconds.is_some_and(|seconds| longest > f64::from(seconds) / 2.0);
    Deadline {
        seconds,
        longest_wait_seconds: longest,
        exceeded_at_seconds: history.deadline_exceeded_at,
        at_risk: at_risk || history.deadline_exceeded_at.is_some(),
    }
}

fn never_ready_report(history: &History) -> NeverReady {
    let last = history.steps.last();
    let replica_sets = last.map(|step| step.replica_sets.clone()).unwrap_or_default();
    let new = replica_sets.iter().filter(|set| set.is_new);
    NeverReady {
        new_pods: new.map(|set| set.pods - set.ready).sum(),
        available: last.map_or(0, |step| step.available),
        stuck_seconds: history.last_pod_change,
        deadline_exceeded_seconds: history.deadline_exceeded_at,
        replica_sets,
    }
}
