//! Media types of requests and responses.

use crate::{ApiStatus, PatchType, StatusReason, registry::PATCHES_OF_CUSTOM_RESOURCES};

pub(super) const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Representation of objects in a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Representation {
    /// Complete objects.
    #[default]
    Plain,
    /// `Table` of this `meta.k8s.io` version.
    Table(&'static str),
    /// `PartialObjectMetadata` of this `meta.k8s.io` version.
    Metadata(&'static str),
}

/// Encoding of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

/// Clause of an `Accept` header.
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        Self { media, parameters: parts.filter_map(|part| part.split_once('=')).collect() }
    }

    fn parameter(&self, key: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    /// `true` for JSON, and for YAML, which is converted from it.
    fn is_text(&self) -> bool {
        matches!(self.media, "application/json" | YAML | "application/*" | "*/*" | "")
    }

    fn is_supported(&self) -> bool {
        self.is_text() || self.media == PROTOBUF
    }
}

/// Returns the clauses in order of preference.
fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = accept.split(',').map(str::trim).map(Clause::parse).collect();
    let quality = |clause: &Clause<'_>| clause.parameter("q").and_then(|q| q.parse().ok()).unwrap_or(1.0_f64);
    // The sort is stable: clauses of equal quality keep their order.
    clauses.sort_by(|a, b| quality(b).total_cmp(&quality(a)));
    clauses
}

/// Media types of the responses of built-in kinds.
const MEDIA_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

fn not_acceptable(media_types: &str) -> ApiStatus {
    let message = format!("only the following media types are accepted: {media_types}");
    ApiStatus::new(StatusReason::NotAcceptable, message)
}

/// Rejects an `Accept` header without any media type of responses. `streams` adds the types of watches to the message.
///
/// Upstream counterpart: the router of `go-restful`, which the paths of custom resources do not use.
pub(super) fn check_acceptable(accept: &str, streams: bool) -> Result<(), ApiStatus> {
    if clauses(accept).iter().any(Clause::is_supported) {
        return Ok(());
    }
    let streams = if streams {
        ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
    } else {
        ""
    };
    let message = format!("406: Not Acceptable\n\nAvailable representations: {MEDIA_TYPES}{streams}");
    Err(ApiStatus { details: Some(Box::default()), ..ApiStatus::new(StatusReason::NotAcceptable, message) })
}

/// `true` if the first supported clause of `accept` is YAML.
pub(super) fn prefers_yaml(accept: &str) -> bool {
    clauses(accept).iter().find(|clause| clause.is_supported()).is_some_and(|first| first.media == YAML)
}

impl Representation {
    /// Returns the first supported representation in `accept`. Without `tables`, tables are not supported.
    ///
    /// # Errors
    ///
    /// 406 if none is supported.
    pub(super) fn negotiate(accept: &str, tables: bool) -> Result<Self, ApiStatus> {
        clauses(accept)
            .iter()
            .filter(|clause| clause.is_text())
            .find_map(|clause| {
                let version = match clause.parameter("v") {
                    Some("v1") => "meta.k8s.io/v1",
                    Some("v1beta1") => "meta.k8s.io/v1beta1",
                    _ => "",
                };
                let known = !version.is_empty() && clause.parameter("g") == Some("meta.k8s.io");
                match clause.parameter("as") {
                    None | Some("") => Some(Self::Plain),
                    Some("Table") if known && tables => Some(Self::Table(version)),
                    Some("PartialObjectMetadata" | "PartialObjectMetadataList") if known => {
                        Some(Self::Metadata(version))
                    }
                    Some(_) => None,
                }
            })
            .ok_or_else(|| not_acceptable(MEDIA_TYPES))
    }
}

/// Checks that a complete object is acceptable.
///
/// # Errors
///
/// 406 if it is not.
pub(super) fn negotiate_object(accept: &str) -> Result<(), ApiStatus> {
    let is_plain = |clause: &Clause<'_>| clause.is_text() && clause.parameter("as").is_none_or(str::is_empty);
    clauses(accept).iter().any(is_plain).then_some(()).ok_or_else(|| not_acceptable(MEDIA_TYPES))
}

/// Returns the requested version of aggregated discovery, `v2` or `v2beta1`, if any.
///
/// # Errors
///
/// 406 if JSON is not acceptable.
pub(super) fn negotiate_discovery(accept: &str) -> Result<Option<&'static str>, ApiStatus> {
    clauses(accept)
        .iter()
        .filter(|clause| clause.is_text())
        .find_map(|clause| match (clause.parameter("as"), clause.parameter("v")) {
            (None, _) => Some(None),
            (Some("APIGroupDiscoveryList"), Some("v2")) => Some(Some("v2")),
            (Some("APIGroupDiscoveryList"), Some("v2beta1")) => Some(Some("v2beta1")),
            _ => None,
        })
        .ok_or_else(|| not_acceptable("application/json"))
}

