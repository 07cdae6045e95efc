//! Warnings about a rollout.

use kcm_api::{Deployment, LabelSelector, Selector};
use kcm_deployment_util::fenceposts;
use serde_json::Value;

use crate::{
    Snapshot,
    capacity::{autoscaler_range, desired_healthy},
    cluster::is_complete,
    history::History,
    json::text,
    refusal::Refusal,
    report::{Deadline, Effect, NodesCheck, QuotaCheck, Warning, WarningCode},
};

/// Facts that warnings are derived from.
pub(crate) struct Facts<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) before: Option<&'a Deployment>,
    pub(crate) effect: Effect,
    pub(crate) history: &'a History,
    pub(crate) deadline: &'a Deadline,
    pub(crate) quotas: &'a [QuotaCheck],
    pub(crate) nodes: &'a NodesCheck,
    pub(crate) refusals: &'a [Refusal],
}

/// Returns the warnings, in the order of [`WarningCode`].
pub(crate) fn warnings(facts: &Facts<'_>) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |code, message: Option<String>| {
        warnings.extend(message.map(|message| Warning { code, message }));
    };
    let replaces_pods = matches!(facts.effect, Effect::NewReplicaSet | Effect::ReusedReplicaSet);
    if replaces_pods {
        warn(WarningCode::BoundsZero, bounds_zero(&facts.history.deployment));
        warn(WarningCode::DeadlineShorterThanSteps, min_ready_of_steps(facts.history));
    }
    warn(WarningCode::DeadlineAtRisk, deadline_at_risk(facts.deadline));
    for budget in &facts.snapshot.disruption_budgets {
        warn(WarningCode::DisruptionBudget, disruption_budget(facts, budget));
    }
    warn(WarningCode::NoneAvailable, none_available(facts.history));
    for refusal in facts.refusals {
        warn(WarningCode::StandingRefusal, Some(standing_refusal(facts.snapshot, refusal)));
    }
    for autoscaler in &facts.snapshot.autoscalers {
        warn(WarningCode::Autoscaler, autoscaled(facts, autoscaler));
    }
    let in_progress = facts.before.is_some_and(|before| !before.spec.paused && !is_complete(before));
    let message = "a rollout is in progress; the preview starts from its current state";
    warn(WarningCode::RolloutInProgress, in_progress.then(|| message.to_owned()));
    for check in facts.quotas.iter().filter(|check| !check.fits) {
        warn(WarningCode::Quota, Some(quota_exceeded(check)));
    }
    let NodesCheck { free, needed, fits, .. } = facts.nodes;
    let message = || format!("the peak needs {needed} more pods; the nodes have room for {free}");
    warn(WarningCode::Capacity, (*fits == Some(false)).then(message));
    let message = "the Deployment is paused: the template is not rolled out until it is resumed";
    warn(WarningCode::Paused, (facts.effect == Effect::Paused).then(|| message.to_owned()));
    warnings
}

/// Both bounds are zero, although each is a percentage above zero.
fn bounds_zero(deployment: &Deployment) -> Option<String> {
    let rolling = deployment.spec.strategy.rolling_update.as_ref()?;
    let scaled = |bound: Option<&kcm_api::IntOrString>, round| {
        bound.map_or(Ok(0), |bound| bound.scaled(deployment.replicas(), round)).ok()
    };
    use kcm_api::int_or_string::Round;
    let surge = scaled(rolling.max_surge.as_ref(), Round::Up)?;
    let unavailable = scaled(rolling.max_unavailable.as_ref(), Round::Down)?;
    (fenceposts::is_rolling_update(deployment) && surge == 0 && unavailable == 0).then(|| {
        "maxSurge and maxUnavailable are both 0 after rounding; the controller permits 1 unavailable pod"
            .to_owned()
    })
}

fn min_ready_of_steps(history: &History) -> Option<String> {
    let deployment = &history.deployment;
    let min_ready = i64::from(deployment.spec.min_ready_seconds);
    let deadline = i64::from(kcm_deployment_util::rollout::progress_deadline(deployment)?);
    let new = history.new_replica_set()?;
    let sizes = |step: &crate::report::Step| {
        step.replica_sets.iter().find(|set| *set.name == *new.metadata.name).map_or(0, |set| set.desired)
    };
    let mut sizes: Vec<i32> = history.steps.iter().map(sizes).collect();
    sizes.dedup();
    let steps =
        i64::try_from(sizes.windows(2).filter(|pair| matches!(pair, [a, b] if b > a)).count()).ok()?;
    let total = min_ready.saturating_mul(steps);
    (total > deadline).then(|| {
        format!(
            "minReadySeconds ({min_ready}s) of {steps} steps takes {total}s, more than progressDeadlineSeconds \
             ({deadline}s); each available pod restarts the deadline"
        )
    })
}

