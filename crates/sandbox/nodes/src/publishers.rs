//! Simulated publishers: the Service `default/kubernetes`, and the ConfigMap `kube-root-ca.crt` of each namespace.
//!
//! *Upstream counterpart:* the `kubernetesservice` controller of kube-apiserver, and
//! `pkg/controller/certificates/rootcacertpublisher`.

use std::sync::Arc;

use kcm_api::ObjectKey;
use kcm_apiserver::{ApiStatus, Object, Resource};
use serde_json::{Value, json};
use tracing::{debug, warn};

use crate::api::{Api, Change};

/// Name of the ConfigMap.
const ROOT_CA: &str = "kube-root-ca.crt";
/// Namespace and name of the Service.
const SERVICE: (&str, &str) = ("default", "kubernetes");
/// Cluster IP of the Service. No traffic is routed to it. The simulated kubelet assigns no address of this network.
const SERVICE_ADDRESS: &str = "10.255.0.1";

/// Maintains the Service and the ConfigMaps.
#[derive(Debug)]
pub(crate) struct Publishers {
    /// CA certificate, PEM-encoded.
    root_ca: String,
}

impl Publishers {
    pub(crate) fn new(root_ca: String) -> Self {
        Self { root_ca }
    }

    /// Publishes until the server has stopped.
    pub(crate) async fn run(self, api: Arc<Api>) {
        publish_service(&api);
        let mut changes = api.watch(None);
        while let Some(change) = changes.next().await {
            self.handle_change(&api, &change);
        }
    }

    fn handle_change(&self, api: &Api, change: &Change) {
        let object = &change.object;
        match object.resource() {
            Resource::NAMESPACES if !change.deleted => self.publish_root_ca(api, object.name()),
            Resource::CONFIG_MAPS if object.name() == ROOT_CA => {
                self.publish_root_ca(api, object.namespace());
            }
            Resource::SERVICES if change.deleted && (object.namespace(), object.name()) == SERVICE => {
                publish_service(api);
            }
            _ => {}
        }
    }

    /// Creates or restores the ConfigMap, unless the namespace is terminating.
    fn publish_root_ca(&self, api: &Api, namespace: &str) {
        let data = json!({ "ca.crt": self.root_ca });
        let result = match api.get(Resource::CONFIG_MAPS, &ObjectKey::new(namespace, ROOT_CA)) {
            Ok(current) if current.value()["data"] == data || current.is_deleting() => Ok(()),
            Ok(current) => restore(api, &current, &data),
            Err(_) if !is_active(api, namespace) => Ok(()),
            Err(_) => {
                let description = "CA bundle that verifies connections to the API server";
                let annotations = json!({ "kubernetes.io/description": description });
                create(
                    api,
                    Resource::CONFIG_MAPS,
                    namespace,
                    json!({ "metadata": { "name": ROOT_CA, "annotations": annotations }, "data": data }),
                )
            }
        };
        if let Err(error) = result {
            debug!(namespace, %error, "Failed to publish root CA");
        }
    }
}

/// Replaces the data of the ConfigMap.
fn restore(api: &Api, current: &Object, data: &Value) -> Result<(), ApiStatus> {
    let mut patch = data.clone();
    for key in current.value()["data"].as_object().into_iter().flatten().map(|(key, _)| key) {
        if data.get(key).is_none() {
            patch[key] = Value::Null;
        }
    }
    api.patch(current, &json!({ "data": patch }))
}

fn is_active(api: &Api, namespace: &str) -> bool {
    let namespace = api.get(Resource::NAMESPACES, &ObjectKey::new("", namespace));
    namespace.is_ok_and(|namespace| !namespace.is_deleting())
}

fn publish_service(api: &Api) {
    let (namespace, name) = SERVICE;
    let service = json!({
        "metadata": { "name": name, "labels": { "component": "apiserver", "provider": "kubernetes" } },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": SERVICE_ADDRESS,
            "clusterIPs": [SERVICE_ADDRESS],
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443 }],
        },
    });
    if let Err(error) = create(api, Resource::SERVICES, namespace, service) {
        warn!(namespace, name, %error, "Failed to publish Service");
    }
}

/// Creates the object unless it exists.
fn create(api: &Api, resource: Resource, namespace: &str, object: Value) -> Result<(), ApiStatus> {
    match api.create(resource, namespace, object) {
        Err(error) if !error.is_already_exists() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kcm_apiserver::{ApiServer, ApiServerConfig, DeleteOptions, Patch, WriteOptions};
    use kcm_clock::{Clock, SimulatedClock};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn published_objects_are_restored() {
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
        let config = ApiServerConfig { clock: Arc::clone(&clock), ..ApiServerConfig::default() };
        let server = ApiServer::new(config);
        let api = Arc::new(Api::new(Arc::clone(&server), Arc::clone(&clock)));
        tokio::spawn(Publishers::new("certificate".to_owned()).run(api));
        let settle = || clock.sleep(Duration::from_millis(1));

        let options = WriteOptions::default();
        server.create(Resource::NAMESPACES, "", json!({ "metadata": { "name": "team" } }), &options).unwrap();
        settle().await;
        let root_ca = || server.get(Resource::CONFIG_MAPS, "team", ROOT_CA);
        let published = json!({ "ca.crt": "certificate" });
        assert_eq!(root_ca().unwrap().value()["data"], published);

        let changed = json!({ "data": { "ca.crt": "other", "more": "" } });
        server.patch(Resource::CONFIG_MAPS, "team", ROOT_CA, None, Patch::merge(changed), &options).unwrap();
        settle().await;
        assert_eq!(root_ca().unwrap().value()["data"], published);

        let now = DeleteOptions::default();
        server.delete(Resource::CONFIG_MAPS, "team", ROOT_CA, &now).unwrap();
        server.delete(Resource::SERVICES, "default", "kubernetes", &now).unwrap();
        settle().await;
        assert_eq!(root_ca().unwrap().value()["data"], published);
        let service = server.get(Resource::SERVICES, "default", "kubernetes").unwrap();
        assert_eq!(service.value()["spec"]["clusterIP"], SERVICE_ADDRESS);

        // No object is created in a terminating namespace.
        server.delete(Resource::NAMESPACES, "", "team", &now).unwrap();
        server.delete(Resource::CONFIG_MAPS, "team", ROOT_CA, &now).unwrap();
        settle().await;
        assert!(root_ca().unwrap_err().is_not_found());

        let settled = server.revision();
        settle().await;
        assert_eq!(server.revision(), settled);
    }
}
