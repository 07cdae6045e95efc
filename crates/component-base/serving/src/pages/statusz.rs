//! `/statusz` and `/flagz`: version, paths and flags of a component, as text, JSON or YAML.
//!
//! DEVIATION: upstream separates names and values with one of four delimiters, chosen at random. Here the delimiter is
//! constant.
//!
//! Upstream counterpart: `apiserver/pkg/server/statusz` and `flagz` (`v1beta1`).

use std::{borrow::Cow, collections::BTreeMap, fmt::Write as _, sync::Arc};

use http::{HeaderName, HeaderValue, header::CONTENT_TYPE};
use kcm_clock::{Clock, Timestamp};
use serde::Serialize;

use super::negotiation::{Form, negotiate, not_acceptable};
use crate::{Handler, Request, Response, handler};

/// First line of both text pages.
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting \
                                compatibility guarantees and is for debugging purposes only.";

/// Contents of `/statusz`.
#[derive(Debug, Clone)]
pub struct StatuszInfo {
    /// Name of the component, such as `kube-controller-manager`.
    pub component: String,
    /// Start time.
    pub started: Timestamp,
    /// Kubernetes version of the binary, such as `1.36`.
    pub binary_version: String,
    /// Emulated Kubernetes version, such as `1.36`. May be empty.
    pub emulation_version: String,
    /// Compiler, such as `rustc 1.95.0`, in place of upstream's Go version.
    pub compiler: String,
    /// [Paths](crate::Routes::paths). The page shows the first segment of each.
    pub paths: Vec<String>,
    /// Lines about the configuration that operators must know, after upstream's lines. Usually empty.
    pub notices: Vec<String>,
}

/// Structured page.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a, T> {
    kind: &'a str,
    api_version: String,
    metadata: Metadata<'a>,
    #[serde(flatten)]
    content: T,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusContent<'a> {
    start_time: String,
    uptime_seconds: i64,
    go_version: &'a str,
    binary_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    emulation_version: &'a str,
    paths: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    notices: &'a [String],
}

#[derive(Serialize)]
struct FlagsContent<'a> {
    flags: &'a BTreeMap<String, String>,
}

/// Handler of `/statusz`: version, uptime and paths of a component.
pub fn statusz(status: StatuszInfo, clock: Arc<dyn Clock>) -> Handler {
    let mut paths: Vec<_> = status.paths.iter().filter_map(|path| first_segment(path)).collect();
    paths.sort_unstable();
    paths.dedup();
    handler(move |request| {
        let up = clock.now().as_second().saturating_sub(status.started.as_second()).max(0);
        let content = StatusContent {
            start_time: status.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            uptime_seconds: up,
            go_version: &status.compiler,
            binary_version: &status.binary_version,
            emulation_version: &status.emulation_version,
            paths: &paths,
            notices: &status.notices,
        };
        response(request, "Statusz", &status.component, content, |content| {
            let started = status.started.strftime("%a %b %e %H:%M:%S UTC %Y");
            let mut text = format!(
                "\nStarted: {started}\nUp: {} hr {:02} min {:02} sec\nGo version: {}\nBinary version: {}\n",
                up / 3600,
                up / 60 % 60,
                up % 60,
                content.go_version,
                content.binary_version
            );
            let named = |name: &str, value: &str| match value {
                "" => "\n".to_owned(),
                value => format!("{name}: {value}\n"),
            };
            text += &named("Emulation version", content.emulation_version);
            text += &named("Paths", &content.paths.join(" "));
            for notice in content.notices {
                text += &named("Notice", notice);
            }
            escape(&text).into_owned()
        })
    })
}