/// `true` if the first clause of `accept` is protobuf, of whole objects or of metadata.
pub(super) fn prefers_protobuf(accept: &str) -> bool {
    clauses(accept).first().is_some_and(|clause| {
        clause.media == PROTOBUF
            && matches!(
                clause.parameter("as"),
                None | Some("PartialObjectMetadata" | "PartialObjectMetadataList")
            )
    })
}

fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

impl Encoding {
    /// Returns the encoding of a `Content-Type`. The default is JSON.
    pub(super) fn of(content_type: &str) -> Result<Self, ApiStatus> {
        match essence(content_type).as_str() {
            "" | "application/json" => Ok(Self::Json),
            YAML => Ok(Self::Yaml),
            PROTOBUF => Ok(Self::Protobuf),
            _ => Err(ApiStatus::unsupported_media_type(MEDIA_TYPES)),
        }
    }
}

/// `true` if the body is an apply configuration.
pub(super) fn is_apply(content_type: &str) -> bool {
    essence(content_type) == "application/apply-patch+yaml"
}

/// Returns the patch format of a `Content-Type`.
pub(super) fn patch_type(content_type: &str, is_custom: bool) -> Result<PatchType, ApiStatus> {
    match essence(content_type).as_str() {
        "application/json-patch+json" => Ok(PatchType::Json),
        "application/merge-patch+json" => Ok(PatchType::Merge),
        "application/strategic-merge-patch+json" if !is_custom => Ok(PatchType::Strategic),
        // Server-side apply is handled separately: see `is_apply`.
        _ if is_custom => Err(ApiStatus::unsupported_media_type(PATCHES_OF_CUSTOM_RESOURCES)),
        _ => Err(ApiStatus::unsupported_patch()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_supported_clause_is_chosen() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let negotiate = |accept: &str| Representation::negotiate(accept, true).ok();
        assert_eq!(negotiate(""), Some(Representation::Plain));
        assert_eq!(negotiate("*/*"), Some(Representation::Plain));
        assert_eq!(negotiate("application/json, */*"), Some(Representation::Plain));
        assert_eq!(
            negotiate("application/vnd.kubernetes.protobuf,application/json"),
            Some(Representation::Plain)
        );
        assert_eq!(
            negotiate(&format!("{table},application/json")),
            Some(Representation::Table("meta.k8s.io/v1"))
        );
        assert_eq!(negotiate("application/json;as=Chart;v=v1;g=meta.k8s.io"), None);
        assert_eq!(
            negotiate("application/json;as=Chart;v=v1;g=x,application/json"),
            Some(Representation::Plain)
        );
        assert_eq!(
            negotiate(&format!("application/json;q=0.5,{table}")),
            Some(Representation::Table("meta.k8s.io/v1"))
        );
        assert_eq!(negotiate("application/vnd.kubernetes.protobuf"), None);
    }

    #[test]
    fn discovery_is_aggregated_in_supported_versions() {
        let aggregated =
            |v: &str| format!("application/json;g=apidiscovery.k8s.io;v={v};as=APIGroupDiscoveryList");
        assert_eq!(negotiate_discovery(&aggregated("v2")).unwrap(), Some("v2"));
        assert_eq!(negotiate_discovery(&aggregated("v2beta1")).unwrap(), Some("v2beta1"));
        assert_eq!(negotiate_discovery("application/json").unwrap(), None);
        assert_eq!(negotiate_discovery(&format!("{},application/json", aggregated("v9"))).unwrap(), None);
        assert!(negotiate_discovery("text/html").is_err());
    }

    #[test]
    fn encoding_ignores_parameters() {
        assert_eq!(Encoding::of("application/json; charset=utf-8").unwrap(), Encoding::Json);
        assert_eq!(Encoding::of("").unwrap(), Encoding::Json);
        assert!(Encoding::of("text/plain").is_err());
        assert_eq!(patch_type("application/merge-patch+json;x=y", false).unwrap(), PatchType::Merge);
        assert_eq!(patch_type("application/apply-patch+yaml", false).unwrap_err().code(), 415);
        assert!(is_apply("application/apply-patch+yaml") && !is_apply("application/merge-patch+json"));
    }
}
