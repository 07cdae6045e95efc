//! ReplicationControllers, and the ReplicaSet that each of them is to a controller.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::{
    LabelSelector, ObjectMeta, PodTemplate, ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus,
};

/// Group and version of ReplicationControllers.
pub const API_VERSION: &str = "v1";

/// The kind of a [`ReplicationController`].
pub const KIND: &str = "ReplicationController";

lossless! {
    /// A ReplicationController, whole: what is not known here is kept in the `extra` of the place it came in.
    ///
    /// What is to act on it is written for [`ReplicaSet`]s: convert it into one, which loses nothing, and the one
    /// with a changed status back. Upstream does the same (US-5.11).
    pub struct ReplicationController {
        /// Always `v1`, or empty in a list's items.
        pub api_version: String = "apiVersion",
        /// Always `ReplicationController`, or empty in a list's items.
        pub kind: String = "kind",
        /// Name, labels, owners and so on.
        pub metadata: ObjectMeta = "metadata" always,
        /// What is wanted.
        pub spec: ReplicationControllerSpec = "spec" always,
        /// What was last seen.
        pub status: ReplicationControllerStatus = "status" always,
    }
}

lossless! {
    /// What is wanted of a ReplicationController.
    pub struct ReplicationControllerSpec {
        /// How many pods. The server fills in 1.
        pub replicas: Option<i32> = "replicas",
        /// How long a pod must have been ready to count as available, in seconds.
        pub min_ready_seconds: i32 = "minReadySeconds",
        /// The labels of the pods that belong to it. The server fills in the template's.
        pub selector: BTreeMap<String, String> = "selector",
        /// What its pods look like.
        pub template: Option<PodTemplate> = "template",
    }
}

lossless! {
    /// What was last seen of a ReplicationController. Unlike a ReplicaSet's it does not count terminating pods.
    pub struct ReplicationControllerStatus {
        /// Pods that are neither finished nor terminating.
        pub replicas: i32 = "replicas" always,
        /// Of those, the ones that carry all the template's labels.
        pub fully_labeled_replicas: i32 = "fullyLabeledReplicas",
        /// Pods that are ready.
        pub ready_replicas: i32 = "readyReplicas",
        /// Pods that have been ready long enough.
        pub available_replicas: i32 = "availableReplicas",
        /// The generation of the spec that this status follows from.
        pub observed_generation: i64 = "observedGeneration",
        /// The latest observations, which are of a ReplicaSet's form.
        pub conditions: Vec<ReplicaSetCondition> = "conditions",
    }
}

/// A ReplicaSet says what a ReplicationController cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Inexpressible {
    /// Its selector has expressions, or members that this version does not know.
    #[error("the selector is more than labels with values")]
    Selector,
    /// It selects everything; what has no labels in its selector selects nothing.
    #[error("the selector matches everything")]
    MatchesEverything,
    /// Its status counts terminating pods.
    #[error("the status counts terminating pods")]
    TerminatingReplicas,
}

impl From<ReplicationController> for ReplicaSet {
    /// Keeps all but the type, which a [`ReplicaSet`] that came in a list does not have either.
    ///
    /// DEVIATION: without labels to select by it selects nothing. Upstream tells an empty selector, with which all
    /// pods would match, from none; no server lets either through.
    fn from(controller: ReplicationController) -> Self {
        let ReplicationController { api_version: _, kind: _, metadata, spec, status, extra } = controller;
        let selector = (!spec.selector.is_empty())
            .then(|| LabelSelector { match_labels: spec.selector, ..LabelSelector::default() });
        Self {
            metadata,
            spec: ReplicaSetSpec {
                replicas: spec.replicas,
                min_ready_seconds: spec.min_ready_seconds,
                selector,
                template: spec.template.unwrap_or_default(),
                extra: spec.extra,
            },
            status: ReplicaSetStatus {
                replicas: status.replicas,
                fully_labeled_replicas: status.fully_labeled_replicas,
                ready_replicas: status.ready_replicas,
                available_replicas: status.available_replicas,
                terminating_replicas: None,
                observed_generation: status.observed_generation,
                conditions: status.conditions,
                extra: status.extra,
            },
            extra,
            ..Self::default()
        }
    }
}

impl TryFrom<ReplicaSet> for ReplicationController {
    type Error = Inexpressible;

