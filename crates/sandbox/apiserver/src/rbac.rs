//! Role-based access control: the rules that bindings grant to a user, and requests that the rules allow.
//!
//! Upstream counterpart: `pkg/registry/rbac/validation` and `plugin/pkg/auth/authorizer/rbac`.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    LabelSelector, Object, User,
    json::{list_at, str_at},
    service_account::make_username,
};

mod bootstrap;

pub(crate) use bootstrap::create_default_roles;

/// Group of users that are allowed everything.
pub(crate) const MASTERS: &str = "system:masters";

/// Attributes of a request, by which rules allow it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) verb: String,
    /// Path of a request that is not for a resource.
    pub(crate) path: Option<String>,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Rule of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    pub(crate) verbs: Vec<String>,
    pub(crate) api_groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    pub(crate) non_resource_urls: Vec<String>,
}

/// Result of an authorization.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    /// Binding that allows the request, or roles that do not exist.
    pub(crate) reason: String,
}

/// Roles and bindings that apply in a namespace, or with an empty one in the whole cluster.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    pub(crate) namespace: String,
    pub(crate) cluster_roles: Vec<Arc<Object>>,
    pub(crate) cluster_role_bindings: Vec<Arc<Object>>,
    pub(crate) roles: Vec<Arc<Object>>,
    pub(crate) role_bindings: Vec<Arc<Object>>,
}

fn contains(list: &[String], wanted: &str) -> bool {
    list.iter().any(|found| found == "*" || found == wanted)
}

impl Attributes {
    /// Message of the 403 response.
    pub(crate) fn forbidden(&self, user: &str) -> String {
        let Self { verb, path, group, resource, subresource, namespace, .. } = self;
        let text = match path {
            Some(path) => format!("User {user:?} cannot {verb} path {path:?}"),
            None => {
                let slash = if subresource.is_empty() { "" } else { "/" };
                let scope = match namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                let resource = format!("{resource}{slash}{subresource}");
                format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {scope}")
            }
        };
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
    }
}

impl Rule {
    pub(crate) fn allows(&self, request: &Attributes) -> bool {
        contains(&self.verbs, &request.verb)
            && match &request.path {
                Some(path) => self.non_resource_urls.iter().any(|url| is_below(path, url)),
                None => {
                    contains(&self.api_groups, &request.group)
                        && self.has_resource(&request.resource, &request.subresource)
                        && (self.resource_names.is_empty() || self.resource_names.contains(&request.name))
                }
            }
    }

    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|found| match (found.split_once('/'), subresource) {
            _ if found == "*" => true,
            (None, "") => found == resource,
            (Some((of, part)), part_of) => {
                !part_of.is_empty() && (of == "*" || of == resource) && part == part_of
            }
            (None, _) => false,
        })
    }

    /// Rules of one verb for one resource, name or URL.
    fn parts(&self) -> Vec<Self> {
        let one = |text: &str| vec![text.to_owned()];
        let mut parts = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let part = Self {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        ..Self::default()
                    };
                    if self.resource_names.is_empty() {
                        parts.push(part.clone());
                    }
                    let named = |name: &String| Self { resource_names: one(name), ..part.clone() };
                    parts.extend(self.resource_names.iter().map(named));
                }
            }
        }
        for url in &self.non_resource_urls {
            let part =
                |verb: &String| Self { verbs: one(verb), non_resource_urls: one(url), ..Self::default() };
            parts.extend(self.verbs.iter().map(part));
        }
        parts
    }

    /// `true` if this rule grants everything that `part` grants.
    fn covers(&self, part: &Self) -> bool {
        let all = |own: &[String], others: &[String]| others.iter().all(|other| contains(own, other));
        let has_resource = |wanted: &String| {
            let (resource, subresource) = wanted.split_once('/').unwrap_or((wanted, ""));
            self.has_resource(resource, subresource)
        };
        let has_name = self.resource_names.is_empty()
            || (!part.resource_names.is_empty()
                && part.resource_names.iter().all(|name| self.resource_names.contains(name)));
        let has_url = |wanted: &String| self.non_resource_urls.iter().any(|url| is_below(wanted, url));
        all(&self.verbs, &part.verbs)
            && all(&self.api_groups, &part.api_groups)
            && part.resources.iter().all(has_resource)
            && has_name
            && part.non_resource_urls.iter().all(has_url)
    }

    /// Text of the rule in an error.
    fn text(&self) -> String {
        let fields = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let fields = fields.into_iter().filter(|(_, list)| !list.is_empty());
        let fields: Vec<String> = fields.map(|(name, list)| format!("{name}:{}", quoted(list))).collect();
        format!("{{{}}}", fields.join(", "))
    }
}

