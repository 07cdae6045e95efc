//! Default ClusterRoles and ClusterRoleBindings.
//!
//! Upstream counterpart: `plugin/pkg/auth/authorizer/rbac/bootstrappolicy`. `bootstrap.json` has those of kube-apiserver
//! v1.36 without the roles of single controllers.

use serde_json::Value;

use crate::{
    Resource, WriteOptions,
    json::{set, str_at},
    kind::Kind,
    registry::Registry,
};

/// Creates the default roles and bindings that do not exist.
pub(crate) fn create_default_roles(registry: &Registry, options: &WriteOptions) {
    const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
    let objects: Vec<Value> = serde_json::from_str(include_str!("bootstrap.json")).unwrap_or_default();
    for mut object in objects {
        let Some(resource) = Resource::of_kind(API_VERSION, str_at(&object, &["kind"])) else { continue };
        set(&mut object, &["apiVersion"], API_VERSION);
        set(&mut object, &["metadata", "labels", "kubernetes.io/bootstrapping"], "rbac-defaults");
        set(&mut object, &["metadata", "annotations", "rbac.authorization.kubernetes.io/autoupdate"], "true");
        match registry.create(&Kind::from(resource), None, "", object, options, None) {
            Err(error) if !error.is_already_exists() => {
                tracing::error!(%error, "Failed to create default role or binding");
            }
            _ => {}
        }
    }
}
