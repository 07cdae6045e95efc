//! State of a Deployment and its ReplicaSets, as text.

use std::fmt::Write as _;

use kcm_api::{Deployment, IntOrString, PodTemplate, ReplicaSet, int_or_string::Round};
use kcm_rollouts::{Cause, Diagnosis, State};
use serde_json::Value;

/// Observed state of a Deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// The Deployment; `None` after it is deleted.
    pub deployment: Option<Deployment>,
    /// Its ReplicaSets, oldest first.
    pub replica_sets: Vec<ReplicaSet>,
    /// Number of pods, including terminating ones.
    pub pods: usize,
    /// Number of terminating pods.
    pub terminating: usize,
    /// Diagnosis of the rollout. `None` after the Deployment is deleted.
    pub diagnosis: Option<Diagnosis>,
}

/// RolloutBounds of a rolling update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolloutBounds {
    /// Maximum number of pods that are not terminating.
    pub max_total: i32,
    /// Minimum number of available pods.
    pub min_available: i32,
}

impl RolloutBounds {
    /// RolloutBounds of `deployment`: `maxSurge` is rounded up, `maxUnavailable` down, and at least one of them is 1
    /// (US-4.15).
    ///
    /// Example: 10 replicas, both 25%. The surge is 3 and 2 pods may be unavailable: at most 13, at least 8 available.
    pub fn of(deployment: &Deployment) -> Self {
        let desired = deployment.replicas();
        let Some(rolling) = &deployment.spec.strategy.rolling_update else {
            return Self { max_total: desired, min_available: 0 };
        };
        let scaled = |value: &Option<IntOrString>, round| {
            value.as_ref().and_then(|value| value.scaled(desired, round).ok()).unwrap_or(0)
        };
        let surge = scaled(&rolling.max_surge, Round::Up);
        let mut unavailable = scaled(&rolling.max_unavailable, Round::Down);
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        Self { max_total: desired + surge, min_available: desired - unavailable.min(desired) }
    }
}

impl Frame {
    /// The state as a table without colours, with a trailing newline.
    pub fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Some(deployment) = &self.deployment else {
            writeln!(out, "deployment deleted, {} pods left", self.pods)?;
            return self.write_replica_sets(out);
        };
        let (status, bounds) = (&deployment.status, RolloutBounds::of(deployment));
        let revision = annotation(&deployment.metadata.annotations, "deployment.kubernetes.io/revision");
        writeln!(
            out,
            "deployment {}  revision {revision}  image {}",
            deployment.metadata.name,
            image(&deployment.spec.template)
        )?;
        writeln!(
            out,
            "  desired {}  updated {}  ready {}  available {} (min {})  total {} (max {})  terminating {}",
            deployment.replicas(),
            status.updated_replicas,
            status.ready_replicas,
            status.available_replicas,
            bounds.min_available,
            status.replicas,
            bounds.max_total,
            self.terminating,
        )?;
        for condition in &status.conditions {
            writeln!(
                out,
                "  {}={} {}: {}",
                condition.type_, condition.status, condition.reason, condition.message
            )?;
        }
        self.write_replica_sets(out)?;
        // Always a line, so that the table does not jump.
        writeln!(out, "  {}", self.why().unwrap_or_default())
    }

    fn write_replica_sets(&self, out: &mut String) -> std::fmt::Result {
        if self.replica_sets.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "  {:<18} {:>3} {:<14} {:>7} {:>7} {:>5} {:>9}",
            "REPLICASET", "REV", "IMAGE", "DESIRED", "CURRENT", "READY", "AVAILABLE"
        )?;
        for replica_set in &self.replica_sets {
            let (ready, status) = (replica_set.status.ready_replicas, &replica_set.status);
            writeln!(
                out,
                "  {:<18} {:>3} {:<14} {:>7} {:>7} {:>5} {:>9}  {}",
                replica_set.metadata.name,
                annotation(&replica_set.metadata.annotations, "deployment.kubernetes.io/revision"),
                image(&replica_set.spec.template),
                replica_set.replicas(),
                status.replicas,
                ready,
                status.available_replicas,
                bar(status.replicas, status.available_replicas),
            )?;
        }
        Ok(())
    }

    /// State and cause of a rollout that a cause holds.
    pub fn cause(&self) -> Option<(State, Cause)> {
        let diagnosis = self.diagnosis.as_ref()?;
        Some((diagnosis.state, diagnosis.cause?))
    }

    /// The reason for which the rollout waits, on one line.
    pub fn why(&self) -> Option<String> {
        self.diagnosis.as_ref()?.reason().map(|reason| format!("why: {reason}"))
    }

    /// The state on one line, for output that is not a terminal.
    pub fn line(&self) -> String {
        let Some(deployment) = &self.deployment else {
            return format!("deployment deleted, {} pods left", self.pods);
        };
        let bounds = RolloutBounds::of(deployment);
        let sets: Vec<String> = self
            .replica_sets
            .iter()
            .filter(|set| set.replicas() > 0 || set.status.replicas > 0)
            .map(|set| {
                let (status, name) = (&set.status, &set.metadata.name);
                format!(
                    "{name} desired {} current {} ready {} available {}",
                    set.replicas(),
                    status.replicas,
                    status.ready_replicas,
                    status.available_replicas
                )
            })
            .collect();
        let progressing = deployment.condition("Progressing");
        format!(
            "available {} (>= {}), total {} (<= {}), {} | {}",
            deployment.status.available_replicas,
            bounds.min_available,
            deployment.status.replicas,
            bounds.max_total,
            progressing.map_or("no Progressing condition", |condition| &condition.reason),
            sets.join("; "),
        )
    }
}

