//! Authenticating proxies, which send the user in request headers.
//!
//! Upstream counterpart: `authentication/request/headerrequest`.

use std::sync::Arc;

use http::HeaderMap;
use kcm_clock::Timestamp;

use super::{
    trust::{ClientChain, Trust},
    user::User,
};
use crate::{RequestHeaderOptions, handler::unescape, tls::Name};

/// Trusted proxies and their request headers.
#[derive(Debug)]
pub(super) struct FrontProxy {
    pub(super) trust: Arc<Trust>,
    pub(super) headers: Arc<ProxyHeaders>,
}

/// Names of the request headers, in lower case, and of the proxies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ProxyHeaders {
    /// Common names of proxies. Empty allows all certificates of the CA bundle.
    pub(super) allowed_names: Vec<String>,
    pub(super) username: Vec<String>,
    pub(super) uid: Vec<String>,
    pub(super) group: Vec<String>,
    pub(super) extra_prefixes: Vec<String>,
}

impl FrontProxy {
    /// User in the headers of a proxy with the certificates `chain`. `None` without these headers.
    ///
    /// # Errors
    ///
    /// If the proxy is not trusted.
    pub(super) fn user(
        &self,
        chain: &ClientChain,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<Option<User>, String> {
        let Some(certificate) = chain.certificates.first() else { return Ok(None) };
        self.trust.verify(&chain.certificates, &chain.as_proxy, now)?;
        let name = Name::of(certificate)?.common_name;
        let allowed = &self.headers.allowed_names;
        if !allowed.is_empty() && !allowed.contains(&name) {
            return Err(format!("x509: subject with cn={name} is not in the allowed list"));
        }
        Ok(self.headers.user(headers))
    }
}

impl ProxyHeaders {
    pub(super) fn new(options: &RequestHeaderOptions) -> Self {
        Self {
            allowed_names: options.allowed_names.clone(),
            username: names(&options.username_headers),
            uid: names(&options.uid_headers),
            group: names(&options.group_headers),
            extra_prefixes: names(&options.extra_header_prefixes),
        }
    }

    fn user(&self, headers: &HeaderMap) -> Option<User> {
        let first = |names: &[String]| values(headers, names).next();
        let name = first(&self.username)?;
        let mut user = User {
            name,
            uid: first(&self.uid).unwrap_or_default(),
            groups: values(headers, &self.group).collect(),
            ..User::default()
        };
        for prefix in &self.extra_prefixes {
            for (header, value) in headers {
                let Some(key) = header.as_str().strip_prefix(prefix.as_str()) else { continue };
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                user.extra.entry(unescape(key, false).into_owned()).or_default().push(value);
            }
        }
        Some(user)
    }
}

fn names(headers: &[String]) -> Vec<String> {
    headers.iter().map(|name| name.trim().to_ascii_lowercase()).collect()
}

/// Values of the headers called `names`, without empty values.
fn values<'a>(headers: &'a HeaderMap, names: &'a [String]) -> impl Iterator<Item = String> + 'a {
    let all = names.iter().flat_map(|name| headers.get_all(name.as_str()));
    all.filter(|value| !value.is_empty()).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn headers_contain_the_user() {
        let headers = ProxyHeaders {
            uid: vec!["x-remote-uid".to_owned()],
            ..ProxyHeaders::new(&RequestHeaderOptions::default())
        };
        let mut map = HeaderMap::new();
        assert_eq!(headers.user(&map), None);
        for (name, value) in [
            ("x-remote-user", "bob"),
            ("x-remote-uid", "42"),
            ("x-remote-group", "a"),
            ("x-remote-group", ""),
            ("x-remote-group", "b"),
            ("x-remote-extra-example.org%2fscope", "read"),
            ("x-remote-extra-example.org%2fscope", "write"),
        ] {
            map.append(name, HeaderValue::from_static(value));
        }
        let user = headers.user(&map).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("bob", "42"));
        assert_eq!(user.groups, ["a", "b"]);
        assert_eq!(user.extra["example.org/scope"], ["read", "write"]);
    }

    #[test]
    fn empty_user_name_is_ignored() {
        let mut map = HeaderMap::new();
        map.append("x-remote-user", HeaderValue::from_static(""));
        assert_eq!(ProxyHeaders::new(&RequestHeaderOptions::default()).user(&map), None);
    }
}
