//! What somebody may.
//!
//! *Upstream counterpart:* `authorizerfactory.DelegatingAuthorizerConfig`, `authorization/path`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kcm_client::ApiClient;
use kcm_clock::Clock;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    Refusal, User,
    cache::{Cache, Key},
    review::review,
};
use crate::{AuthorizationOptions, ServingError};

/// May everything.
const MASTERS: &str = "system:masters";
const DECISIONS_KEPT: usize = 2048;

/// Finds out what somebody may.
pub(super) struct Authorization {
    open: OpenPaths,
    delegate: Option<Delegate>,
}

/// Paths for all.
#[derive(Debug, Default)]
struct OpenPaths {
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
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ServingError> {
        let open = OpenPaths::new(&options.always_allow_paths)?;
        if client.is_none() {
            tracing::warn!(
                "No authorization-kubeconfig provided, so SubjectAccessReview of authorization tokens won't work."
            );
        }
        let delegate = client.map(|client| Delegate {
            client,
            authorized: options.authorized_ttl,
            unauthorized: options.unauthorized_ttl,
            cache: Cache::new(DECISIONS_KEPT, Arc::clone(&clock)),
            clock,
        });
        Ok(Self { open, delegate })
    }

    /// The user again, if he may do `method` on `path`.
    pub(super) async fn authorize(&self, user: User, method: &str, path: &str) -> Result<User, Refusal> {
        if user.groups.iter().any(|group| group == MASTERS) || self.open.has(path) {
            return Ok(user);
        }
        let Some(delegate) = &self.delegate else {
            return Err(Refusal::Forbidden { user, reason: String::new() });
        };
        let decision = delegate.decide(&user, &method.to_ascii_lowercase(), path).await;
        let decision = decision.map_err(|error| {
            tracing::error!(err = %error, "Failed to make webhook authorizer request");
            Refusal::Unknown(error.to_string())
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

impl OpenPaths {
    fn new(paths: &[String]) -> Result<Self, ServingError> {
        let mut open = Self::default();
        for path in paths {
            let path = path.strip_prefix('/').unwrap_or(path);
            match path.split_once('*') {
                None => open.exact.push(path.to_owned()),
                Some((prefix, "")) => open.prefixes.push(prefix.to_owned()),
                Some(_) => {
                    return Err(ServingError::Option(format!("only trailing * allowed in {path:?}")));
                }
            }
        }
        Ok(open)
    }

    fn has(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        self.exact.iter().any(|open| open == path) || self.prefixes.iter().any(|open| path.starts_with(open))
    }
}

impl Delegate {
    async fn decide(&self, user: &User, verb: &str, path: &str) -> Result<Arc<Decision>, Arc<str>> {
        let spec = Spec {
            non_resource_attributes: Attributes { path, verb },
            user: &user.name,
            groups: &user.groups,
            extra: &user.extra,
            uid: &user.uid,
        };
        let spec = serde_json::to_value(&spec).map_err(|error| error.to_string())?;
        let key: Key = Sha256::digest(spec.to_string()).into();
        let (client, clock) = (self.client.clone(), Arc::clone(&self.clock));
        let (authorized, unauthorized) = (self.authorized, self.unauthorized);
        let ask = async move {
            let kind = ("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews");
            let decision: Decision = review(&client, &*clock, kind, &spec).await?;
            let holds = if decision.allowed { authorized } else { unauthorized };
            Ok((Arc::new(decision), holds))
        };
        self.cache.get(key, ask).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(paths: &[&str]) -> Result<OpenPaths, ServingError> {
        OpenPaths::new(&paths.iter().map(|&path| path.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn open_paths_are_whole_or_begin_with_what_is_before_the_asterisk() {
        let open = open(&["/healthz", "livez", "/public/*", "/"]).unwrap();
        for path in ["/healthz", "/livez", "/public/", "/public/a/b", "/"] {
            assert!(open.has(path), "{path}");
        }
        for path in ["/healthz/", "/healthz/x", "/public", "/metrics", "//healthz"] {
            assert!(!open.has(path), "{path}");
        }
    }

    #[test]
    fn asterisk_elsewhere_than_at_the_end_is_refused() {
        assert_eq!(open(&["/a*b"]).unwrap_err().to_string(), "only trailing * allowed in \"a*b\"");
    }
}
