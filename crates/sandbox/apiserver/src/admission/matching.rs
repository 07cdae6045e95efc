//! Selection of writes by the rules and selectors of webhooks and policies.
//!
//! Upstream counterpart: `admission/plugin/webhook/predicates` and `admission/plugin/policy/matching`.

use serde_json::Value;

use super::{Attributes, GroupVersionResource, Operation};
use crate::{
    ApiStatus, LabelSelector,
    json::{at, list_at, str_at},
};

/// Group of the configuration of admission.
const ADMISSION_REGISTRATION: &str = "admissionregistration.k8s.io";
const NAMESPACES: GroupVersionResource<'static> =
    GroupVersionResource { group: "", version: "v1", resource: "namespaces" };

/// Rules and selectors of a webhook or a policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Criteria<'a> {
    /// `rules` of a webhook, or `resourceRules` of a policy.
    pub(crate) rules: &'a [Value],
    /// `excludeResourceRules` of a policy.
    pub(crate) excluded: &'a [Value],
    /// If `true`, no rules match everything, as in a policy.
    pub(crate) is_optional: bool,
    /// Object with `namespaceSelector`, `objectSelector` and `matchPolicy`.
    pub(crate) selectors: &'a Value,
}

impl<'a> Criteria<'a> {
    /// Criteria of a webhook of a `MutatingWebhookConfiguration` or a `ValidatingWebhookConfiguration`.
    pub(crate) fn of_webhook(webhook: &'a Value) -> Self {
        Self { rules: list_at(webhook, &["rules"]), excluded: &[], is_optional: false, selectors: webhook }
    }

    /// Criteria of a `MatchResources`.
    #[cfg(any(feature = "cel", test))]
    pub(crate) fn of_match_resources(resources: &'a Value) -> Self {
        Self {
            rules: list_at(resources, &["resourceRules"]),
            excluded: list_at(resources, &["excludeResourceRules"]),
            is_optional: true,
            selectors: resources,
        }
    }

    /// Returns the resource in whose version the write matches, if it does.
    ///
    /// `equivalents` are the group-versions in which the resource is served. `namespace` returns the stored namespace of the
    /// write.
    ///
    /// # Errors
    ///
    /// 404 if the labels of a namespace that does not exist decide.
    pub(crate) fn matches(
        &self,
        attributes: &Attributes<'a>,
        equivalents: &[GroupVersionResource<'a>],
        namespace: impl FnOnce() -> Option<std::sync::Arc<crate::Object>>,
    ) -> Result<Option<GroupVersionResource<'a>>, ApiStatus> {
        if !self.matches_objects(attributes) {
            return Ok(None);
        }
        let is_equivalent = str_at(self.selectors, &["matchPolicy"]) != "Exact";
        let find = |rules: &[Value]| {
            let served = equivalents.iter().filter(|_| is_equivalent).copied();
            let served = served.filter(|served| *served != attributes.resource);
            std::iter::once(attributes.resource)
                .chain(served)
                .find(|resource| rules.iter().any(|rule| matches_rule(rule, attributes, *resource)))
        };
        if find(self.excluded).is_some() {
            return Ok(None);
        }
        let matched = match self.rules {
            [] if self.is_optional => Some(attributes.resource),
            rules => find(rules),
        };
        // A missing namespace is an error only for a write that the rules select.
        match matched {
            Some(resource) if self.matches_namespace(attributes, namespace)? => Ok(Some(resource)),
            _ => Ok(None),
        }
    }

    fn selector(&self, name: &str) -> Option<LabelSelector> {
        let selector = at(self.selectors, &[name]).map(LabelSelector::from_object)?;
        Some(selector).filter(|selector| !selector.is_empty())
    }

    /// Labels of the old or of the new object match.
    fn matches_objects(&self, attributes: &Attributes<'_>) -> bool {
        self.selector("objectSelector").is_none_or(|selector| {
            let objects = [attributes.object, attributes.old_object];
            objects.into_iter().flatten().any(|object| selector.matches(object))
        })
    }

