//! Containers of a pod.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    ApiServer, ApiStatus, FieldSelector, Object, Resource, Selection, WatchEvent, WatchStart,
    json::{at, list_at, str_at},
};

/// Fields of a pod's spec with containers, and the fields of its status with their states.
const CONTAINERS: [(&str, &str); 3] = [
    ("initContainers", "initContainerStatuses"),
    ("containers", "containerStatuses"),
    ("ephemeralContainers", "ephemeralContainerStatuses"),
];

/// Returns the container that a request names, or the only one.
///
/// # Errors
///
/// 400 if it does not exist, or if the pod has several.
///
/// Upstream counterpart: `validateContainer`.
pub fn container_of<'a>(pod: &'a Object, given: Option<&'a str>) -> Result<&'a str, ApiStatus> {
    let names = |list| list_at(pod.value(), &["spec", list]).iter().map(|one| str_at(one, &["name"]));
    let mut all = CONTAINERS.iter().flat_map(|(list, _)| names(list));
    let name = pod.name();
    if let Some(given) = given {
        let invalid = || ApiStatus::bad_request(format!("container {given} is not valid for pod {name}"));
        return all.find(|known| *known == given).ok_or_else(invalid);
    }
    match names("containers").collect::<Vec<_>>().as_slice() {
        [only] => Ok(*only),
        _ => {
            let choices: Vec<&str> = all.collect();
            Err(ApiStatus::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                choices.join(" ")
            )))
        }
    }
}

/// Returns the status of a container.
pub fn status_of<'a>(pod: &'a Object, container: &str) -> Option<&'a Value> {
    let statuses = CONTAINERS.iter().flat_map(|(_, list)| list_at(pod.value(), &["status", list]));
    statuses.into_iter().find(|status| str_at(status, &["name"]) == container)
}

/// `true` if the container, or without one the pod, is running.
pub fn is_running(pod: &Object, container: Option<&str>) -> bool {
    match container {
        Some(container) => {
            status_of(pod, container).is_some_and(|status| at(status, &["state", "running"]).is_some())
        }
        None => str_at(pod.value(), &["status", "phase"]) == "Running",
    }
}

/// Waits until the container, or without one the pod, does not run any more.
pub async fn ended(server: Arc<ApiServer>, pod: Arc<Object>, container: Option<String>) {
    let runs = |now: &Object| now.uid() == pod.uid() && is_running(now, container.as_deref());
    let Ok(fields) = FieldSelector::parse(&format!("metadata.name={}", pod.name()), Resource::PODS) else {
        return;
    };
    // Begins the watch again when it has expired.
    loop {
        // Before the read, so that no change is missed.
        let start = WatchStart::After(server.revision());
        match server.get(Resource::PODS, pod.namespace(), pod.name()) {
            Ok(now) if runs(&now) => {}
            _ => return,
        }
        let selection = Selection { fields: fields.clone(), ..Selection::default() };
        let mut watcher = server.watch_selected(Resource::PODS, Some(pod.namespace()), selection, start);
        while let Ok(event) = watcher.next().await {
            match event {
                WatchEvent::Added(now) | WatchEvent::Modified(now) if runs(&now) => {}
                WatchEvent::InitialEventsEnd(_) => {}
                _ => return,
            }
        }
    }
}