/// `true` if a rule's URL, which may end with `*`, matches a path.
fn is_below(path: &str, url: &str) -> bool {
    path == url || (url.ends_with('*') && path.starts_with(url.trim_end_matches('*')))
}

fn quoted(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

/// Returns the message that refuses `granted`, unless the rules of the user cover them.
///
/// Upstream counterpart: `ConfirmNoEscalation`.
pub(crate) fn escalation(user: &User, held: &[Rule], granted: &[Rule]) -> Option<String> {
    let parts = granted.iter().flat_map(Rule::parts);
    let missing: Vec<Rule> = parts.filter(|part| !held.iter().any(|rule| rule.covers(part))).collect();
    if missing.is_empty() {
        return None;
    }
    let mut compact: Vec<Rule> = Vec::new();
    for part in missing {
        let is_same = |known: &&mut Rule| {
            let Rule { verbs: _, api_groups, resources, resource_names, non_resource_urls } = &**known;
            non_resource_urls.is_empty()
                && (api_groups, resources, resource_names)
                    == (&part.api_groups, &part.resources, &part.resource_names)
        };
        match compact.iter_mut().find(is_same).filter(|_| part.non_resource_urls.is_empty()) {
            Some(known) => known.verbs.extend(part.verbs),
            None => compact.push(part),
        }
    }
    let mut texts: Vec<String> = compact.iter().map(Rule::text).collect();
    texts.sort();
    texts.dedup();
    Some(format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(&user.groups),
        texts.join("\n")
    ))
}

/// Returns the rules of a role.
pub(crate) fn rules_of(role: &Value) -> Vec<Rule> {
    let rule = |rule: &Value| Rule::deserialize(rule).unwrap_or_default();
    list_at(role, &["rules"]).iter().map(rule).collect()
}

impl Policy {
    /// Returns the rules of the role that a binding refers to.
    ///
    /// DEVIATION: the rules of aggregated roles are those of the selected roles at any time. Upstream's controller manager
    /// writes them into the aggregated role.
    ///
    /// # Errors
    ///
    /// The message for a role that does not exist.
    pub(crate) fn role(&self, kind: &str, name: &str) -> Result<Vec<Rule>, String> {
        let (roles, singular) =
            if kind == "Role" { (&self.roles, "role") } else { (&self.cluster_roles, "clusterrole") };
        let missing = || format!("{singular}.rbac.authorization.k8s.io {name:?} not found");
        let role = roles.iter().find(|role| role.name() == name).ok_or_else(missing)?.value();
        let mut rules = rules_of(role);
        let mut pending = vec![role];
        let mut seen = vec![name];
        while let Some(role) = pending.pop() {
            for selector in list_at(role, &["aggregationRule", "clusterRoleSelectors"]) {
                let selector = LabelSelector::from_object(selector);
                for other in &self.cluster_roles {
                    if !seen.contains(&other.name()) && selector.matches(other.value()) {
                        seen.push(other.name());
                        rules.extend(rules_of(other.value()));
                        pending.push(other.value());
                    }
                }
            }
        }
        Ok(rules)
    }

