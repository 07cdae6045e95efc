//! Tokens of service accounts.
//!
//! A token is not stored. It is valid while its account and the object that it is bound to exist.
//!
//! Upstream counterpart: `TokenREST` of `pkg/registry/core/serviceaccount`, and `pkg/serviceaccount`.

mod jwt;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    ApiServer, ApiStatus, Object, Resource, User,
    http::UserExtra,
    json::{at, i64_at, list_at, set, str_at},
    registry::new_uid,
    validate::path::{Errors, Path},
};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";

/// Seconds until a token expires, by default.
pub(crate) const DEFAULT_EXPIRATION: i64 = 60 * 60;

/// Minimum of `spec.expirationSeconds`.
const MIN_EXPIRATION: i64 = 10 * 60;

/// Maximum of `spec.expirationSeconds`.
const MAX_EXPIRATION: i64 = 1 << 32;

/// Lifetime that the kubelet requests for tokens that it puts into pods. Such a token expires later.
///
/// Upstream counterpart: `WarnOnlyBoundTokenExpirationSeconds`.
const WARN_ONLY_EXPIRATION: i64 = DEFAULT_EXPIRATION + 7;

/// Lifetime in seconds of a token whose request has [`WARN_ONLY_EXPIRATION`].
///
/// Upstream counterpart: `ExpirationExtensionSeconds`.
const EXTENDED_EXPIRATION: i64 = 365 * 24 * 60 * 60;

/// Time for which an expired token, and one of a deleted object, is accepted.
///
/// Upstream counterpart: `jwt.DefaultLeeway`.
const LEEWAY: SignedDuration = SignedDuration::from_mins(1);

/// User of a token.
#[derive(Debug)]
pub(crate) struct Authenticated {
    pub(crate) user: User,
    /// Requested audiences that the token is for.
    pub(crate) audiences: Vec<String>,
}

/// Name and UID of an object in a token.
fn reference(object: &Object) -> Value {
    json!({"name": object.name(), "uid": object.uid()})
}

