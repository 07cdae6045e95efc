//! Creates, replacements, patches and deletions.

use bytes::Bytes;
use http::Method;
use kcm_api::{ApiError, ErrorCause, ObjectKey, protobuf};
use kcm_meta::{ApiResource, Object};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tower::BoxError;

use super::{Api, DeleteOptions, ListParams, ObjectName, Patch};
use crate::{
    decode::Decode,
    request::{Idempotency, JSON, Query, Representation, Request, object_path},
};

impl<K: Send + Sync + 'static> Api<K> {
    /// Creates an object and returns it as stored.
    ///
    /// An object with a name is sent again if its connection breaks, because the name makes the request idempotent.
    /// An earlier attempt may have taken effect, so `AlreadyExists` may mean that this call created the object. An object
    /// with a `generateName` is sent once.
    ///
    /// An object without `apiVersion` and `kind` gets those of the resource, an object without a namespace gets that of the
    /// [`Api`].
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// # run(async |client| {
    /// let config_maps = client.api::<ConfigMap>().namespaced("shop");
    /// let created = config_maps.create(&config_map("web")).await?;
    /// assert!(created.metadata.uid.is_some());
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`send`](crate::ApiClient::send), [`ApiError::Decode`] if the response is not such an object, and
    /// [`ApiError::InvalidRequest`] if the object has no namespace or cannot be encoded.
    pub async fn create(&self, object: &K) -> Result<K, ApiError>
    where
        K: Object + Serialize,
    {
        let key = object.key();
        let path = self.write_path(self.create_path(ObjectName::from(&key))?);
        self.write_object(object, |body| {
            let path = path.clone();
            if key.name.is_empty() { Request::post(path, body) } else { Request::create(path, body) }
        })
        .await
    }

    /// Creates an object from JSON in the namespace of the [`Api`], as [`create`](Self::create).
    ///
    /// The JSON must contain `apiVersion`, `kind` and `metadata.name`. For types that are read only, such as
    /// [`kcm_api::Pod`], and for bodies that are built once and sent often.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use kcm_api::Pod;
    ///
    /// # run(async |client| {
    /// let pods = client.api::<Pod>().namespaced("shop");
    /// let json = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
    ///                "spec": {"containers": [{"name": "web", "image": "nginx:1"}]}}"#;
    /// assert_eq!(pods.create_json(json).await?.key.to_string(), "shop/web");
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`create`](Self::create).
    pub async fn create_json(&self, json: impl Into<Bytes>) -> Result<K, ApiError> {
        let path = self.write_path(self.create_path(ObjectName::from(""))?);
        self.write_for_object(Request::create(path, json)).await
    }

    /// Creates an object from an object in protobuf with envelope, as [`create_json`](Self::create_json).
    ///
    /// # Errors
    ///
    /// Those of [`create`](Self::create). API servers without protobuf for the type return 415.
    pub async fn create_protobuf(&self, body: impl Into<Bytes>) -> Result<K, ApiError> {
        let path = self.write_path(self.create_path(ObjectName::from(""))?);
        let mut request = Request::create(path, body);
        request.content_type = protobuf::CONTENT_TYPE;
        self.write_for_object(request).await
    }

    /// Replaces an object and returns it as stored.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// # run(async |client| {
    /// let config_maps = client.api::<ConfigMap>().namespaced("shop");
    /// # config_maps.create(&config_map("web")).await?;
    /// let mut web = config_maps.get("web").await?;
    /// web.immutable = Some(true);
    /// assert_eq!(config_maps.replace(&web).await?.immutable, Some(true));
    /// // The resource version is no longer the newest.
    /// assert!(config_maps.replace(&web).await.unwrap_err().is_conflict());
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`create`](Self::create). A conflict if the object was changed since the resource version of `object`. An
    /// `object` without a resource version replaces any version, if the kind permits that.
    pub async fn replace(&self, object: &K) -> Result<K, ApiError>
    where
        K: Object + Serialize,
    {
        self.put(object, "").await
    }

    /// Changes an object and returns it as stored. A [server-side apply](Patch::apply) creates it if needed.
    ///
    /// See [`Patch`] for examples.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get), and [`ApiError::InvalidRequest`] if the patch cannot be encoded.
    pub async fn patch(&self, name: impl Into<ObjectName<'_>>, patch: &Patch<K>) -> Result<K, ApiError> {
        let request = self.patch_request(name.into(), "", patch)?;
        self.write_for_object(request).await
    }

    /// Deletes an object. It remains until its grace period and its finalizers have ended.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kcm_client::{DeleteOptions, Preconditions, Propagation};
    ///
    /// # run(async |client| {
    /// let config_maps = client.api::<ConfigMap>().namespaced("shop");
    /// let web = config_maps.create(&config_map("web")).await?;
    /// let options = DeleteOptions {
    ///     // Does not delete another object of the same name. With it, the client may send the request again.
    ///     preconditions: Preconditions::uid_of(&web),
    ///     propagation: Some(Propagation::Background),
    ///     ..DeleteOptions::default()
    /// };
    /// config_maps.delete("web", &options).await?;
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`send`](crate::ApiClient::send). A conflict if a precondition is not met.
    pub async fn delete(
        &self,
        name: impl Into<ObjectName<'_>>,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        // The response is not read, so it should be small.
        let path = self.object_path(name.into())?;
        self.send_delete(path, options, options.idempotency(), Representation::Metadata).await
    }

    /// Deletes all objects that `params` selects in the namespace of the [`Api`].
    ///
    /// Objects that are created meanwhile may remain.
    ///
    /// ```
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example.rs")); }
    /// # use example::*;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kcm_client::{DeleteOptions, ListParams};
    ///
    /// # run(async |client| {
    /// let config_maps = client.api::<ConfigMap>().namespaced("shop");
    /// # config_maps.create(&config_map("web")).await?;
    /// config_maps.delete_collection(&ListParams::fields("metadata.name=web"), &DeleteOptions::default()).await?;
    /// assert!(config_maps.find("web").await?.is_none());
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`delete`](Self::delete), and [`ApiError::InvalidRequest`] for all namespaces, which API servers refuse.
    pub async fn delete_collection(
        &self,
        params: &ListParams,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let mut query = Query::new(self.create_path(ObjectName::from(""))?);
        params.add_selectors(&mut query);
        self.send_delete(query.into_path(), options, Idempotency::Change, Representation::MetadataList).await
    }

    /// Replaces an object, or its subresource if `subresource` is not empty.
    pub(super) async fn put(&self, object: &K, subresource: &str) -> Result<K, ApiError>
    where
        K: Object + Serialize,
    {
        let path = self.write_path(self.subresource_path(ObjectName::from(&object.key()), subresource)?);
        self.write_object(object, |body| Request::json(Method::PUT, path.clone(), body)).await
    }

    /// Sends a request with `object` as its body, in protobuf if that carries all of the object.
    async fn write_object(&self, object: &K, request: impl Fn(Bytes) -> Request) -> Result<K, ApiError>
    where
        K: Object + Serialize,
    {
        if self.uses_protobuf()
            && let Some(body) = self.decoder.encode_protobuf(object)
        {
            let mut request = request(body.into());
            request.content_type = protobuf::CONTENT_TYPE;
            match self.write_for_object(request).await {
                // The API server has not processed the request.
                Err(error) if error.code() == Some(415) && self.fall_back_to_json(&error) => {}
                result => return result,
            }
        }
        self.write_for_object(request(self.typed_json(object)?)).await
    }

    /// Returns the request of a patch of an object, or of its subresource if `subresource` is not empty.
    pub(super) fn patch_request<T>(
        &self,
        name: ObjectName<'_>,
        subresource: &str,
        patch: &Patch<T>,
    ) -> Result<Request, ApiError> {
        let path = self.subresource_path(name, subresource)?;
        let body = patch.body.clone().map_err(|error| self.invalid(error))?;
        let manager = patch.apply.as_ref().map(|apply| &*apply.field_manager);
        let mut query = self.write_options.add_to(path, manager);
        let body = match &patch.apply {
            None => body,
            Some(apply) => {
                if apply.force {
                    query.add("force", "true");
                }
                typed(&self.resource, body).map_err(|error| self.invalid(error))?
            }
        };
        let mut request = Request::json(Method::PATCH, query.into_path(), body);
        request.content_type = patch.media;
        Ok(request.with_idempotency(patch.idempotency))
    }

    pub(super) fn subresource_path(
        &self,
        name: ObjectName<'_>,
        subresource: &str,
    ) -> Result<String, ApiError> {
        let path = self.object_path(name)?;
        Ok(if subresource.is_empty() { path } else { format!("{path}/{subresource}") })
    }

    /// Adds the write options to a path.
    pub(super) fn write_path(&self, path: String) -> String {
        self.write_options.add_to(path, None).into_path()
    }

    async fn send_delete(
        &self,
        path: String,
        options: &DeleteOptions,
        idempotency: Idempotency,
        accepted: Representation,
    ) -> Result<(), ApiError> {
        let dry_run = self.write_options.dry_run;
        let send = async |body: Vec<u8>, content_type| {
            let mut request = Request::delete(path.clone(), body).with_idempotency(idempotency);
            request.content_type = content_type;
            request.accept = self.client.content_type().accept(accepted);
            self.client.send(&request).await.map(drop)
        };
        if self.uses_protobuf() {
            match send(options.to_protobuf(dry_run), protobuf::CONTENT_TYPE).await {
                // The API server has not processed the request.
                Err(error) if error.code() == Some(415) => {}
                result => return result,
            }
        }
        send(options.to_json(dry_run).into_bytes(), JSON).await
    }

    /// Sends a write and decodes the response.
    pub(super) async fn write_for_object(&self, mut request: Request) -> Result<K, ApiError> {
        request.accept = self.accept(self.write_options.metadata_only);
        self.send_for_object(&request).await
    }

    pub(super) async fn send_for_object(&self, request: &Request) -> Result<K, ApiError> {
        let body = self.client.send(request).await?;
        let result = self.decode_response(request, &body, &*self.decoder);
        if let Err(error) = &result
            && let Ok(message) = protobuf::open_envelope(&body)
            && self.fall_back_to_json(error)
        {
            // The request was processed. Only the object is requested again.
            let identity = protobuf::Identity::read(message).unwrap_or_default();
            let mut get = Request::get(object_path(&self.resource, identity.namespace, identity.name));
            get.accept = self.accept(false);
            return self.send_for(&get, &*self.decoder).await;
        }
        result
    }

    /// Sends `request` and decodes the response.
    pub(super) async fn send_for<T: 'static>(
        &self,
        request: &Request,
        decoder: &dyn Decode<T>,
    ) -> Result<T, ApiError> {
        let body = self.client.send(request).await?;
        self.decode_response(request, &body, decoder)
    }

    fn decode_response<T: 'static>(
        &self,
        request: &Request,
        body: &[u8],
        decoder: &dyn Decode<T>,
    ) -> Result<T, ApiError> {
        let undecodable = |error: BoxError| {
            let request = self.client.describe(request);
            ApiError::Decode(ErrorCause::new(
                format!("{request}: failed to decode the response: {error}"),
                error,
            ))
        };
        if protobuf::is_enveloped(body) {
            let decode = |body| decoder.decode_protobuf(protobuf::open_envelope(body)?);
            return decode(body).map_err(|error| undecodable(error.into()));
        }
        let text = std::str::from_utf8(body).map_err(|error| undecodable(error.into()))?;
        decoder.decode(text).map_err(|error| undecodable(error.into()))
    }

    /// Returns the JSON of an object, including its type.
    fn typed_json(&self, object: &K) -> Result<Bytes, ApiError>
    where
        K: Object + Serialize,
    {
        encode(&self.resource, object).map_err(|error| {
            let (kind, key): (_, ObjectKey) = (&self.resource.kind, object.key());
            ApiError::InvalidRequest(ErrorCause::new(
                format!("failed to encode {kind} {key}: {error}"),
                error,
            ))
        })
    }
}