    /// Calls `visit` with the rules of each binding of the user and a description of the binding, until it returns `false`.
    fn visit(
        &self,
        user: &User,
        mut visit: impl FnMut(&dyn Fn() -> String, Result<Vec<Rule>, String>) -> bool,
    ) {
        let cluster = self.cluster_role_bindings.iter().map(|binding| (binding, ""));
        let own = self.role_bindings.iter().map(|binding| (binding, self.namespace.as_str()));
        for (binding, namespace) in cluster.chain(own) {
            let binding = binding.value();
            let mut subjects = list_at(binding, &["subjects"]).iter();
            let Some(subject) = subjects.find(|subject| applies(subject, user, namespace)) else { continue };
            let text = |path: &[&str]| str_at(binding, path).to_owned();
            let (kind, role) = (text(&["roleRef", "kind"]), text(&["roleRef", "name"]));
            let describe = || {
                let name = text(&["metadata", "name"]);
                let (binding, name) = match namespace {
                    "" => ("ClusterRoleBinding", name),
                    namespace => ("RoleBinding", format!("{name}/{namespace}")),
                };
                let subject = describe_subject(subject, namespace);
                format!("RBAC: allowed by {binding} {name:?} of {kind} {role:?} to {subject}")
            };
            if !visit(&describe, self.role(&kind, &role)) {
                return;
            }
        }
    }

    /// Returns the rules of a user.
    pub(crate) fn rules(&self, user: &User) -> Vec<Rule> {
        let mut rules = Vec::new();
        self.visit(user, |_, found| {
            rules.extend(found.unwrap_or_default());
            true
        });
        rules
    }

    /// Authorizes a request of a user.
    pub(crate) fn authorize(&self, user: &User, request: &Attributes) -> Decision {
        if user.is_in(MASTERS) {
            return Decision { allowed: true, reason: String::new() };
        }
        let mut missing: Vec<String> = Vec::new();
        let mut decision = Decision::default();
        self.visit(user, |describe, rules| match rules {
            Ok(rules) if rules.iter().any(|rule| rule.allows(request)) => {
                decision = Decision { allowed: true, reason: describe() };
                false
            }
            Ok(_) => true,
            Err(message) => {
                if !missing.contains(&message) {
                    missing.push(message);
                }
                true
            }
        });
        if !decision.allowed {
            decision.reason = match missing.as_slice() {
                [] => String::new(),
                [only] => format!("RBAC: {only}"),
                several => format!("RBAC: [{}]", several.join(", ")),
            };
        }
        decision
    }
}

/// `true` if a subject of a binding is the user.
fn applies(subject: &Value, user: &User, binding_namespace: &str) -> bool {
    let name = str_at(subject, &["name"]);
    match str_at(subject, &["kind"]) {
        "User" => user.name == name,
        "Group" => user.is_in(name),
        "ServiceAccount" => {
            let namespace = account_namespace(subject, binding_namespace);
            !namespace.is_empty() && user.name == make_username(namespace, name)
        }
        _ => false,
    }
}

fn account_namespace<'a>(subject: &'a Value, binding_namespace: &'a str) -> &'a str {
    Some(str_at(subject, &["namespace"])).filter(|own| !own.is_empty()).unwrap_or(binding_namespace)
}

