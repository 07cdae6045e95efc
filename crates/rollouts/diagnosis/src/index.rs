//! Indexes of a snapshot.

use std::{collections::HashMap, hash::Hash};

use kcm_api::{LabelSelector, Labels, Selector};
use kcm_clock::Timestamp;
use serde_json::Value;

use crate::{
    diagnosis::Diagnosis,
    events::Events,
    json::{controller, finalizers, is_terminating, members, text, time},
    pods::REMOVAL_PATIENCE,
    rollout::{DiagnoseError, Rollout},
    snapshot::Snapshot,
};

/// Label as key and value.
type Label<'a> = (&'a str, &'a str);

/// Objects of a [`Snapshot`] by owner, name and label.
///
/// The diagnosis of one rollout then takes time proportional to its own objects, and that of all rollouts of a namespace
/// time proportional to the namespace.
#[derive(Debug)]
pub struct Index<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) events: Events<'a>,
    /// End of the grace period of the last pod that terminates and has no finalizer.
    last_removal: Option<Timestamp>,
    replica_sets: HashMap<&'a str, Vec<&'a Value>>,
    pods: HashMap<&'a str, Vec<&'a Value>>,
    pods_by_label: HashMap<Label<'a>, Vec<&'a Value>>,
    nodes: HashMap<&'a str, &'a Value>,
    autoscalers: HashMap<&'a str, &'a Value>,
    deployments: Selectors<'a>,
    disruption_budgets: Selectors<'a>,
}

impl<'a> Index<'a> {
    /// Creates the indexes of a snapshot.
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let stops = |pod: &&Value| is_terminating(pod) && finalizers(pod).is_empty();
        let pods = snapshot.pods.seen();
        let pods_by_label =
            pods.iter().flat_map(|pod| labels_of(pod, "/metadata/labels").map(move |label| (label, pod)));
        let scales = |autoscaler: &&Value| text(autoscaler, "/spec/scaleTargetRef/kind") == "Deployment";
        let autoscalers = snapshot.autoscalers.seen().iter().filter(scales).rev();
        Self {
            snapshot,
            events: Events::new(snapshot.events.seen()),
            last_removal: pods
                .iter()
                .filter(stops)
                .filter_map(|pod| time(pod, "/metadata/deletionTimestamp"))
                .max(),
            replica_sets: by_owner(snapshot.replica_sets.seen()),
            pods: by_owner(pods),
            pods_by_label: groups(pods_by_label),
            nodes: snapshot.nodes.seen().iter().map(|node| (text(node, "/metadata/name"), node)).collect(),
            autoscalers: autoscalers.map(|one| (text(one, "/spec/scaleTargetRef/name"), one)).collect(),
            deployments: Selectors::new(snapshot.deployments.seen()),
            disruption_budgets: Selectors::new(snapshot.disruption_budgets.seen()),
        }
    }

    /// Explains the state of the rollout of `deployment` at `now`, the time of the API server at which the snapshot of its
    /// namespace was read.
    ///
    /// # Errors
    ///
    /// If the Deployment or one of its ReplicaSets cannot be decoded.
    pub fn diagnose(&self, deployment: &Value, now: Timestamp) -> Result<Diagnosis, DiagnoseError> {
        Ok(Rollout::new(self, deployment, now)?.diagnose())
    }

    /// `true` if a terminating pod will be removed, which frees quota. A pod that is overdue may remain forever.
    pub(crate) fn frees_quota(&self, now: Timestamp) -> bool {
        self.last_removal.is_some_and(|end| now.duration_since(end) <= REMOVAL_PATIENCE)
    }

    /// ReplicaSets that the object controls.
    pub(crate) fn replica_sets_of(&self, uid: &str) -> &[&'a Value] {
        self.replica_sets.get(uid).map_or(&[], Vec::as_slice)
    }

    /// Pods that the object controls.
    pub(crate) fn pods_of(&self, uid: &str) -> &[&'a Value] {
        self.pods.get(uid).map_or(&[], Vec::as_slice)
    }

    /// Node with this name.
    pub(crate) fn node(&self, name: &str) -> Option<&'a Value> {
        self.nodes.get(name).copied()
    }

    /// HorizontalPodAutoscaler of a Deployment.
    pub(crate) fn autoscaler_of(&self, deployment: &str) -> Option<&'a Value> {
        self.autoscalers.get(deployment).copied()
    }

    /// Deployments with selectors that match the labels.
    pub(crate) fn deployments_matching(&self, labels: &Labels) -> Vec<&'a Value> {
        self.deployments.matching(labels)
    }

    /// PodDisruptionBudgets with selectors that match the labels.
    pub(crate) fn disruption_budgets_matching(&self, labels: &Labels) -> Vec<&'a Value> {
        self.disruption_budgets.matching(labels)
    }

    /// Pods that the selector of `object` matches.
    pub(crate) fn pods_matching(&self, object: &Value) -> Vec<&'a Value> {
        let Some(selector) = selector(object) else { return Vec::new() };
        let with = |label| self.pods_by_label.get(&label).map_or(&[][..], Vec::as_slice);
        let fewest = labels_of(object, MATCH_LABELS).map(with).min_by_key(|pods| pods.len());
        let is_matching = |pod: &&Value| selector.matches(&labels(pod, "/metadata/labels"));
        match fewest {
            Some(pods) => pods.iter().copied().filter(is_matching).collect(),
            None => self.snapshot.pods.seen().iter().filter(is_matching).collect(),
        }
    }
}

