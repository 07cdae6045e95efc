//! URLs.
//!
//! Upstream counterpart: `apiserver/pkg/cel/library/urls.go` on Go's `net/url`.

use std::{collections::HashMap, sync::Arc};

use kube_cel::cel::{
    Value,
    objects::{Key, Map, Opaque},
};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// An absolute URL, or a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Url {
    scheme: String,
    /// Host with port.
    host: String,
    path: String,
    query: String,
}

impl Opaque for Url {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.URL"
    }
}

/// Parses a URL as Go's `url.ParseRequestURI`.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let invalid = |why: &str| format!("URL parse error during conversion from string: parse {text:?}: {why}");
    if text.is_empty() {
        return Err(invalid("empty url"));
    }
    if text.chars().any(|c| c.is_ascii_control()) {
        return Err(invalid("net/url: invalid control character in URL"));
    }
    let (scheme, rest) = split_scheme(text).ok_or_else(|| invalid("missing protocol scheme"))?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !rest.starts_with('/') {
        // A URL such as `mailto:a@b` has no parts.
        return if scheme.is_empty() {
            Err(invalid("invalid URI for request"))
        } else {
            Ok(Value::Opaque(Arc::new(Url { scheme, query: query.to_owned(), ..Url::default() })))
        };
    }
    let authority = if scheme.is_empty() { None } else { rest.strip_prefix("//") };
    let (authority, path) = match authority {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (name, port) = split_port(host).ok_or_else(|| invalid("missing ']' in host"))?;
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid(&format!("invalid port {:?} after host", format!(":{port}"))));
    }
    if name.contains([' ', '<', '>', '"', '\\', '^', '`', '{', '|', '}']) {
        return Err(invalid("invalid character in host name"));
    }
    if !has_valid_escapes(path) || !has_valid_escapes(host) {
        return Err(invalid("invalid URL escape"));
    }
    let (host, path, query) = (host.to_owned(), path.to_owned(), query.to_owned());
    Ok(Value::Opaque(Arc::new(Url { scheme, host, path, query })))
}

/// Scheme in lower case, or `""`, and the rest. `None` for a colon without scheme before it.
fn split_scheme(text: &str) -> Option<(String, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)));
    match end.map(|end| (end, &text[end..])) {
        Some((0, rest)) if rest.starts_with(':') => None,
        Some((end, rest)) if rest.starts_with(':') && text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            Some((text[..end].to_ascii_lowercase(), &rest[1..]))
        }
        _ => Some((String::new(), text)),
    }
}

/// Host without brackets, and port.
fn split_port(host: &str) -> Option<(&str, &str)> {
    if let Some(rest) = host.strip_prefix('[') {
        let (name, rest) = rest.split_once(']')?;
        return Some((name, rest.strip_prefix(':').unwrap_or_default()));
    }
    Some(host.rsplit_once(':').unwrap_or((host, "")))
}

fn has_valid_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2)
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Calls an accessor of a URL. `None` for other values.
pub(super) fn part(name: &str, value: &Value) -> Option<Value> {
    let Value::Opaque(opaque) = value else { return None };
    let url = opaque.downcast_ref::<Url>()?;
    let split = split_port(&url.host).unwrap_or_default();
    Some(match name {
        "getScheme" => Value::from(url.scheme.as_str()),
        "getHost" => Value::from(decoded(&url.host)),
        "getHostname" => Value::from(decoded(split.0)),
        "getPort" => Value::from(split.1),
        "getEscapedPath" => Value::from(utf8_percent_encode(&url.path, UNSAFE).to_string()),
        "getQuery" => {
            let mut values: HashMap<Key, Vec<String>> = HashMap::new();
            for pair in url.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                let text = |part: &str| decoded(&part.replace('+', " "));
                values.entry(Key::from(text(name))).or_default().push(text(value));
            }
            let map = values.into_iter().map(|(name, values)| (name, Value::from(values))).collect();
            Value::Map(Map { map: Arc::new(map) })
        }
        _ => return None,
    })
}

/// Characters that are escaped in a path.
const UNSAFE: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'#')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');
