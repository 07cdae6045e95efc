//! Indexes of pods, ReplicaSets and Deployments, and lookups that use them.
//!
//! A sync reads the objects of one owner and the orphans that it can adopt. With an index for each lookup, its cost does
//! not depend on the size of the namespace. Upstream lists the ReplicaSets of the namespace in each sync of a Deployment,
//! and its pods for each related ReplicaSet when it scales down.
//!
//! Upstream counterparts: `AddPodControllerIndexer`, `AddPodControllerUIDIndexer`, the ReplicaSet controller's
//! `controllerUID` index.

use std::sync::Arc;

use kcm_api::{Deployment, LabelSelector, Labels, POD_TEMPLATE_HASH_LABEL, ReplicaSet, Selector};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_informer::{IndexName, Indexers, Object, Store, StoreReadGuard};

use crate::PodView;

/// Indexes of pods.
pub mod pod_index {
    use super::IndexName;

    /// By the UID of the managing owner.
    pub const CONTROLLER_UID: IndexName = IndexName("controllerUID");
    /// Orphans by namespace.
    pub const ORPHANS: IndexName = IndexName("orphans");
    /// By namespace and `pod-template-hash` label, as `namespace/hash`.
    pub const TEMPLATE_HASH: IndexName = IndexName("podTemplateHash");
    /// By namespace.
    pub const NAMESPACE: IndexName = IndexName::NAMESPACE;
}

/// Indexes of ReplicaSets.
pub mod replica_set_index {
    use super::IndexName;

    /// By the UID of the managing owner.
    pub const CONTROLLER_UID: IndexName = IndexName("controllerUID");
    /// Orphans by namespace.
    pub const ORPHANS: IndexName = IndexName("orphans");
    /// By a label that the selector requires. See [`may_select`](super::may_select).
    pub const SELECTOR: IndexName = IndexName("selector");
}

/// Indexes of Deployments.
pub mod deployment_index {
    use super::IndexName;

    /// By a label that the selector requires. See [`may_select`](super::may_select).
    pub const SELECTOR: IndexName = IndexName("selector");
}

/// Returns the indexers of [`pod_index`].
pub fn pod_indexers<P: PodView>() -> Indexers<P> {
    Indexers::new()
        .with(pod_index::CONTROLLER_UID, P::controller_uid)
        .with(pod_index::ORPHANS, |pod: &P| pod.controller().is_none().then(|| pod.key().namespace))
        .with(pod_index::TEMPLATE_HASH, |pod: &P| {
            let hash = pod.label(POD_TEMPLATE_HASH_LABEL)?;
            Some(template_hash_value(pod.namespace_str(), hash).into())
        })
        .with_namespace()
}

/// Returns the indexers of [`replica_set_index`].
pub fn replica_set_indexers() -> Indexers<ReplicaSet> {
    Indexers::new()
        .with(replica_set_index::CONTROLLER_UID, |replica_set: &ReplicaSet| {
            replica_set.metadata.controller().map(|controller| Arc::clone(&controller.uid))
        })
        .with(replica_set_index::ORPHANS, |replica_set: &ReplicaSet| {
            replica_set.metadata.controller().is_none().then(|| Arc::clone(&replica_set.metadata.namespace))
        })
        .with_many(replica_set_index::SELECTOR, |replica_set: &ReplicaSet, values| {
            push_selector_values(&replica_set.metadata.namespace, replica_set.spec.selector.as_ref(), values);
        })
}

/// Returns the indexers of [`deployment_index`].
pub fn deployment_indexers() -> Indexers<Deployment> {
    Indexers::new().with_many(deployment_index::SELECTOR, |deployment: &Deployment, values| {
        push_selector_values(&deployment.metadata.namespace, deployment.spec.selector.as_ref(), values);
    })
}

/// Adds the values under which an object with `selector` is found in a selector index: one label that the selector
/// requires, or each of the labels of which it requires one.
///
/// A selector without such a label is found under its namespace. A missing or empty selector has no values.
fn push_selector_values(namespace: &str, selector: Option<&LabelSelector>, values: &mut Vec<Arc<str>>) {
    let Some(LabelSelector { match_labels, match_expressions, .. }) = selector else { return };
    // Few selectors require the same template hash.
    let hash = match_labels.get_key_value(POD_TEMPLATE_HASH_LABEL);
    if let Some((key, value)) = hash.or_else(|| match_labels.first_key_value()) {
        values.push(label_value(namespace, key, value).into());
    } else if let Some(any) = match_expressions.iter().find(|one| one.operator == "In") {
        values.extend(any.values.iter().map(|value| Arc::from(label_value(namespace, &any.key, value))));
    } else if !match_expressions.is_empty() {
        values.push(without_label_value(namespace).into());
    }
}