    fn matches_namespace(
        &self,
        attributes: &Attributes<'_>,
        namespace: impl FnOnce() -> Option<std::sync::Arc<crate::Object>>,
    ) -> Result<bool, ApiStatus> {
        let is_namespace = attributes.resource.resource == NAMESPACES.resource;
        if attributes.namespace.is_empty() && !is_namespace {
            return Ok(true);
        }
        let Some(selector) = self.selector("namespaceSelector") else { return Ok(true) };
        let is_written = matches!(attributes.operation, Operation::Create | Operation::Update);
        match attributes.object {
            Some(object) if is_namespace && is_written && attributes.subresource.is_empty() => {
                Ok(selector.matches(object))
            }
            _ => match namespace() {
                Some(namespace) => Ok(selector.matches(namespace.value())),
                None => Err(ApiStatus::not_found(crate::Resource::NAMESPACES, attributes.namespace)),
            },
        }
    }
}

/// `true` for the configuration of admission, which no webhook and no policy intercepts.
pub(crate) fn is_exempt(attributes: &Attributes<'_>) -> bool {
    attributes.kind.group == ADMISSION_REGISTRATION
        && matches!(
            attributes.kind.kind,
            "ValidatingWebhookConfiguration"
                | "MutatingWebhookConfiguration"
                | "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
                | "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding"
        )
}

/// `true` if a `RuleWithOperations` or a `NamedRuleWithOperations` matches a write of `resource`.
fn matches_rule(rule: &Value, attributes: &Attributes<'_>, resource: GroupVersionResource<'_>) -> bool {
    let contains = |field: &str, wanted: &str| {
        list_at(rule, &[field]).iter().any(|found| found == "*" || found == wanted)
    };
    let names = list_at(rule, &["resourceNames"]);
    matches_scope(str_at(rule, &["scope"]), attributes, resource)
        && contains("operations", attributes.operation.name())
        && contains("apiGroups", resource.group)
        && contains("apiVersions", resource.version)
        && list_at(rule, &["resources"]).iter().filter_map(Value::as_str).any(|found| {
            let (found, part) = found.split_once('/').unwrap_or((found, ""));
            (found == "*" || found == resource.resource) && (part == "*" || part == attributes.subresource)
        })
        && (names.is_empty() || names.iter().any(|name| name == attributes.name))
}