/// Objects by their selectors.
#[derive(Debug)]
struct Selectors<'a> {
    /// Selectors that require labels, by that of their labels which the fewest selectors require.
    by_label: HashMap<Label<'a>, Vec<(&'a Value, Selector)>>,
    /// Selectors without `matchLabels`.
    others: Vec<(&'a Value, Selector)>,
}

impl<'a> Selectors<'a> {
    fn new(objects: &'a [Value]) -> Self {
        let mut counts: HashMap<Label<'_>, usize> = HashMap::new();
        for label in objects.iter().flat_map(|object| labels_of(object, MATCH_LABELS)) {
            *counts.entry(label).or_default() += 1;
        }
        let selectors = objects.iter().filter_map(|object| {
            let selector = selector(object).filter(|selector| !selector.is_empty())?;
            let rarest = labels_of(object, MATCH_LABELS).min_by_key(|label| counts.get(label).copied());
            Some((rarest, (object, selector)))
        });
        let (with, without): (Vec<_>, Vec<_>) = selectors.partition(|(label, _)| label.is_some());
        Self {
            by_label: groups(with.into_iter().filter_map(|(label, entry)| Some((label?, entry)))),
            others: without.into_iter().map(|(_, entry)| entry).collect(),
        }
    }

    fn matching(&self, labels: &Labels) -> Vec<&'a Value> {
        let with = labels.iter().filter_map(|(key, value)| self.by_label.get(&(&**key, &**value)));
        let candidates = with.flatten().chain(&self.others);
        candidates.filter(|(_, selector)| selector.matches(labels)).map(|(object, _)| *object).collect()
    }
}

const MATCH_LABELS: &str = "/spec/selector/matchLabels";

/// Labels at `pointer`.
pub(crate) fn labels(object: &Value, pointer: &str) -> Labels {
    labels_of(object, pointer).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn labels_of<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = Label<'a>> + use<'a> {
    members(object, pointer).filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

fn selector(object: &Value) -> Option<Selector> {
    let selector: LabelSelector = serde_json::from_value(object.pointer("/spec/selector")?.clone()).ok()?;
    Selector::new(Some(&selector)).ok()
}

fn by_owner(objects: &[Value]) -> HashMap<&str, Vec<&Value>> {
    groups(objects.iter().filter_map(|object| Some((controller(object)?, object))))
}

fn groups<K: Hash + Eq, V>(pairs: impl Iterator<Item = (K, V)>) -> HashMap<K, Vec<V>> {
    let mut groups: HashMap<K, Vec<V>> = HashMap::new();
    for (key, value) in pairs {
        groups.entry(key).or_default().push(value);
    }
    groups
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::known::Known;

    fn object(name: &str, selector: &Value, labels: &Value) -> Value {
        json!({ "metadata": { "name": name, "labels": labels }, "spec": { "selector": selector } })
    }

    fn names<'a>(objects: &[&'a Value]) -> Vec<&'a str> {
        let mut names: Vec<&str> = objects.iter().map(|object| text(object, "/metadata/name")).collect();
        names.sort_unstable();
        names
    }

    /// Deployments that share a label, and one without `matchLabels`. Each of the first has a pod.
    fn snapshot() -> Snapshot {
        let labels = |name: &str| json!({ "part-of": "shop", "app": name });
        let apps = ["web", "api", "db"];
        let expression =
            json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["web", "db"] }] });
        let mut deployments: Vec<Value> =
            apps.map(|name| object(name, &json!({ "matchLabels": labels(name) }), &json!({}))).into();
        deployments.push(object("expression", &expression, &json!({})));
        deployments.push(object("empty", &json!({}), &json!({})));
        let pods = apps.map(|name| object(name, &json!({}), &labels(name)));
        Snapshot {
            deployments: Known::Read(deployments),
            pods: Known::Read(pods.into()),
            ..Snapshot::default()
        }
    }

    #[test]
    fn selectors_that_match() {
        let snapshot = snapshot();
        let index = Index::new(&snapshot);
        let matching = |name: &str| {
            let labels = [("part-of", "shop"), ("app", name)].map(|(key, value)| (key.into(), value.into()));
            names(&index.deployments_matching(&Labels::from(labels)))
        };
        assert_eq!(matching("web"), ["expression", "web"]);
        assert_eq!(matching("api"), ["api"]);
        assert_eq!(matching("other"), [""; 0]);
        // A lookup compares few selectors, although all have the label `part-of`.
        assert!(index.deployments.by_label.values().all(|selectors| selectors.len() == 1));
    }

    #[test]
    fn pods_of_selectors() {
        let snapshot = snapshot();
        let index = Index::new(&snapshot);
        let pods = snapshot.deployments.seen().iter().map(|one| names(&index.pods_matching(one)));
        let expected = [vec!["web"], vec!["api"], vec!["db"], vec!["db", "web"], vec!["api", "db", "web"]];
        assert_eq!(pods.collect::<Vec<_>>(), expected);
    }
}
