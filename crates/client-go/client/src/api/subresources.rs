//! Subresources: status, scale and eviction.

use http::Method;
use kcm_api::{ApiError, ErrorCause, ObjectMeta};
use kcm_meta::{ApiResource, JsonDecoder, Object};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Api, DeleteOptions, ObjectName, Patch, write::encode};
use crate::request::Request;

const STATUS: &str = "status";
const SCALE: &str = "scale";

const SCALES: ApiResource = ApiResource::namespaced("autoscaling", "v1", "Scale", "scales");

/// Number of replicas of a workload: the object of the subresource `scale`.
///
/// Upstream counterpart: `autoscaling/v1` `Scale`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scale {
    /// Metadata of the workload: name, namespace, UID and resource version.
    pub metadata: ObjectMeta,
    /// Desired state.
    pub spec: ScaleSpec,
    /// Observed state. Ignored in writes.
    pub status: ScaleStatus,
}

/// Desired state of a [`Scale`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScaleSpec {
    /// Desired number of replicas.
    pub replicas: i32,
}

/// Observed state of a [`Scale`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScaleStatus {
    /// Observed number of replicas.
    pub replicas: i32,
    /// Label selector of the pods, as in a query. Empty if the workload reports none.
    pub selector: String,
}

/// Subresources. The API server answers 404 if the resource does not have one.
impl<K: Send + Sync + 'static> Api<K> {
    /// Replaces the status of an object and returns the object as stored.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
    ///
    /// # run(async |client| {
    /// let deployments = client.api::<Deployment>().namespaced("shop");
    /// let mut web = deployments.create(&deployment("web")).await?;
    /// web.status = Some(DeploymentStatus { replicas: Some(3), ..DeploymentStatus::default() });
    /// let stored = deployments.replace_status(&web).await?;
    /// assert_eq!(stored.status.unwrap().replicas, Some(3));
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`replace`](Self::replace).
    pub async fn replace_status(&self, object: &K) -> Result<K, ApiError>
    where
        K: Object + Serialize,
    {
        self.put(object, STATUS).await
    }

    /// Changes the status of an object and returns the object as stored.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use kcm_client::Patch;
    /// use serde_json::json;
    ///
    /// # run(async |client| {
    /// let deployments = client.api::<Deployment>().namespaced("shop");
    /// # deployments.create(&deployment("web")).await?;
    /// let patch = Patch::merge(&json!({"status": {"replicas": 3}}));
    /// let stored = deployments.patch_status("web", &patch).await?;
    /// assert_eq!(stored.status.unwrap().replicas, Some(3));
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`patch`](Self::patch).
    pub async fn patch_status(
        &self,
        name: impl Into<ObjectName<'_>>,
        patch: &Patch<K>,
    ) -> Result<K, ApiError> {
        self.write_for_object(self.patch_request(name.into(), STATUS, patch)?).await
    }

    /// Returns the scale of an object.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::apps::v1::Deployment;
    ///
    /// # run(async |client| {
    /// let deployments = client.api::<Deployment>().namespaced("shop");
    /// # deployments.create(&deployment("web")).await?;
    /// assert_eq!(deployments.get_scale("web").await?.spec.replicas, 1);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get).
    pub async fn get_scale(&self, name: impl Into<ObjectName<'_>>) -> Result<Scale, ApiError> {
        let path = self.subresource_path(name.into(), SCALE)?;
        self.send_for(&Request::get(path), &JsonDecoder).await
    }

    /// Replaces the scale of an object and returns it as stored. `scale` must be complete, as returned by
    /// [`get_scale`](Self::get_scale).
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::apps::v1::Deployment;
    ///
    /// # run(async |client| {
    /// let deployments = client.api::<Deployment>().namespaced("shop");
    /// # deployments.create(&deployment("web")).await?;
    /// let mut scale = deployments.get_scale("web").await?;
    /// scale.spec.replicas = 5;
    /// assert_eq!(deployments.replace_scale(&scale).await?.spec.replicas, 5);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`replace`](Self::replace).
    pub async fn replace_scale(&self, scale: &Scale) -> Result<Scale, ApiError> {
        let key = scale.metadata.key();
        let path = self.write_path(self.subresource_path(ObjectName::from(&key), SCALE)?);
        let json = encode(&SCALES, scale).map_err(|error| {
            ApiError::InvalidRequest(ErrorCause::new(format!("failed to encode Scale {key}: {error}"), error))
        })?;
        self.send_for(&Request::json(Method::PUT, path, json), &JsonDecoder).await
    }

    /// Changes the scale of an object and returns it as stored.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use kcm_client::Patch;
    /// use serde_json::json;
    ///
    /// # run(async |client| {
    /// let deployments = client.api::<Deployment>().namespaced("shop");
    /// # deployments.create(&deployment("web")).await?;
    /// let patch = Patch::merge(&json!({"spec": {"replicas": 5}}));
    /// assert_eq!(deployments.patch_scale("web", &patch).await?.spec.replicas, 5);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`patch`](Self::patch).
    pub async fn patch_scale(
        &self,
        name: impl Into<ObjectName<'_>>,
        patch: &Patch<Scale>,
    ) -> Result<Scale, ApiError> {
        self.send_for(&self.patch_request(name.into(), SCALE, patch)?, &JsonDecoder).await
    }

    /// Evicts a pod: deletes it if its PodDisruptionBudget permits that.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::core::v1::Pod;
    /// use kcm_client::DeleteOptions;
    ///
    /// # run(async |client| {
    /// let pods = client.api::<Pod>().namespaced("shop");
    /// # pods.create(&pod("web")).await?;
    /// pods.evict("web", &DeleteOptions::default()).await?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`delete`](Self::delete). [`is_too_many_requests`](ApiError::is_too_many_requests) if a budget does not
    /// permit the disruption now.
    pub async fn evict(
        &self,
        name: impl Into<ObjectName<'_>>,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let name = name.into();
        let path = self.write_path(self.subresource_path(name, "eviction")?);
        let (namespace, name) = self.resolve(name)?;
        let metadata = json!({"namespace": namespace, "name": name});
        let options_json = options.to_json(false);
        let body = format!(
            r#"{{"kind":"Eviction","apiVersion":"policy/v1","metadata":{metadata},"deleteOptions":{options_json}}}"#
        );
        let request = Request::post(path, body).with_idempotency(options.idempotency());
        self.client.send(&request).await.map(drop)
    }
}
