//! Headers with the credentials of a kubeconfig.

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{
    Error, HeaderMap, HeaderValue,
    header::{AUTHORIZATION, HeaderName, InvalidHeaderValue},
};
use kube_client::config::AuthInfo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use secrecy::ExposeSecret;

use super::credentials::{ClientConfigError, Server};

/// Bytes that are escaped in the name of an extra field of the impersonated user: all but those of a header name. As Go's
/// client, `%` is escaped, too.
const NOT_IN_HEADER_NAME: AsciiSet = {
    let (allowed, mut at, mut set) = (b"#$&'*+-.^_`|~", 0, NON_ALPHANUMERIC.remove(b'!'));
    while at < allowed.len() {
        set = set.remove(allowed[at]);
        at += 1;
    }
    set
};

/// Returns the headers that authenticate requests, and those that impersonate another user.
///
/// Upstream counterpart: `transport.HTTPWrappersForConfig`.
pub(super) fn auth_headers(server: &Server, auth: &AuthInfo) -> Result<HeaderMap, ClientConfigError> {
    headers(auth).map_err(|error| ClientConfigError::caused(server, &error))
}

fn headers(auth: &AuthInfo) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    if let (Some(user), Some(password)) = (&auth.username, &auth.password) {
        headers.insert(AUTHORIZATION, basic(user, password.expose_secret())?);
    } else if let Some(token) = &auth.token {
        headers.insert(AUTHORIZATION, sensitive(format!("Bearer {}", token.expose_secret()))?);
    }
    if let Some(user) = &auth.impersonate {
        headers.insert(HeaderName::from_static("impersonate-user"), user.parse()?);
    }
    if let Some(uid) = &auth.impersonate_uid {
        headers.insert(HeaderName::from_static("impersonate-uid"), uid.parse()?);
    }
    for group in auth.impersonate_groups.iter().flatten() {
        headers.append(HeaderName::from_static("impersonate-group"), group.parse()?);
    }
    for (key, values) in auth.impersonate_user_extra.iter().flatten() {
        let key = percent_encode(key.as_bytes(), &NOT_IN_HEADER_NAME);
        let name = HeaderName::try_from(format!("impersonate-extra-{key}"))?;
        for value in values {
            headers.append(name.clone(), value.parse()?);
        }
    }
    Ok(headers)
}

/// Returns the header value of basic authentication.
pub(super) fn basic(user: &str, password: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    sensitive(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))))
}

fn sensitive(text: String) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::try_from(text)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorization(user: &AuthInfo) -> Option<String> {
        let headers = headers(user).unwrap();
        headers.get(AUTHORIZATION).map(|value| {
            assert!(value.is_sensitive());
            value.to_str().unwrap().to_owned()
        })
    }

    #[test]
    fn password_takes_precedence_over_a_token() {
        let token = AuthInfo { token: Some("t".to_owned().into()), ..AuthInfo::default() };
        assert_eq!(authorization(&token).as_deref(), Some("Bearer t"));
        let name = AuthInfo { username: Some("jane".to_owned()), ..token };
        assert_eq!(authorization(&name).as_deref(), Some("Bearer t"));
        let both = AuthInfo { password: Some("p".to_owned().into()), ..name };
        assert_eq!(authorization(&both).as_deref(), Some("Basic amFuZTpw"));
        assert_eq!(authorization(&AuthInfo::default()), None);
    }
}
