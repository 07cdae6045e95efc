//! In which form somebody wants a page.
//!
//! *Upstream counterpart:* `endpoints/handlers/negotiation`, as far as `/flagz` and `/statusz` have use for it.

use http::StatusCode;

use crate::{Answer, Asked, refusal::refusal};

/// The API group of pages that machines can read.
const GROUP: &str = "config.k8s.io";
/// Newest first.
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];

/// A form that a page has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// For people.
    Text,
    /// An object of this version.
    Json(&'static str),
    /// The same in other letters.
    Yaml(&'static str),
}

/// One clause of an `Accept` header.
struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: f32,
    /// `g`, `v` and `as`, if any of them is there.
    object: Option<[&'a str; 3]>,
}

/// The form of the page `kind`, such as `Statusz`, that `asked` prefers; none if he wants none that there is.
pub(super) fn negotiate(asked: &Asked<'_>, kind: &str) -> Option<Form> {
    let accept = asked.headers.get(http::header::ACCEPT).map_or("", |value| value.to_str().unwrap_or("?"));
    if accept.trim().is_empty() {
        return Some(Form::Text);
    }
    let mut clauses: Vec<_> = accept.split(',').map(Clause::parse).collect();
    // What is more wanted, and less general, first; of those alike, what was said first.
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
        let fits = |one: &str, other: &str| {
            (self.kind == one || self.kind == "*") && (self.subtype == other || self.subtype == "*")
        };
        match self.object {
            None => fits("text", "plain").then_some(Form::Text),
            Some([GROUP, version, named]) if named == kind => {
                let version = VERSIONS.into_iter().find(|known| *known == version)?;
                if fits("application", "json") {
                    return Some(Form::Json(version));
                }
                fits("application", "yaml").then_some(Form::Yaml(version))
            }
            Some(_) => None,
        }
    }
}

/// Says which forms there are.
pub(super) fn not_acceptable(asked: &Asked<'_>) -> Answer {
    let message =
        "only the following media types are accepted: application/json, application/yaml, text/plain";
    refusal(asked, StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message, false)
}
