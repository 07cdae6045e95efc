//! Verbs of `Api` with an embedded API server, for each kind of type: those of k8s-openapi, those of `kcm-api`, custom
//! resources, and objects whose type is known at run time only.

mod custom;
mod reads;
mod requests;
mod subresources;
mod writes;

use std::{fmt::Debug, sync::Arc};

use kcm_apiserver::{ApiServer, ApiServerConfig, Resource};
use kcm_client::{
    Api, ApiClient, ApiResource, ClientFactory, ClientOptions, ObjectKey, RateLimit, UserAgent,
};
use kcm_clock::{Clock, RealClock};
use kcm_meta::Object;
use kube_client::core::DynamicObject;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use custom::{WEBSITES, Website, definition, website};

const NAMESPACE: &str = "default";

/// Type of the objects of the tests. The objects have `spec.replicas`, which is 1 by default, and `status.replicas`.
trait Subject: Object + Serialize + DeserializeOwned + Debug {
    /// All objects of the type.
    fn all(client: &ApiClient) -> Api<Self>
    where
        Self: Sized;

    /// An object with the label `app`.
    fn named(name: &str) -> Self;
}

impl Subject for k8s_openapi::api::apps::v1::Deployment {
    fn all(client: &ApiClient) -> Api<Self> {
        client.api()
    }

    fn named(name: &str) -> Self {
        deployment(name)
    }
}

impl Subject for kcm_api::Deployment {
    fn all(client: &ApiClient) -> Api<Self> {
        client.api()
    }

    fn named(name: &str) -> Self {
        deployment(name)
    }
}

impl Subject for Website {
    fn all(client: &ApiClient) -> Api<Self> {
        client.api()
    }

    fn named(name: &str) -> Self {
        website(name)
    }
}

impl Subject for DynamicObject {
    fn all(client: &ApiClient) -> Api<Self> {
        client.api_for(WEBSITES)
    }

    fn named(name: &str) -> Self {
        website(name)
    }
}

/// Defines a test for each type. `$test` is an async function with the type as its parameter.
macro_rules! for_each_type {
    ($($test:ident),* $(,)?) => { $(
        mod $test {
            #[tokio::test]
            async fn k8s_openapi_type() {
                super::$test::<k8s_openapi::api::apps::v1::Deployment>().await;
            }

            #[tokio::test]
            async fn lossless_type() {
                super::$test::<kcm_api::Deployment>().await;
            }

            #[tokio::test]
            async fn custom_resource() {
                super::$test::<crate::verbs::custom::Website>().await;
            }

            #[tokio::test]
            async fn dynamic_object() {
                super::$test::<kube_client::core::DynamicObject>().await;
            }
        }
    )* };
}
use for_each_type;

/// A client of a new API server with the custom resource.
fn client() -> ApiClient {
    let server = ApiServer::new(ApiServerConfig::default());
    let definitions = Resource::of_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap();
    server.create(definitions, "", definition(), &kcm_apiserver::WriteOptions::default()).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let options = ClientOptions::new(UserAgent::new("test", "v1", ""), clock);
    ClientFactory::in_process(server.service(), options).client("test", RateLimit::UNLIMITED)
}

/// Objects of one namespace of a new API server.
fn objects<K: Subject>() -> Api<K> {
    K::all(&client()).namespaced(NAMESPACE)
}

fn deployment<K: DeserializeOwned>(name: &str) -> K {
    serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
            },
        },
    }))
    .unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(NAMESPACE, name)
}

fn to_json(object: &impl Serialize) -> Value {
    serde_json::to_value(object).unwrap()
}

/// The object after `change` of its JSON.
fn changed<K: Serialize + DeserializeOwned>(object: &K, change: impl FnOnce(&mut Value)) -> K {
    let mut json = to_json(object);
    change(&mut json);
    serde_json::from_value(json).unwrap()
}

fn names<'a, K: Object>(objects: impl IntoIterator<Item = &'a K>) -> Vec<String> {
    objects.into_iter().map(|object| object.key().name.to_string()).collect()
}
