//! ReplicationControllers, and their conversion to ReplicaSets.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::{
    LabelSelector, ObjectMeta, PodTemplate, ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus,
};

/// Group and version of ReplicationControllers.
pub const API_VERSION: &str = "v1";

/// Kind of a [`ReplicationController`].
pub const KIND: &str = "ReplicationController";

lossless! {
    /// A ReplicationController. Unknown fields are kept in the `extra` of their parent.
    ///
    /// Controllers process it as a [`ReplicaSet`]. The conversion loses no field in either direction (US-5.11).
    pub struct ReplicationController {
        /// `v1`. Empty in items of a list.
        pub api_version: String = "apiVersion",
        /// `ReplicationController`. Empty in items of a list.
        pub kind: String = "kind",
        /// Metadata.
        pub metadata: ObjectMeta = "metadata" always,
        /// Desired state.
        pub spec: ReplicationControllerSpec = "spec" always,
        /// Observed state.
        pub status: ReplicationControllerStatus = "status" always,
    }
}

lossless! {
    /// Desired state of a ReplicationController.
    pub struct ReplicationControllerSpec {
        /// Desired number of pods. The API server sets 1 by default.
        pub replicas: Option<i32> = "replicas",
        /// Time for which a pod must be ready to be available, in seconds.
        pub min_ready_seconds: i32 = "minReadySeconds",
        /// Labels of the pods. The API server sets those of the template by default.
        pub selector: BTreeMap<String, String> = "selector",
        /// Template of the pods.
        pub template: Option<PodTemplate> = "template",
    }
}

lossless! {
    /// Observed state of a ReplicationController. It has no count of terminating pods.
    pub struct ReplicationControllerStatus {
        /// Number of pods that are neither finished nor terminating.
        pub replicas: i32 = "replicas" always,
        /// Number of those pods that have all labels of the template.
        pub fully_labeled_replicas: i32 = "fullyLabeledReplicas",
        /// Number of ready pods.
        pub ready_replicas: i32 = "readyReplicas",
        /// Number of pods that have been ready for `minReadySeconds`.
        pub available_replicas: i32 = "availableReplicas",
        /// Generation of the spec that the status was computed from.
        pub observed_generation: i64 = "observedGeneration",
        /// Conditions. They have the fields of a ReplicaSet's.
        pub conditions: Vec<ReplicaSetCondition> = "conditions",
    }
}

/// Property of a ReplicaSet that a ReplicationController cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Inexpressible {
    /// The selector has expressions or unknown fields.
    #[error("the selector is more than labels with values")]
    Selector,
    /// The selector matches everything. A ReplicationController without selector selects nothing.
    #[error("the selector matches everything")]
    MatchesEverything,
    /// The status counts terminating pods.
    #[error("the status counts terminating pods")]
    TerminatingReplicas,
}

impl From<ReplicationController> for ReplicaSet {
    /// Converts all fields except `apiVersion` and `kind`, which are empty.
    ///
    /// DEVIATION: a ReplicationController without labels in its selector selects nothing. Upstream distinguishes an
    /// empty selector, which matches all pods, from none; API servers reject both.
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

    /// An object with some of `members` and unknown ones.
    fn object(
        members: Vec<(&'static str, BoxedStrategy<Value>)>,
    ) -> impl Strategy<Value = Map<String, Value>> {
        let members: Vec<_> = members
            .into_iter()
            .map(|(name, value)| proptest::option::of(value).prop_map(move |value| (name.to_owned(), value)))
            .collect();
        // A field of ReplicaSets only is unknown here.
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
        fn conversion_round_trip(original in controller()) {
            let controller: ReplicationController = serde_json::from_value(original.clone()).unwrap();
            let replica_set = ReplicaSet::from(controller.clone());
            prop_assert_eq!(replica_set.status.terminating_replicas, None);
            let back = ReplicationController::try_from(replica_set).unwrap();
            prop_assert_eq!(&back, &controller);
            prop_assert_eq!(serde_json::to_value(&back).unwrap(), original);
        }
    }

    #[test]
    fn selector_is_converted() {
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
    fn inexpressible_replica_sets_are_errors() {
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
