//! Authorization of requests.
//!
//! Upstream counterpart: `authorizerfactory.DelegatingAuthorizerConfig`, `authorization/path`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kcm_client::ApiClient;
use kcm_clock::Clock;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    attempt::Refusal,
    cache::{Cache, Key, ReviewError, ReviewQueue},
    review::{Review, perform},
    user::User,
};
use crate::{AuthorizationOptions, ServingError};

/// Group that is always authorized.
const MASTERS: &str = "system:masters";
/// Maximum number of cached decisions.
const MAX_DECISIONS: usize = 2048;

/// Authorizers in upstream's order: privileged group, always-allowed paths, API server.
pub(super) struct Authorization {
    always_allowed: AllowedPaths,
    delegate: Option<Delegate>,
}

/// Paths without authorization.
#[derive(Debug, Default)]
struct AllowedPaths {
    exact: Vec<String>,
    prefixes: Vec<String>,
}

struct Delegate {
    client: ApiClient,
    clock: Arc<dyn Clock>,
    authorized: Duration,
    unauthorized: Duration,
    cache: Cache<Arc<Decision>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Decision {
    allowed: bool,
    denied: bool,
    reason: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    non_resource_attributes: Attributes<'a>,
    user: &'a str,
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
}

#[derive(Serialize)]
struct Attributes<'a> {
    path: &'a str,
    verb: &'a str,
}

impl Authorization {
    pub(super) fn new(
        options: &AuthorizationOptions,
        client: Option<ApiClient>,
        queue: ReviewQueue,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ServingError> {
        let always_allowed = AllowedPaths::new(&options.always_allow_paths)?;
        if client.is_none() {
            tracing::warn!(
                "No authorization-kubeconfig provided, so SubjectAccessReview of authorization tokens won't work."
            );
        }
        let delegate = client.map(|client| Delegate {
            client,
            authorized: options.authorized_ttl,
            unauthorized: options.unauthorized_ttl,
            cache: Cache::new(MAX_DECISIONS, queue, Arc::clone(&clock)),
            clock,
        });
        Ok(Self { always_allowed, delegate })
    }

    /// Returns the user if it is authorized to use `method` on `path`.
    ///
    /// # Errors
    ///
    /// If the user is not authorized, there are too many reviews of others, or the API server cannot be reached.
    pub(super) async fn authorize(&self, user: User, method: &str, path: &str) -> Result<User, Refusal> {
        if user.groups.iter().any(|group| group == MASTERS) || self.always_allowed.matches(path) {
            return Ok(user);
        }
        let Some(delegate) = &self.delegate else {
            return Err(Refusal::Forbidden { user, reason: String::new() });
        };
        let decision = delegate.decide(&user, &method.to_ascii_lowercase(), path).await;
        let decision = decision.map_err(|error| match error {
            ReviewError::Busy => Refusal::Busy,
            ReviewError::Failed(error) => {
                tracing::error!(err = %error, "Failed to make webhook authorizer request");
                Refusal::Unknown(error.to_string())
            }
        })?;
        match *decision {
            Decision { allowed: true, denied: true, .. } => {
                let both = "webhook subject access review returned both allow and deny response";
                Err(Refusal::Unknown(both.to_owned()))
            }
            Decision { allowed: true, denied: false, .. } => Ok(user),
            Decision { allowed: false, ref reason, .. } => {
                Err(Refusal::Forbidden { user, reason: reason.clone() })
            }
        }
    }
}

impl AllowedPaths {
    fn new(paths: &[String]) -> Result<Self, ServingError> {
        let mut allowed = Self::default();
        for path in paths {
            let path = path.strip_prefix('/').unwrap_or(path);
            match path.split_once('*') {
                None => allowed.exact.push(path.to_owned()),
                Some((prefix, "")) => allowed.prefixes.push(prefix.to_owned()),
                Some(_) => {
                    return Err(ServingError::Option(format!("only trailing * allowed in {path:?}")));
                }
            }
        }
        Ok(allowed)
    }

    fn matches(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        self.exact.iter().any(|exact| exact == path)
            || self.prefixes.iter().any(|prefix| path.starts_with(prefix))
    }
}

impl Delegate {
    async fn decide(&self, user: &User, verb: &str, path: &str) -> Result<Arc<Decision>, ReviewError> {
        let spec = Spec {
            non_resource_attributes: Attributes { path, verb },
            user: &user.name,
            groups: &user.groups,
            extra: &user.extra,
            uid: &user.uid,
        };
        let kind = ("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews");
        let review = Review::new(kind, &spec).map_err(|error| ReviewError::Failed(error.into()))?;
        let key: Key = Sha256::digest(review.body()).into();
        let (client, clock) = (self.client.clone(), Arc::clone(&self.clock));
        let (authorized, unauthorized) = (self.authorized, self.unauthorized);
        let review = async move {
            let decision: Decision = perform(&client, &*clock, review).await?;
            let ttl = if decision.allowed { authorized } else { unauthorized };
            Ok((Arc::new(decision), ttl))
        };
        self.cache.get(key, review).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(paths: &[&str]) -> Result<AllowedPaths, ServingError> {
        AllowedPaths::new(&paths.iter().map(|&path| path.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn matches_paths_and_prefixes() {
        let allowed = allowed(&["/healthz", "livez", "/public/*", "/"]).unwrap();
        for path in ["/healthz", "/livez", "/public/", "/public/a/b", "/"] {
            assert!(allowed.matches(path), "{path}");
        }
        for path in ["/healthz/", "/healthz/x", "/public", "/metrics", "//healthz"] {
            assert!(!allowed.matches(path), "{path}");
        }
    }

    #[test]
    fn rejects_other_wildcards() {
        assert_eq!(allowed(&["/a*b"]).unwrap_err().to_string(), "only trailing * allowed in \"a*b\"");
    }
}
