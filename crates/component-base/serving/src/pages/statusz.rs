//! `/statusz` and `/flagz`: a component's version, paths and flags, for people and for machines.
//!
//! *Upstream counterpart:* `apiserver/pkg/server/statusz` and `flagz`, in their second version (`v1beta1`).
//!
//! DEVIATION: upstream separates names from values by one of four texts by chance, lest somebody parse them. Here it
//! is the same each time.

use std::{borrow::Cow, collections::BTreeMap, fmt::Write as _, sync::Arc};

use http::{HeaderName, HeaderValue, header::CONTENT_TYPE};
use kcm_clock::{Clock, Timestamp};
use serde::Serialize;

use super::negotiation::{Form, negotiate, not_acceptable};
use crate::{Answer, Asked, Handler, handler};

/// Before both pages.
const NOT_FOR_MACHINES: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting \
                                compatibility guarantees and is for debugging purposes only.";

/// What `/statusz` says of a component.
#[derive(Debug, Clone)]
pub struct Status {
    /// The component, such as `kube-controller-manager`.
    pub component: String,
    /// When it was started.
    pub started: Timestamp,
    /// The version of Kubernetes that it is, such as `1.36`.
    pub binary_version: String,
    /// The version of Kubernetes that it behaves as, such as `1.36`; empty: none.
    pub emulation_version: String,
    /// What it was built with, such as `rustc 1.95.0`. Upstream has Go's version here.
    pub compiler: String,
    /// Its [paths](crate::Routes::paths); of each, the first part is shown.
    pub paths: Vec<String>,
}

/// An object as a page.
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
}

#[derive(Serialize)]
struct FlagsContent<'a> {
    flags: &'a BTreeMap<String, String>,
}

/// `/statusz`: what a component is, since when it runs, which paths it has.
pub fn statusz(status: Status, clock: Arc<dyn Clock>) -> Handler {
    let mut paths: Vec<_> = status.paths.iter().filter_map(|path| folder(path)).collect();
    paths.sort_unstable();
    paths.dedup();
    handler(move |asked| {
        let up = clock.now().as_second().saturating_sub(status.started.as_second()).max(0);
        let content = StatusContent {
            start_time: status.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            uptime_seconds: up,
            go_version: &status.compiler,
            binary_version: &status.binary_version,
            emulation_version: &status.emulation_version,
            paths: &paths,
        };
        answer(asked, "Statusz", &status.component, content, |content| {
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
            escape(&text).into_owned()
        })
    })
}

/// `/flagz`: the flags that a component runs with, by name. Secrets must not be among them.
pub fn flagz(component: &str, flags: impl IntoIterator<Item = (String, String)>) -> Handler {
    let component = component.to_owned();
    let flags: BTreeMap<_, _> = flags.into_iter().collect();
    handler(move |asked| {
        answer(asked, "Flagz", &component, FlagsContent { flags: &flags }, |content| {
            let mut text = String::new();
            for (name, value) in content.flags {
                // Cannot fail: a String takes everything.
                let _ = writeln!(text, "{name}={value}");
            }
            text
        })
    })
}

fn answer<T: Serialize>(
    asked: &Asked<'_>,
    kind: &str,
    component: &str,
    content: T,
    text: impl FnOnce(T) -> String,
) -> Answer {
    let page = kind.to_ascii_lowercase();
    let (version, format) = match negotiate(asked, kind) {
        None => return not_acceptable(asked),
        Some(Form::Text) => {
            return Answer::text(format!("\n{component} {page}\n{NOT_FOR_MACHINES}\n{}", text(content)));
        }
        Some(Form::Json(version)) => (version, "json"),
        Some(Form::Yaml(version)) => (version, "yaml"),
    };
    let metadata = Metadata { name: component };
    let object = Object { kind, api_version: format!("config.k8s.io/{version}"), metadata, content };
    let body = if format == "json" { asked.render(&object) } else { yaml(&object) };
    let mut answer = Answer::json(body);
    // All of it is of characters that a header can have.
    let content_type = format!("application/{format};g=config.k8s.io;v={version};as={kind}");
    if let Ok(content_type) = HeaderValue::from_str(&content_type) {
        answer = answer.with(CONTENT_TYPE, content_type);
    }
    let warning =
        "This version of the PAGE endpoint is deprecated. Please use a newer version.".replace("PAGE", &page);
    match HeaderValue::from_str(&format!("299 - \"{warning}\"")) {
        Ok(warning) if version == "v1alpha1" => answer.with(HeaderName::from_static("warning"), warning),
        _ => answer,
    }
}

/// The first part of `path`; none for `/`.
fn folder(path: &str) -> Option<String> {
    let first = path.strip_prefix('/')?.split('/').next().filter(|first| !first.is_empty())?;
    Some(format!("/{first}"))
}

/// As Go's `html.EscapeString`: a browser that takes it for a page finds nothing to run in it.
fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(['<', '>', '&', '\'', '"']) {
        return Cow::Borrowed(text);
    }
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    Cow::Owned(text.replace('\'', "&#39;").replace('"', "&#34;"))
}

/// `object` as YAML, keys in order. Objects of this module hold texts, numbers, lists of texts, and such objects.
fn yaml(object: &impl Serialize) -> String {
    let mut text = String::new();
    // Cannot fail: what is given to it has text for keys.
    write_yaml(&mut text, &serde_json::to_value(object).unwrap_or_default(), 0);
    text
}

fn write_yaml(text: &mut String, value: &serde_json::Value, depth: usize) {
    let serde_json::Value::Object(fields) = value else { return };
    // Whatever order the map keeps, the text is in that of the names.
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

/// `value` as it is where nobody could take it for anything but text, else as JSON writes it, which is YAML.
fn scalar(value: &str) -> String {
    let is_word = value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && value.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let means_something = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
        .iter()
        .any(|word| value.eq_ignore_ascii_case(word));
    if is_word && !means_something { value.to_owned() } else { serde_json::Value::from(value).to_string() }
}