fn describe_subject(subject: &Value, binding_namespace: &str) -> String {
    let (kind, name) = (str_at(subject, &["kind"]), str_at(subject, &["name"]));
    match kind {
        "ServiceAccount" => {
            format!("{kind} {:?}", format!("{name}/{}", account_namespace(subject, binding_namespace)))
        }
        _ => format!("{kind} {name:?}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Resource, encoded::SharedTexts, object::Version};

    fn rule(value: Value) -> Rule {
        Rule::deserialize(value).unwrap()
    }

    fn cluster_role(name: &str, value: &Value) -> Arc<Object> {
        let resource = Resource::find("rbac.authorization.k8s.io", "clusterroles").unwrap();
        let (written, texts) = (jiff::Timestamp::UNIX_EPOCH, SharedTexts::default());
        Arc::new(Object::new(Arc::new(Version::new(resource, &name.into(), value, None, written, &texts))))
    }

    fn request(verb: &str, resource: &str, subresource: &str, name: &str) -> Attributes {
        let text = str::to_owned;
        Attributes {
            verb: text(verb),
            resource: text(resource),
            subresource: text(subresource),
            name: text(name),
            ..Attributes::default()
        }
    }

    #[test]
    fn rules_for_resources() {
        let check = |resources: &[&str], names: &[&str], of: (&str, &str, &str)| {
            let (resource, part, name) = of;
            let rule = rule(
                json!({"verbs": ["get"], "apiGroups": [""], "resources": resources, "resourceNames": names}),
            );
            rule.allows(&request("get", resource, part, name))
        };
        assert!(check(&["pods"], &[], ("pods", "", "a")));
        assert!(!check(&["pods"], &[], ("pods", "log", "a")));
        assert!(check(&["pods/log"], &[], ("pods", "log", "a")));
        assert!(!check(&["pods/log"], &[], ("pods", "", "a")));
        assert!(check(&["*/log"], &[], ("pods", "log", "a")));
        assert!(check(&["*"], &[], ("pods", "log", "a")));
        assert!(check(&["pods"], &["a"], ("pods", "", "a")));
        assert!(!check(&["pods"], &["a"], ("pods", "", "")));
    }

    #[test]
    fn rules_for_paths() {
        let rule = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/logs/*"]}));
        let allows = |path: &str| {
            rule.allows(&Attributes { verb: "get".into(), path: Some(path.into()), ..Attributes::default() })
        };
        assert!(allows("/healthz") && allows("/logs/a/b"));
        assert!(!allows("/healthz/a") && !allows("/"));
        assert!(!rule.allows(&request("get", "pods", "", "")));
    }

    #[test]
    fn aggregated_roles_have_the_rules_of_selected_roles() {
        let role = |name: &str, label: &str, rules: Value, selected: &[&str]| {
            let selectors: Vec<Value> =
                selected.iter().map(|label| json!({"matchLabels": {*label: "1"}})).collect();
            let role = json!({"metadata": {"name": name, "labels": {label: "1"}}, "rules": rules,
                "aggregationRule": {"clusterRoleSelectors": selectors}});
            cluster_role(name, &role)
        };
        let policy = Policy {
            cluster_roles: vec![
                role("all", "x", json!([]), &["a"]),
                role("a", "a", json!([{"verbs": ["get"]}]), &["b"]),
                role("b", "b", json!([{"verbs": ["list"]}]), &["a"]),
            ],
            ..Policy::default()
        };
        let verbs: Vec<String> =
            policy.role("ClusterRole", "all").unwrap().into_iter().flat_map(|rule| rule.verbs).collect();
        assert_eq!(verbs, ["get", "list"]);
        assert_eq!(policy.role("Role", "c").unwrap_err(), r#"role.rbac.authorization.k8s.io "c" not found"#);
    }

    #[test]
    fn service_accounts_are_in_the_namespace_of_the_binding() {
        let user = User { name: "system:serviceaccount:a:robot".into(), ..User::default() };
        let subject = json!({"kind": "ServiceAccount", "name": "robot"});
        assert!(applies(&subject, &user, "a"));
        assert!(!applies(&subject, &user, "b"));
        assert!(!applies(&subject, &user, ""));
    }

    #[test]
    fn grants_beyond_the_own_rules_are_reported() {
        let user = User { name: "alice".into(), groups: vec!["dev".into()], ..User::default() };
        let held = [rule(json!({"verbs": ["get", "list"], "apiGroups": ["apps"], "resources": ["*"]}))];
        let ask = |granted: Value| escalation(&user, &held, &[rule(granted)]);
        assert_eq!(
            ask(json!({"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments/scale"]})),
            None
        );
        assert_eq!(
            ask(json!({"verbs": ["get", "watch", "delete"], "apiGroups": ["apps"], "resources": ["deployments"]})),
            Some(
                "user \"alice\" (groups=[\"dev\"]) is attempting to grant RBAC permissions not currently held:\n\
                 {APIGroups:[\"apps\"], Resources:[\"deployments\"], Verbs:[\"watch\" \"delete\"]}"
                    .to_owned()
            )
        );
    }
}