/// Returns the user name of a service account.
pub(crate) fn make_username(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Returns the groups of the service accounts of a namespace.
pub(crate) fn make_group_names(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// Returns namespace and name of the service account of a user name.
pub(crate) fn split_username(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix("system:serviceaccount:")?.split_once(':')
}

impl ApiServer {
    /// Audiences of the API server.
    pub(crate) fn audiences(&self) -> &[String] {
        std::slice::from_ref(&self.config.service_account_issuer)
    }

    /// Issues a token of a service account. Returns the completed request.
    ///
    /// Upstream counterpart: `TokenREST.Create`.
    pub(crate) fn issue_token(
        &self,
        namespace: &str,
        name: &str,
        request: &Value,
    ) -> Result<Value, ApiStatus> {
        let invalid = |name: &str, field: &str, value: Value, detail: &str| {
            let mut errors = Errors::default();
            errors.invalid(&Path::new(field), value, detail);
            ApiStatus::invalid(KIND, GROUP, name, &errors.0)
        };
        let given = |field| str_at(request, &["metadata", field]);
        let differs = |field, value| !given(field).is_empty() && given(field) != value;
        if differs("name", name) {
            let detail = "must match the service account name if specified";
            return Err(invalid(name, "metadata.name", given("name").into(), detail));
        }
        let account = self.get(Resource::SERVICE_ACCOUNTS, namespace, name)?;
        if differs("uid", account.uid()) {
            let why = format!(
                "the UID in the token request ({}) does not match the UID of the service account ({})",
                given("uid"),
                account.uid()
            );
            return Err(ApiStatus::conflict_of_kind(GROUP, KIND, name, &why));
        }
        let expiration = i64_at(request, &["spec", "expirationSeconds"]).unwrap_or_default();
        let detail = match expiration {
            ..MIN_EXPIRATION => "may not specify a duration less than 10 minutes",
            MIN_EXPIRATION..=MAX_EXPIRATION => "",
            _ => "may not specify a duration larger than 2^32 seconds",
        };
        if !detail.is_empty() {
            return Err(invalid("", "spec.expirationSeconds", expiration.into(), detail));
        }
        let mut audiences = strings(list_at(request, &["spec", "audiences"]));
        if audiences.is_empty() {
            audiences = self.audiences().to_vec();
        }

        let mut private =
            json!({"namespace": namespace, "serviceaccount": {"name": name, "uid": account.uid()}});
        let bound = at(request, &["spec", "boundObjectRef"]).filter(|bound| !bound.is_null());
        if let Some(bound) = bound {
            self.bind_token(namespace, name, bound, &mut private)?;
        }
        let now = self.config.clock.now();
        let issued = now.as_second();
        let mut expires = issued.saturating_add(expiration);
        if expiration == WARN_ONLY_EXPIRATION
            && private.get("pod").is_some()
            && audiences.iter().all(|audience| self.audiences().contains(audience))
        {
            private["warnafter"] = expires.into();
            expires = issued.saturating_add(EXTENDED_EXPIRATION);
        }
        let claims = json!({
            "aud": audiences,
            "exp": expires,
            "iat": issued,
            "iss": self.config.service_account_issuer,
            "jti": new_uid(&*self.config.random),
            "kubernetes.io": private,
            "nbf": issued,
            "sub": make_username(namespace, name),
        });

        let mut answer = request.clone();
        let time = |seconds| Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX).to_string();
        for (field, value) in [
            ("name", name),
            ("namespace", namespace),
            ("uid", account.uid()),
            ("creationTimestamp", time(issued).as_str()),
        ] {
            set(&mut answer, &["metadata", field], value);
        }
        set(&mut answer, &["spec", "audiences"], audiences);
        set(&mut answer, &["spec", "boundObjectRef"], bound.cloned());
        let token = jwt::sign(&self.config.service_account_key, &claims);
        let expires = time(issued.saturating_add(expiration));
        set(&mut answer, &["status"], json!({"token": token, "expirationTimestamp": expires}));
        Ok(answer)
    }

    /// Adds the object that a token is bound to.
    fn bind_token(
        &self,
        namespace: &str,
        account: &str,
        bound: &Value,
        private: &mut Value,
    ) -> Result<(), ApiStatus> {
        let of = |field| str_at(bound, &[field]);
        let (kind, name) = (of("kind"), of("name"));
        let (group, version) = match of("apiVersion").split('/').collect::<Vec<_>>().as_slice() {
            [version] => ("", *version),
            [group, version] => (*group, *version),
            // As upstream, which ignores a version that it cannot parse.
            _ => ("", ""),
        };
        let (resource, namespace) = match (group, kind) {
            ("", "Pod") => (Resource::PODS, namespace),
            ("", "Secret") => (Resource::SECRETS, namespace),
            ("", "Node") => (Resource::NODES, ""),
            _ => {
                return Err(ApiStatus::bad_request(format!(
                    "cannot bind token to object of type {group}/{version}, Kind={kind}"
                )));
            }
        };
        if name.is_empty() {
            return Err(ApiStatus::bad_request("Name parameter required."));
        }
        let object = self.get(resource, namespace, name)?;
        if resource == Resource::PODS {
            if str_at(object.value(), &["spec", "serviceAccountName"]) != account {
                return Err(ApiStatus::bad_request(format!(
                    "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
                )));
            }
            let node = str_at(object.value(), &["spec", "nodeName"]);
            if !node.is_empty() {
                let stored = self.get(Resource::NODES, "", node);
                private["node"] = stored.map_or_else(|_| json!({"name": node}), |node| reference(&node));
            }
        }
        let uid = of("uid");
        if !uid.is_empty() && uid != object.uid() {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have \
                 been deleted and then recreated"
            );
            return Err(ApiStatus::conflict_of_kind("", kind, name, &why));
        }
        private[kind.to_lowercase()] = reference(&object);
        Ok(())
    }

    /// Returns the user of a token for one of `audiences`. `None` if the token is not of this server.
    ///
    /// Upstream counterpart: `jwtTokenAuthenticator.AuthenticateToken` and `validator.Validate`.
    ///
    /// # Errors
    ///
    /// Returns the reason if the token is not valid any more or is for other audiences.
    pub(crate) fn authenticate_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Option<Result<Authenticated, String>> {
        let token = jwt::Unverified::parse(token)?;
        if str_at(&token.claims, &["iss"]) != self.config.service_account_issuer {
            return None;
        }
        // Servers have the same issuer by default, but not the same key.
        let claims = token.verify(&self.config.service_account_key)?;
        let own = strings(list_at(&claims, &["aud"]));
        let shared: Vec<String> = own.iter().filter(|own| audiences.contains(own)).cloned().collect();
        if shared.is_empty() {
            return Some(Err(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(&own),
                quoted(audiences)
            )));
        }
        Some(self.validate_claims(&claims).map(|user| Authenticated { user, audiences: shared }))
    }

    /// Returns the user of the claims of a token.
    fn validate_claims(&self, claims: &Value) -> Result<User, String> {
        let now = self.config.clock.now().saturating_sub(LEEWAY).unwrap_or(Timestamp::MIN);
        if i64_at(claims, &["exp"]).is_none_or(|expires| expires < now.as_second()) {
            return Err("service account token has expired".to_owned());
        }
        let private = &claims["kubernetes.io"];
        let (namespace, account) = (str_at(private, &["namespace"]), &private["serviceaccount"]);
        let is_deleted = |object: &Object| {
            let deleted = str_at(object.value(), &["metadata", "deletionTimestamp"]).parse::<Timestamp>();
            deleted.is_ok_and(|deleted| deleted < now)
        };
        let (name, uid) = (str_at(account, &["name"]), str_at(account, &["uid"]));
        let stored =
            self.get(Resource::SERVICE_ACCOUNTS, namespace, name).map_err(|missing| missing.message)?;
        if stored.uid() != uid {
            return Err(format!("service account UID ({}) does not match claim ({uid})", stored.uid()));
        }
        if is_deleted(&stored) {
            return Err(format!("service account {namespace}/{name} has been deleted"));
        }
        for (kind, resource, namespace) in [
            ("secret", Resource::SECRETS, namespace),
            ("pod", Resource::PODS, namespace),
            ("node", Resource::NODES, ""),
        ] {
            // The node of a pod is not checked.
            let Some(bound) = private.get(kind).filter(|_| kind != "node" || private.get("pod").is_none())
            else {
                continue;
            };
            let invalidated = || "service account token has been invalidated".to_owned();
            let (name, uid) = (str_at(bound, &["name"]), str_at(bound, &["uid"]));
            let stored = self.get(resource, namespace, name).map_err(|_| invalidated())?;
            if stored.uid() != uid {
                return Err(format!(
                    "{kind} UID ({}) does not match service account {kind} ref claim ({uid})",
                    stored.uid()
                ));
            }
            if is_deleted(&stored) {
                return Err(invalidated());
            }
        }

        let mut extra = UserExtra::new();
        let mut add = |key: &str, value: &str| {
            if !value.is_empty() {
                extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
            }
        };
        add("credential-id", &format!("JTI={}", str_at(claims, &["jti"])));
        for kind in ["node", "pod"] {
            add(&format!("{kind}-name"), str_at(private, &[kind, "name"]));
            add(&format!("{kind}-uid"), str_at(private, &[kind, "uid"]));
        }
        let groups = make_group_names(namespace);
        let user = User::authenticated(make_username(namespace, name), uid.to_owned(), groups);
        Ok(User { extra, ..user })
    }
}

fn strings(list: &[Value]) -> Vec<String> {
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Texts as `%q` of Go prints them.
fn quoted(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", quoted.join(" "))
}