fn matches_scope(scope: &str, attributes: &Attributes<'_>, resource: GroupVersionResource<'_>) -> bool {
    let is_of_cluster = resource == NAMESPACES || attributes.namespace.is_empty();
    match scope {
        "" | "*" => true,
        "Namespaced" => !is_of_cluster,
        "Cluster" => is_of_cluster,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::GroupVersionKind, *};
    use crate::User;

    const V1: GroupVersionResource<'_> =
        GroupVersionResource { group: "example.com", version: "v1", resource: "websites" };
    const V2: GroupVersionResource<'_> = GroupVersionResource { version: "v2", ..V1 };

    /// A write of a website in the namespace `shop`, whose label `team` is `a`.
    fn matched(
        criteria: &Value,
        change: impl FnOnce(&mut Attributes<'_>),
    ) -> Result<Option<&'static str>, u16> {
        let object = json!({"metadata": {"labels": {"tier": "web"}}});
        let (user, options) = (User::admin(), json!({}));
        let mut attributes = Attributes {
            operation: Operation::Create,
            kind: GroupVersionKind { group: V1.group, version: V1.version, kind: "Website" },
            resource: V1,
            subresource: "",
            namespace: "shop",
            name: "home",
            object: Some(&object),
            old_object: None,
            options: &options,
            user: &user,
            dry_run: false,
        };
        change(&mut attributes);
        let server = crate::ApiServer::new(crate::ApiServerConfig::default());
        let shop = json!({"metadata": {"name": "shop", "labels": {"team": "a"}}});
        server.create(crate::Resource::NAMESPACES, "", shop, &crate::WriteOptions::default()).unwrap();
        let namespace = || server.get(crate::Resource::NAMESPACES, "", attributes.namespace).ok();
        let criteria = Criteria::of_match_resources(criteria);
        let found = criteria.matches(&attributes, &[V1, V2], namespace).map_err(|error| error.code())?;
        Ok(found.map(|resource| if resource == V2 { "v2" } else { "v1" }))
    }

    fn rule(version: &str, resources: &str) -> Value {
        json!({
            "operations": ["CREATE"], "apiGroups": ["example.com"], "apiVersions": [version], "resources": [resources],
        })
    }

    #[test]
    fn rules() {
        struct Case {
            criteria: Value,
            expected: Option<&'static str>,
        }
        let cases = [
            Case { criteria: json!({}), expected: Some("v1") },
            Case { criteria: json!({"resourceRules": [rule("v1", "websites")]}), expected: Some("v1") },
            Case { criteria: json!({"resourceRules": [rule("*", "*")]}), expected: Some("v1") },
            Case { criteria: json!({"resourceRules": [rule("*", "websites/status")]}), expected: None },
            Case { criteria: json!({"resourceRules": [rule("*", "*/*")]}), expected: Some("v1") },
            Case { criteria: json!({"resourceRules": [rule("v2", "websites")]}), expected: Some("v2") },
            Case {
                criteria: json!({"resourceRules": [rule("v2", "websites")], "matchPolicy": "Exact"}),
                expected: None,
            },
            Case { criteria: json!({"excludeResourceRules": [rule("v1", "websites")]}), expected: None },
        ];
        for Case { criteria, expected } in cases {
            assert_eq!(matched(&criteria, |_| {}), Ok(expected), "{criteria}");
        }
    }

    #[test]
    fn names_and_scopes() {
        let with = |field: &str, value: Value| {
            let mut rule = rule("v1", "websites");
            crate::json::set(&mut rule, &[field], value);
            json!({"resourceRules": [rule]})
        };
        assert_eq!(matched(&with("resourceNames", json!(["home"])), |_| {}), Ok(Some("v1")));
        assert_eq!(matched(&with("resourceNames", json!(["away"])), |_| {}), Ok(None));
        assert_eq!(matched(&with("scope", json!("Cluster")), |_| {}), Ok(None));
        assert_eq!(matched(&with("scope", json!("Namespaced")), |_| {}), Ok(Some("v1")));
        let cluster = |attributes: &mut Attributes<'_>| attributes.namespace = "";
        assert_eq!(matched(&with("scope", json!("Cluster")), cluster), Ok(Some("v1")));
        assert_eq!(matched(&with("operations", json!(["UPDATE"])), |_| {}), Ok(None));
        assert_eq!(matched(&with("operations", json!(["*"])), |_| {}), Ok(Some("v1")));
    }

    #[test]
    fn selectors() {
        let namespaces = |team: &str| json!({"namespaceSelector": {"matchLabels": {"team": team}}});
        assert_eq!(matched(&namespaces("a"), |_| {}), Ok(Some("v1")));
        assert_eq!(matched(&namespaces("b"), |_| {}), Ok(None));
        assert_eq!(matched(&namespaces("b"), |attributes| attributes.namespace = ""), Ok(Some("v1")));
        assert_eq!(matched(&namespaces("a"), |attributes| attributes.namespace = "none"), Err(404));
        let objects = |tier: &str| json!({"objectSelector": {"matchLabels": {"tier": tier}}});
        assert_eq!(matched(&objects("web"), |_| {}), Ok(Some("v1")));
        assert_eq!(matched(&objects("db"), |_| {}), Ok(None));
        let delete = |attributes: &mut Attributes<'_>| attributes.old_object = attributes.object.take();
        assert_eq!(matched(&objects("web"), delete), Ok(Some("v1")));
    }
}