fn deadline_at_risk(deadline: &Deadline) -> Option<String> {
    let seconds = deadline.seconds.filter(|_| deadline.at_risk)?;
    let wait = deadline.longest_wait_seconds;
    Some(match deadline.exceeded_at_seconds {
        Some(at) => format!("the progress deadline ({seconds}s) is exceeded after {at:.0}s"),
        None => format!("up to {wait:.0}s pass without progress; the progress deadline is {seconds}s"),
    })
}

fn disruption_budget(facts: &Facts<'_>, budget: &Value) -> Option<String> {
    let selector: LabelSelector = serde_json::from_value(budget["spec"]["selector"].clone()).ok()?;
    let selector = Selector::new(Some(&selector)).ok()?;
    if !selector.matches(facts.history.deployment.spec.template.labels()) {
        return None;
    }
    let desired = desired_healthy(budget, facts.history.deployment.replicas());
    let seconds = seconds_where(facts.history, |available| available <= desired);
    let at_rest = facts.history.before.available <= desired && facts.before.is_some();
    let name = text(budget, "/metadata/name");
    if at_rest {
        return Some(format!("PodDisruptionBudget {name} permits no eviction even before the change"));
    }
    (seconds > 0.0).then(|| {
        format!("PodDisruptionBudget {name} permits no eviction for {seconds:.0}s of the rollout: node drains wait")
    })
}

fn none_available(history: &History) -> Option<String> {
    if history.before.available == 0 || history.deployment.replicas() == 0 {
        return None;
    }
    let seconds = seconds_where(history, |available| available == 0);
    (history.fewest_available.pods == 0).then(|| format!("no pod is available for {seconds:.0}s"))
}

/// Time until completion, or until the last write, during which the number of available pods satisfies `holds`.
fn seconds_where(history: &History, holds: impl Fn(i32) -> bool) -> f64 {
    let end = history.completed_at.unwrap_or(history.settled_at);
    let ends = history.availability.iter().skip(1).map(|(at, _)| *at).chain([f64::MAX]);
    let spans = history.availability.iter().zip(ends);
    let held = spans.filter(|((_, available), _)| holds(*available));
    held.map(|((start, _), stop)| (stop.min(end) - start.min(end)).max(0.0)).sum()
}

fn standing_refusal(snapshot: &Snapshot, refusal: &Refusal) -> String {
    let for_ = refusal.since.map_or_else(String::new, |since| {
        let elapsed = snapshot.taken.duration_since(since).as_secs_f64().max(0.0);
        format!(" for {}", crate::render::seconds(elapsed))
    });
    let assumption = match (refusal.stands, refusal.is_quota) {
        (true, _) => "the preview assumes that this continues",
        (false, true) => "the preview compares the new pods with the quota",
        (false, false) => "the preview assumes that the new pods are accepted",
    };
    format!(
        "the API server has refused {}{for_}: {}; {assumption}",
        refusal.requests(),
        refusal.message.trim_end_matches('.')
    )
}

fn autoscaled(facts: &Facts<'_>, autoscaler: &Value) -> Option<String> {
    let target = &autoscaler["spec"]["scaleTargetRef"];
    if target["kind"] != "Deployment" || target["name"] != *facts.snapshot.name {
        return None;
    }
    let (min, max) = autoscaler_range(autoscaler);
    let name = text(autoscaler, "/metadata/name");
    Some(format!(
        "HorizontalPodAutoscaler {name} sets replicas between {min} and {max}; the preview does not"
    ))
}

fn quota_exceeded(check: &QuotaCheck) -> String {
    let QuotaCheck { quota, resource, hard, peak, .. } = check;
    let [peak, hard] = [peak, hard].map(|amount| crate::render::amount(resource, *amount));
    format!("ResourceQuota {quota}: the peak needs {peak} {resource} of {hard}")
}