/// One character per pod; available pods are filled.
fn bar(total: i32, available: i32) -> String {
    (0..total).map(|at| if at < available { '█' } else { '░' }).collect()
}

fn annotation<'a>(annotations: &'a kcm_api::Annotations, key: &str) -> &'a str {
    annotations.get(key).map_or("-", String::as_str)
}

fn image(template: &PodTemplate) -> String {
    let spec: Value = serde_json::from_str(&template.spec_json()).unwrap_or_default();
    spec["containers"][0]["image"].as_str().unwrap_or("-").to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "literals at the call site")]
    fn deployment(desired: i32, surge: Value, unavailable: Value) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "annotations": {"deployment.kubernetes.io/revision": "2"}},
            "spec": {
                "replicas": desired,
                "template": {"spec": {"containers": [{"name": "c", "image": "nginx:1.27"}]}},
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
                },
            },
            "status": {"replicas": 4, "availableReplicas": 3, "conditions": [
                {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "message": "is progressing."},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn bounds_round_surge_up_and_unavailable_down() {
        let bounds = RolloutBounds::of(&deployment(10, json!("25%"), json!("25%")));
        assert_eq!(bounds, RolloutBounds { max_total: 13, min_available: 8 });
    }

    #[test]
    fn bounds_allow_one_unavailable_pod_if_both_are_zero() {
        let bounds = RolloutBounds::of(&deployment(4, json!(0), json!("10%")));
        assert_eq!(bounds, RolloutBounds { max_total: 4, min_available: 3 });
    }

    #[test]
    fn table_shows_replica_sets_bounds_and_conditions() {
        let set: ReplicaSet = serde_json::from_value(json!({
            "metadata": {"name": "web-1", "annotations": {"deployment.kubernetes.io/revision": "1"}},
            "spec": {"replicas": 4, "template": {"spec": {"containers": [{"name": "c", "image": "nginx:1.26"}]}}},
            "status": {"replicas": 4, "readyReplicas": 3, "availableReplicas": 3},
        }))
        .unwrap();
        let deployment = deployment(4, json!(1), json!(1));
        let frame = Frame {
            deployment: Some(deployment),
            replica_sets: vec![set],
            pods: 4,
            terminating: 0,
            diagnosis: None,
        };
        let table = frame.table();
        for part in ["(min 3)", "(max 5)", "web-1", "nginx:1.26", "███░", "Progressing=True"] {
            assert!(table.contains(part), "no {part:?} in:\n{table}");
        }
        assert!(frame.line().contains("web-1 desired 4 current 4 ready 3 available 3"), "{}", frame.line());
    }
}
