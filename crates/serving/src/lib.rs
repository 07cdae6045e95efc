//! A secure port as Kubernetes' components have it: TLS, delegated authentication and authorization, health.
//!
//! *Upstream counterpart:* `k8s.io/apiserver/pkg/server` (secure serving, healthz, delegated auth) as components use
//! it, with `configz`, `flagz` and `statusz` of `k8s.io/component-base`.
//!
//! *What must not live here:* flags, metrics' contents, anything of a controller.

mod options;

pub use options::{
    AuthenticationOptions, AuthorizationOptions, RequestHeaderOptions, ServingOptions, SniCertKey, TlsVersion,
};