/// Handler of `/flagz`: names and values of the component's flags. The values must not contain secrets.
pub fn flagz(component: &str, flags: impl IntoIterator<Item = (String, String)>) -> Handler {
    let component = component.to_owned();
    let flags: BTreeMap<_, _> = flags.into_iter().collect();
    handler(move |request| {
        response(request, "Flagz", &component, FlagsContent { flags: &flags }, |content| {
            let mut text = String::new();
            for (name, value) in content.flags {
                // Writing to a `String` does not fail.
                let _ = writeln!(text, "{name}={value}");
            }
            text
        })
    })
}

fn response<T: Serialize>(
    request: &Request<'_>,
    kind: &str,
    component: &str,
    content: T,
    text: impl FnOnce(T) -> String,
) -> Response {
    let page = kind.to_ascii_lowercase();
    let (version, format) = match negotiate(request, kind) {
        None => return not_acceptable(request),
        Some(Form::Text) => {
            return Response::text(format!("\n{component} {page}\n{WARNING}\n{}", text(content)));
        }
        Some(Form::Json(version)) => (version, "json"),
        Some(Form::Yaml(version)) => (version, "yaml"),
    };
    let metadata = Metadata { name: component };
    let object = Object { kind, api_version: format!("config.k8s.io/{version}"), metadata, content };
    let body = if format == "json" { request.render(&object) } else { yaml(&object) };
    let mut response = Response::json(body);
    // All characters are valid in a header.
    let content_type = format!("application/{format};g=config.k8s.io;v={version};as={kind}");
    if let Ok(content_type) = HeaderValue::from_str(&content_type) {
        response = response.with(CONTENT_TYPE, content_type);
    }
    let warning =
        "This version of the PAGE endpoint is deprecated. Please use a newer version.".replace("PAGE", &page);
    match HeaderValue::from_str(&format!("299 - \"{warning}\"")) {
        Ok(warning) if version == "v1alpha1" => response.with(HeaderName::from_static("warning"), warning),
        _ => response,
    }
}

/// First segment of `path`. `None` for `/`.
fn first_segment(path: &str) -> Option<String> {
    let first = path.strip_prefix('/')?.split('/').next().filter(|first| !first.is_empty())?;
    Some(format!("/{first}"))
}

/// Escapes HTML as Go's `html.EscapeString`.
fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(['<', '>', '&', '\'', '"']) {
        return Cow::Borrowed(text);
    }
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    Cow::Owned(text.replace('\'', "&#39;").replace('"', "&#34;"))
}

/// Formats `object` as YAML with sorted keys. Supports strings, numbers, lists of scalars and nested objects.
fn yaml(object: &impl Serialize) -> String {
    let mut text = String::new();
    // Does not fail: all map keys are strings.
    write_yaml(&mut text, &serde_json::to_value(object).unwrap_or_default(), 0);
    text
}

fn write_yaml(text: &mut String, value: &serde_json::Value, depth: usize) {
    let serde_json::Value::Object(fields) = value else { return };
    let fields: BTreeMap<_, _> = fields.iter().collect();
    for (name, value) in fields {
        let _ = write!(text, "{:depth$}{}:", "", scalar(name));
        match value {
            serde_json::Value::Object(fields) if !fields.is_empty() => {
                text.push('\n');
                write_yaml(text, value, depth + 2);
            }
            serde_json::Value::Array(items) if !items.is_empty() => {
                text.push('\n');
                for item in items {
                    let _ = writeln!(
                        text,
                        "{:depth$}- {}",
                        "",
                        item.as_str().map_or_else(|| item.to_string(), scalar)
                    );
                }
            }
            serde_json::Value::String(value) => {
                let _ = writeln!(text, " {}", scalar(value));
            }
            other => {
                let _ = writeln!(text, " {other}");
            }
        }
    }
}

/// Formats a string: unquoted if YAML reads it as a string, otherwise as JSON.
fn scalar(value: &str) -> String {
    let is_word = value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && value.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let is_reserved = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
        .iter()
        .any(|word| value.eq_ignore_ascii_case(word));
    if is_word && !is_reserved { value.to_owned() } else { serde_json::Value::from(value).to_string() }
}
