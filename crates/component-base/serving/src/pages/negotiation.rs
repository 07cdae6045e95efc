//! Content negotiation of `/flagz` and `/statusz`.
//!
//! Upstream counterpart: `endpoints/handlers/negotiation`.

use http::StatusCode;

use crate::{Request, Response, refusal::refusal};

/// API group of the structured pages.
const GROUP: &str = "config.k8s.io";
/// API versions, newest first.
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];

/// Media type and version of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Plain text.
    Text,
    /// JSON object of this API version.
    Json(&'static str),
    /// YAML object of this API version.
    Yaml(&'static str),
}

/// Clause of an `Accept` header.
struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: f32,
    /// Parameters `g`, `v` and `as`. `None` without any of them.
    object: Option<[&'a str; 3]>,
}

/// Returns the form of the page `kind`, such as `Statusz`, that `request` prefers. `None` if no form is acceptable.
pub(super) fn negotiate(request: &Request<'_>, kind: &str) -> Option<Form> {
    let accept = request.headers.get(http::header::ACCEPT).map_or("", |value| value.to_str().unwrap_or("?"));
    if accept.trim().is_empty() {
        return Some(Form::Text);
    }
    let mut clauses: Vec<_> = accept.split(',').map(Clause::parse).collect();
    // By quality, then by specificity, then by position.
    clauses.sort_by(|one, other| {
        let by_quality = other.quality.total_cmp(&one.quality);
        by_quality.then((one.kind == "*", one.subtype == "*").cmp(&(other.kind == "*", other.subtype == "*")))
    });
    clauses.iter().find_map(|clause| clause.form(kind))
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = parts.next().unwrap_or_default().split_once('/').unwrap_or(("", ""));
        let mut clause = Clause { kind, subtype, quality: 1.0, object: None };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let [group, version, name_of_kind] = clause.object.unwrap_or_default();
            match name.trim() {
                "q" => clause.quality = value.trim().parse().unwrap_or(1.0),
                "g" => clause.object = Some([value, version, name_of_kind]),
                "v" => clause.object = Some([group, value, name_of_kind]),
                "as" => clause.object = Some([group, version, value]),
                _ => {}
            }
        }
        clause
    }

    fn form(&self, kind: &str) -> Option<Form> {
        let accepts = |kind: &str, subtype: &str| {
            (self.kind == kind || self.kind == "*") && (self.subtype == subtype || self.subtype == "*")
        };
        match self.object {
            None => accepts("text", "plain").then_some(Form::Text),
            Some([GROUP, version, named]) if named == kind => {
                let version = VERSIONS.into_iter().find(|known| *known == version)?;
                if accepts("application", "json") {
                    return Some(Form::Json(version));
                }
                accepts("application", "yaml").then_some(Form::Yaml(version))
            }
            Some(_) => None,
        }
    }
}

/// Response 406 with the supported media types.
pub(super) fn not_acceptable(request: &Request<'_>) -> Response {
    let message =
        "only the following media types are accepted: application/json, application/yaml, text/plain";
    refusal(request, StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message, false)
}
