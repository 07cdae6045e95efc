use std::sync::Arc;

use kcm_client::{ApiClient, ApiResource};
use kcm_informer::{InformerOptions, ListWatch, Sources};
use kube_client::{Api, Client};
use kube_core::{Resource, params::ListParams};
use serde::de::DeserializeOwned;

use crate::clients::api_client;

/// Returns the source of the objects of `api`, for an informer.
///
/// Of `params`, only the selectors and the page size (`limit`, 500 by default) are used. The scope is that of `api`. For
/// `Api<PartialObjectMeta<K>>`, only metadata is read.
///
/// An object that cannot be decoded does not prevent others from being read.
pub fn list_watch<K>(api: Api<K>, params: ListParams) -> Arc<dyn ListWatch<K>>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    let default = kcm_client::ListParams::default();
    let params = kcm_client::ListParams {
        labels: params.label_selector.unwrap_or_default(),
        fields: params.field_selector.unwrap_or_default(),
        limit: params.limit.unwrap_or(default.limit),
        ..default
    };
    let path = api.resource_url().to_owned();
    source(&api_client(api.into_client()), &path, params)
}

/// Returns the sources of the objects that `options` describe. `resource` is `&()` for types that are known at compile
/// time.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kcm_clock::{RealClock, SeededRandom};
/// use kcm_informer::{InformerConfig, InformerOptions, SharedInformer, SharedInformerFactory, drop_managed_fields};
///
/// fn settings(factory: &SharedInformerFactory, client: &kube_client::Client) -> SharedInformer<ConfigMap> {
///     let options = InformerOptions::new("configmaps").namespace("team-a").namespace("team-b").labels("app=web");
///     factory.informer(&options, || {
///         let sources = kcm_kube::sources(client, &(), &options);
///         let (clock, random) = (Arc::new(RealClock::new()), Arc::new(SeededRandom::from_entropy()));
///         SharedInformer::new(InformerConfig {
///             transform: Some(Arc::new(drop_managed_fields)),
///             ..InformerConfig::with_sources("configmaps", sources, clock, random)
///         })
///     })
/// }
/// ```
pub fn sources<K>(client: &Client, resource: &K::DynamicType, options: &InformerOptions) -> Sources<K>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    let client = api_client(client.clone());
    Sources::of(options.namespaces.iter().cloned(), |namespace| {
        let params = kcm_client::ListParams {
            labels: options.label_selector.clone(),
            fields: options.field_selector.clone(),
            ..kcm_client::ListParams::default()
        };
        source(&client, &K::url_path(resource, namespace), params)
    })
}

/// Returns the source of the collection at `path`.
fn source<K>(client: &ApiClient, path: &str, params: kcm_client::ListParams) -> Arc<dyn ListWatch<K>>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    let (resource, namespace) = resource_at(path);
    let params = kcm_client::ListParams { metadata_only: K::metadata_api(), ..params };
    client.api_for::<K>(resource).namespaced(namespace).list_watch(params)
}

/// Returns the resource and the namespace of a path of kube-rs, such as `/apis/apps/v1/namespaces/shop/deployments`. An
/// `Api` of kube-rs does not have them, nor the kind. The resource is named instead of it in errors.
fn resource_at(path: &str) -> (ApiResource, &str) {
    let path = path.strip_prefix("/apis/").or_else(|| path.strip_prefix("/api")).unwrap_or(path);
    let segments: Vec<&str> = path.split('/').collect();
    let (group, version, namespace, plural) = match *segments {
        [group, version, "namespaces", namespace, plural] => (group, version, namespace, plural),
        [group, version, plural] => (group, version, "", plural),
        _ => ("", "", "", path),
    };
    let owned = |text: &str| text.to_owned().into();
    let resource = ApiResource {
        group: owned(group),
        version: owned(version),
        kind: owned(plural),
        plural: owned(plural),
        namespaced: !namespace.is_empty(),
    };
    (resource, namespace)
}
