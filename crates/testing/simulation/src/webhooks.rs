//! Admission webhooks for the pods that managers create.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kcm_apiserver::{AdmissionHook, ApiStatus, Resource, StatusReason, WatchEvent};
use kcm_invariants::Entry;
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    choices::Choices,
    scenario::PodWebhook,
    surprises::{self, Alternative, StepKind},
};

/// Annotations that slow the simulated kubelet down.
const READY_DELAY: &str = "kube-sandbox/ready-delay";
const STOP_DELAY: &str = "kube-sandbox/stop-delay";

/// Returns the webhooks and the choices for new pods as one. `None` if there are none.
pub(crate) fn admission(webhooks: &[PodWebhook], choices: &Arc<Choices>) -> Option<AdmissionHook> {
    if webhooks.is_empty() && !choices.is_on() {
        return None;
    }
    let (webhooks, known) = (webhooks.to_vec(), Mutex::<BTreeSet<String>>::default());
    let choices = Arc::clone(choices);
    Some(Arc::new(move |resource, object| {
        if resource != Resource::PODS {
            return Ok(());
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let is_known = !known.lock().insert(name.clone());
        webhooks.iter().try_for_each(|webhook| admit(*webhook, &name, is_known, object))?;
        let annotation = match choices.choose("new pod", StepKind::PodCreation) {
            Some(Alternative::SlowStart) => READY_DELAY,
            Some(Alternative::SlowStop) => STOP_DELAY,
            _ => return Ok(()),
        };
        object["metadata"]["annotations"][annotation] = format!("{}s", surprises::delay().as_secs()).into();
        Ok(())
    }))
}

fn admit(webhook: PodWebhook, name: &str, is_known: bool, pod: &mut Value) -> Result<(), ApiStatus> {
    let is_refused = match webhook {
        PodWebhook::RefuseNames { per_mille } => share(name) < per_mille,
        PodWebhook::RefuseKnownNames => is_known,
        PodWebhook::StripOwners { per_mille } => {
            if share(name) < per_mille
                && let Some(metadata) = pod["metadata"].as_object_mut()
            {
                metadata.remove("ownerReferences");
            }
            false
        }
    };
    if is_refused {
        let message =
            format!("admission webhook \"w.example.com\" denied the request: the name {name} is refused");
        return Err(ApiStatus::new(StatusReason::Forbidden, message));
    }
    Ok(())
}

/// A number in `0..1000` for a name.
fn share(name: &str) -> u32 {
    // FNV-1a.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    u32::try_from((hash >> 20) % 1000).unwrap_or(0)
}

/// Owner references that webhooks have removed from created pods. The pods are judged as pods of these owners, which adopt
/// them as soon as their caches contain them.
#[derive(Debug, Default)]
pub(crate) struct RemovedOwners {
    by_uid: BTreeMap<String, RemovedOwner>,
    /// Pod that the current write adopts.
    adopted: Option<Adopted>,
}

#[derive(Debug)]
struct Adopted {
    namespace: String,
    name: String,
    /// UID of the controller that was removed.
    removed_owner: String,
}

#[derive(Debug)]
struct RemovedOwner {
    references: Value,
    /// Labels of the created pod. The owner does not adopt a pod with other labels.
    labels: Value,
}

impl RemovedOwners {
    /// Begins a write. Notes the pod that it has created, if it has no owner and one was requested.
    pub(crate) fn note(&mut self, entry: &Entry, caused: &[WatchEvent]) {
        self.adopted = None;
        let is_creation = entry.resource == "pods" && entry.verb == "create";
        let requested = entry.body.as_ref().and_then(|body| body.pointer("/metadata/ownerReferences"));
        if let (true, [WatchEvent::Added(pod)], Some(references)) = (is_creation, caused, requested)
            && !has_owner(pod.value())
        {
            let (references, labels) = (references.clone(), pod.value()["metadata"]["labels"].clone());
            self.by_uid.insert(pod.uid().to_owned(), RemovedOwner { references, labels });
        }
    }

    /// Returns the pod of an event with its removed owner, until it is adopted.
    pub(crate) fn put_back(&mut self, event: &WatchEvent) -> Option<Value> {
        let pod = event.object()?;
        let removed = self.by_uid.get(pod.uid())?;
        if has_owner(pod.value()) || pod.value()["metadata"]["labels"] != removed.labels {
            let references = removed.references.as_array().into_iter().flatten();
            let controller = references.into_iter().find(|reference| reference["controller"] == true);
            let uid = controller.and_then(|reference| reference["uid"].as_str()).map(str::to_owned);
            self.adopted = uid.filter(|_| has_owner(pod.value())).map(|removed_owner| Adopted {
                namespace: pod.namespace().to_owned(),
                name: pod.name().to_owned(),
                removed_owner,
            });
            self.by_uid.remove(pod.uid());
            return None;
        }
        let mut value = pod.value().clone();
        value["metadata"]["ownerReferences"] = removed.references.clone();
        Some(value)
    }

    /// Returns the UID of the removed controller of a pod that the current write adopts.
    pub(crate) fn former_owner(&self, namespace: &str, name: &str) -> Option<&str> {
        let adopted =
            self.adopted.as_ref().filter(|pod| (&*pod.namespace, &*pod.name) == (namespace, name))?;
        Some(&adopted.removed_owner)
    }
}

fn has_owner(pod: &Value) -> bool {
    pod["metadata"].get("ownerReferences").is_some()
}