/// Encodes an object of `resource`, including its type.
pub(super) fn encode(resource: &ApiResource, object: &impl Serialize) -> Result<Bytes, serde_json::Error> {
    typed(resource, serde_json::to_vec(object)?.into())
}

/// Adds `kind` and `apiVersion` to an object if they are absent, as in items of a list.
fn typed(resource: &ApiResource, object: Bytes) -> Result<Bytes, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct TypeMeta<'a> {
        #[serde(borrow)]
        kind: Option<&'a RawValue>,
        #[serde(borrow)]
        api_version: Option<&'a RawValue>,
    }
    let TypeMeta { kind, api_version } = serde_json::from_slice(&object)?;
    let mut fields = Vec::new();
    if kind.is_none() {
        fields.push(format!("\"kind\":{}", serde_json::to_string(&resource.kind)?));
    }
    if api_version.is_none() {
        fields.push(format!("\"apiVersion\":{}", serde_json::to_string(&resource.api_version())?));
    }
    let Some(rest) = object.trim_ascii_start().strip_prefix(b"{").filter(|_| !fields.is_empty()) else {
        return Ok(object);
    };
    let separator = if rest.trim_ascii_start().starts_with(b"}") { "" } else { "," };
    let mut typed = format!("{{{}{separator}", fields.join(",")).into_bytes();
    typed.extend_from_slice(rest);
    Ok(typed.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_types_are_added() {
        struct Case {
            object: &'static str,
            typed: &'static str,
        }
        let cases = [
            Case { object: "{}", typed: r#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1"}"# },
            Case {
                object: r#"{"spec":{"kind":"x"}}"#,
                typed: r#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","spec":{"kind":"x"}}"#,
            },
            Case {
                object: r#"{"kind":"Lease","spec":{}}"#,
                typed: r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","spec":{}}"#,
            },
            Case { object: r#"{"apiVersion":"v2","kind":"L"}"#, typed: r#"{"apiVersion":"v2","kind":"L"}"# },
        ];
        let leases = ApiResource::namespaced("coordination.k8s.io", "v1", "Lease", "leases");
        for Case { object, typed: expected } in cases {
            assert_eq!(typed(&leases, Bytes::from_static(object.as_bytes())).unwrap(), expected);
        }
        assert!(typed(&leases, Bytes::from_static(b"[")).is_err());
    }
}