    fn try_from(replica_set: ReplicaSet) -> Result<Self, Inexpressible> {
        let ReplicaSet { api_version: _, kind: _, metadata, spec, status, extra } = replica_set;
        if status.terminating_replicas.is_some() {
            return Err(Inexpressible::TerminatingReplicas);
        }
        let selector = match spec.selector {
            None => BTreeMap::new(),
            Some(selector) if !selector.match_expressions.is_empty() || !selector.extra.is_empty() => {
                return Err(Inexpressible::Selector);
            }
            Some(selector) if selector.match_labels.is_empty() => {
                return Err(Inexpressible::MatchesEverything);
            }
            Some(selector) => selector.match_labels,
        };
        Ok(Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            metadata,
            spec: ReplicationControllerSpec {
                replicas: spec.replicas,
                min_ready_seconds: spec.min_ready_seconds,
                selector,
                template: Some(spec.template).filter(|template| *template != PodTemplate::default()),
                extra: spec.extra,
            },
            status: ReplicationControllerStatus {
                replicas: status.replicas,
                fully_labeled_replicas: status.fully_labeled_replicas,
                ready_replicas: status.ready_replicas,
                available_replicas: status.available_replicas,
                observed_generation: status.observed_generation,
                conditions: status.conditions,
                extra: status.extra,
            },
            extra,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::{
        collection::{btree_map, vec},
        prelude::*,
    };
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::{LabelSelectorRequirement, Selector};

    fn labels() -> impl Strategy<Value = Value> {
        btree_map("[a-z]{1,3}", "[a-z]{0,3}", 1..4).prop_map(|labels| json!(labels))
    }

    fn count() -> impl Strategy<Value = Value> {
        (1..9).prop_map(Value::from)
    }

    fn template() -> impl Strategy<Value = Value> {
        labels().prop_map(|labels| json!({"metadata": {"labels": labels}, "spec": {"x": 1.50}}))
    }

    fn conditions() -> impl Strategy<Value = Value> {
        let condition = ("[A-Z]{1,3}", "[a-z]{1,3}").prop_map(|(type_, reason)| {
            json!({"type": type_, "status": "True", "reason": reason, "future": [null, {}],
                   "lastTransitionTime": "2026-01-02T03:04:05Z"})
        });
        vec(condition, 1..3).prop_map(Value::from)
    }

    /// An object with any of `members`, and perhaps some that nobody knows.
    fn object(
        members: Vec<(&'static str, BoxedStrategy<Value>)>,
    ) -> impl Strategy<Value = Map<String, Value>> {
        let members: Vec<_> = members
            .into_iter()
            .map(|(name, value)| proptest::option::of(value).prop_map(move |value| (name.to_owned(), value)))
            .collect();
        // A ReplicaSet's own field is just another unknown one here.
        let unknown = proptest::option::of(prop_oneof![Just("future"), Just("terminatingReplicas")]);
        (members, unknown, count()).prop_map(|(members, unknown, value)| {
            let known = members.into_iter().filter_map(|(name, value)| Some((name, value?)));
            known.chain(unknown.map(|name| (name.to_owned(), value))).collect()
        })
    }

    fn controller() -> impl Strategy<Value = Value> {
        let spec = object(vec![
            ("replicas", (0..9).prop_map(Value::from).boxed()),
            ("minReadySeconds", count().boxed()),
            ("selector", labels().boxed()),
            ("template", template().boxed()),
        ]);
        let status = object(vec![
            ("fullyLabeledReplicas", count().boxed()),
            ("readyReplicas", count().boxed()),
            ("availableReplicas", count().boxed()),
            ("observedGeneration", count().boxed()),
            ("conditions", conditions().boxed()),
        ]);
        let rest = object(Vec::new());
        (spec, status, rest, count()).prop_map(|(spec, mut status, mut whole, replicas)| {
            status.insert("replicas".to_owned(), replicas);
            whole.extend([
                ("apiVersion".to_owned(), json!(API_VERSION)),
                ("kind".to_owned(), json!(KIND)),
                ("metadata".to_owned(), json!({"name": "web", "namespace": "shop", "future": {"a": 1}})),
                ("spec".to_owned(), spec.into()),
                ("status".to_owned(), status.into()),
            ]);
            whole.into()
        })
    }

    proptest! {
        #[test]
        fn controller_comes_back_from_its_replica_set_as_it_was(original in controller()) {
            let controller: ReplicationController = serde_json::from_value(original.clone()).unwrap();
            let replica_set = ReplicaSet::from(controller.clone());
            prop_assert_eq!(replica_set.status.terminating_replicas, None);
            let back = ReplicationController::try_from(replica_set).unwrap();
            prop_assert_eq!(&back, &controller);
            prop_assert_eq!(serde_json::to_value(&back).unwrap(), original);
        }
    }

    #[test]
    fn controller_selects_what_its_replica_set_selects() {
        let selects = |selector: Value, labels: Value| {
            let controller = json!({"spec": {"selector": selector}});
            let controller: ReplicationController = serde_json::from_value(controller).unwrap();
            let selector = Selector::new(ReplicaSet::from(controller).spec.selector.as_ref()).unwrap();
            selector.matches(&serde_json::from_value(labels).unwrap())
        };
        assert!(selects(json!({"app": "web"}), json!({"app": "web", "tier": "front"})));
        assert!(!selects(json!({"app": "web"}), json!({"app": "api"})));
        for nothing in [Value::Null, json!({})] {
            assert!(!selects(nothing.clone(), json!({"app": "web"})), "{nothing}");
            assert!(!selects(nothing.clone(), json!({})), "{nothing}");
        }
    }

    #[test]
    fn replica_set_that_says_more_than_a_controller_can_is_refused() {
        let try_with = |change: fn(&mut ReplicaSet)| {
            let mut replica_set = ReplicaSet::default();
            change(&mut replica_set);
            ReplicationController::try_from(replica_set)
        };
        assert!(try_with(|_| {}).is_ok());
        assert_eq!(
            try_with(|set| set.status.terminating_replicas = Some(0)),
            Err(Inexpressible::TerminatingReplicas)
        );
        assert_eq!(
            try_with(|set| set.spec.selector = Some(LabelSelector::default())),
            Err(Inexpressible::MatchesEverything)
        );
        let selectors = [
            LabelSelector {
                match_expressions: vec![LabelSelectorRequirement::default()],
                ..LabelSelector::default()
            },
            serde_json::from_value(json!({"matchLabels": {"app": "web"}, "future": 1})).unwrap(),
        ];
        for selector in selectors {
            let mut replica_set = ReplicaSet::default();
            replica_set.spec.selector = Some(selector);
            assert_eq!(ReplicationController::try_from(replica_set), Err(Inexpressible::Selector));
        }
    }
}
