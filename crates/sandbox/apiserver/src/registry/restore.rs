use std::sync::Arc;

use serde_json::{Value, json};

use super::Registry;
use crate::{
    ApiStatus, Object, Resource,
    json::{remove, set, str_at},
    store::{self, Commit, Decision, UpdateResult},
};

impl Registry {
    /// Stores a copy of an object of another cluster. See [`ApiServer::restore`](crate::ApiServer::restore).
    pub(crate) fn restore(&self, resource: Resource, mut object: Value) -> Result<Arc<Object>, ApiStatus> {
        let name = str_at(&object, &["metadata", "name"]).to_owned();
        if name.is_empty() {
            return Err(ApiStatus::bad_request("the name of the object is missing"));
        }
        set(&mut object, &["apiVersion"], json!(resource.api_version()));
        set(&mut object, &["kind"], json!(resource.kind()));
        remove(&mut object, &["metadata", "resourceVersion"]);
        let namespace = str_at(&object, &["metadata", "namespace"]).to_owned();
        let mut object = Some(object);
        let outcome = self.store.update(
            resource,
            &store::key(&namespace, &name),
            Commit::Real,
            self.clock.now(),
            |old| match (old, object.take()) {
                (None, Some(object)) => Ok(Decision::Put(object)),
                _ => Err(ApiStatus::already_exists(resource, &name)),
            },
            |_| Ok(()),
        )?;
        match outcome {
            UpdateResult::Put(object) => Ok(object),
            UpdateResult::Unchanged(_) | UpdateResult::Removed(_) => {
                Err(ApiStatus::internal(format!("{resource} \"{name}\" could not be restored")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{ApiServer, ApiServerConfig};

    use super::*;

    #[test]
    fn restored_object_keeps_everything_but_its_resource_version() {
        let server = ApiServer::new(ApiServerConfig::default());
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web-1", "namespace": "shop", "uid": "u1", "resourceVersion": "987654",
                "creationTimestamp": "2020-01-01T00:00:00Z", "deletionTimestamp": "2020-01-01T00:00:30Z",
            },
            "spec": { "futureField": true },
            "status": { "phase": "Running" },
        });
        let restored = server.restore(Resource::PODS, pod.clone()).unwrap();
        let mut expected = pod.clone();
        expected["metadata"]["resourceVersion"] = json!(restored.revision().to_string());
        assert_eq!(*server.get(Resource::PODS, "shop", "web-1").unwrap().value(), expected);
        assert!(server.restore(Resource::PODS, pod).unwrap_err().is_already_exists());
    }
}