fn label_value(namespace: &str, key: &str, value: &str) -> String {
    format!("{namespace}/{key}={value}")
}

fn without_label_value(namespace: &str) -> String {
    format!("{namespace}/")
}

/// Returns the objects of `namespace` whose selectors require one of `labels`, or no particular label. The caller
/// compares the whole selector.
///
/// The number of objects does not depend on the size of the namespace, unless its selectors require the same label. No
/// object is returned twice.
pub fn may_select<'s, K: Object>(
    objects: &'s StoreReadGuard<'_, K>,
    selector_index: IndexName,
    namespace: &str,
    labels: &Labels,
) -> impl Iterator<Item = &'s Arc<K>> {
    let labels = labels.iter().map(|(key, value)| label_value(namespace, key, value));
    labels
        .chain([without_label_value(namespace)])
        .flat_map(move |value| objects.by_index(selector_index, &value))
}

fn template_hash_value(namespace: &str, hash: &str) -> String {
    format!("{namespace}/{hash}")
}

/// Returns the pods whose managing owner has the kind, namespace, name and UID of `owner`.
///
/// The group of the kind is not compared (US-3.1).
pub fn pods_of<'s, P: PodView>(
    pods: &'s StoreReadGuard<'_, P>,
    owner: &OwnerIdentity,
) -> impl Iterator<Item = &'s Arc<P>> {
    // The UID is sufficient for references that a controller wrote, but users can write others.
    pods.by_index(pod_index::CONTROLLER_UID, &owner.uid).filter(|pod| {
        *pod.namespace_str() == *owner.namespace
            && pod.controller().is_some_and(|reference| {
                *reference.kind == *owner.kind
                    && *reference.name == *owner.name
                    && *reference.uid == *owner.uid
            })
    })
}

/// Returns the pods of `namespace` without a managing owner.
pub fn orphan_pods<'s, P: PodView>(
    pods: &'s StoreReadGuard<'_, P>,
    namespace: &str,
) -> impl Iterator<Item = &'s Arc<P>> {
    pods.by_index(pod_index::ORPHANS, namespace)
}

/// Returns the pods of `namespace` that `selector` matches, with any owner.
///
/// If the selector requires a value of the `pod-template-hash` label, as those of a Deployment's ReplicaSets, only pods
/// with this value are compared. Otherwise all pods of the namespace are compared.
pub fn pods_matching<P: PodView>(pods: &Store<P>, namespace: &str, selector: &Selector) -> Vec<Arc<P>> {
    let mut found = match selector.required_value(POD_TEMPLATE_HASH_LABEL) {
        Some(hash) => pods.by_index(pod_index::TEMPLATE_HASH, &template_hash_value(namespace, hash)),
        None => pods.by_index(pod_index::NAMESPACE, namespace),
    };
    found.retain(|pod| selector.matches_object(&**pod));
    found
}

/// Returns the ReplicaSets whose managing owner has the UID `owner_uid`.
pub fn replica_sets_of<'s>(
    replica_sets: &'s StoreReadGuard<'_, ReplicaSet>,
    owner_uid: &str,
) -> impl Iterator<Item = &'s Arc<ReplicaSet>> {
    replica_sets.by_index(replica_set_index::CONTROLLER_UID, owner_uid)
}

/// Returns the ReplicaSets that `owner` can claim: those that it manages, and the orphans of its namespace.
///
/// All lookups read one state of the store: a ReplicaSet that is adopted or released meanwhile is returned once.
pub fn claimable_replica_sets<'s>(
    replica_sets: &'s StoreReadGuard<'_, ReplicaSet>,
    owner: &OwnerIdentity,
) -> impl Iterator<Item = &'s Arc<ReplicaSet>> {
    replica_sets_of(replica_sets, &owner.uid)
        .filter(|set| set.metadata.namespace == owner.namespace)
        .chain(replica_sets.by_index(replica_set_index::ORPHANS, &owner.namespace))
}

#[cfg(test)]
mod tests;
