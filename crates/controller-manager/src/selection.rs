//! ControllerSelection of controllers: `--controllers`.

use thiserror::Error;

use crate::{
    aggregate::aggregate,
    controller_names::{Availability, ControllerName, KNOWN},
};

/// Value of `--controllers`, with canonical names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerSelection(Vec<String>);

/// Unknown controllers in `--controllers`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", aggregate(.0))]
pub struct UnknownControllers(pub(crate) Vec<String>);

impl ControllerSelection {
    /// Parses `elements`: `*`, names and aliases, with a leading `-` to exclude. All of upstream's controllers are
    /// accepted; see [`unavailable`](Self::unavailable).
    ///
    /// # Errors
    ///
    /// Upstream's message for each unknown controller (US-1.4).
    pub fn new(elements: &[String]) -> Result<Self, UnknownControllers> {
        let mut canonical = Vec::with_capacity(elements.len());
        let mut unknown = Vec::new();
        for element in elements {
            let (minus, name) = match element.strip_prefix('-') {
                Some(name) => ("-", name),
                None => ("", element.as_str()),
            };
            if element == "*" {
                canonical.push(element.clone());
            } else if let Some(name) = canonical_name(name) {
                canonical.push(format!("{minus}{name}"));
            } else {
                unknown.push(format!("{name:?} is not in the list of known controllers"));
            }
        }
        if unknown.is_empty() { Ok(Self(canonical)) } else { Err(UnknownControllers(unknown)) }
    }

    /// Selects all controllers of this binary, including those that are off by default.
    pub fn all() -> Self {
        Self(available().map(|known| known.name.to_owned()).collect())
    }

    /// Returns `true` if a controller of this binary is enabled: by the first element with its name, or else by `*`.
    pub fn includes(&self, name: &str) -> bool {
        let is_on_by_default =
            || available().any(|known| known.name == name && known.availability == Availability::OnByDefault);
        self.setting(name)
            .unwrap_or_else(|| is_on_by_default() && self.0.iter().any(|element| element == "*"))
    }

    /// Controllers that are enabled by name and are not part of this binary.
    pub fn unavailable(&self) -> Vec<&'static str> {
        let unavailable = KNOWN.iter().filter(|known| !known.is_available());
        unavailable.map(|known| known.name).filter(|name| self.setting(name) == Some(true)).collect()
    }

    /// Controllers of upstream's manager that are neither enabled here nor disabled by name.
    pub(crate) fn unserved(&self) -> Vec<&'static str> {
        let is_unserved = |known: &&ControllerName| {
            let is_run = known.is_available() && self.includes(known.name);
            !is_run && self.setting(known.name) != Some(false)
        };
        KNOWN.iter().filter(is_unserved).map(|known| known.name).collect()
    }

    /// Elements with canonical names.
    pub(crate) fn elements(&self) -> &[String] {
        &self.0
    }

    fn setting(&self, name: &str) -> Option<bool> {
        self.0.iter().find_map(|element| match element.strip_prefix('-') {
            Some(not) => (not == name).then_some(false),
            None => (element == name).then_some(true),
        })
    }
}

impl Default for ControllerSelection {
    /// Selects all controllers that are on by default.
    fn default() -> Self {
        Self(vec!["*".to_owned()])
    }
}

/// Controllers of this binary.
fn available() -> impl Iterator<Item = &'static ControllerName> {
    KNOWN.iter().filter(|known| known.is_available())
}

fn canonical_name(name: &str) -> Option<&'static str> {
    let known = KNOWN.iter().find(|known| known.name == name || known.alias == Some(name));
    known.map(|known| known.name)
}

/// Help for `--controllers`.
pub(crate) fn help() -> String {
    let joined = |names: Vec<&str>| names.join(", ");
    let off_by_default = available().filter(|known| known.availability == Availability::OffByDefault);
    format!(
        "\nAll controllers: {}\nDisabled-by-default controllers: {}\nUpstream's other {} controllers are accepted, but are \
         not part of this binary.",
        joined(available().map(|known| known.name).collect()),
        joined(off_by_default.map(|known| known.name).collect()),
        KNOWN.iter().filter(|known| !known.is_available()).count(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(elements: &[&str]) -> Result<ControllerSelection, String> {
        let elements: Vec<_> = elements.iter().map(|element| (*element).to_owned()).collect();
        ControllerSelection::new(&elements).map_err(|error| error.to_string())
    }

    fn selected(elements: &[&str]) -> Vec<&'static str> {
        let selection = selection(elements).unwrap();
        available().map(|known| known.name).filter(|name| selection.includes(name)).collect()
    }

    #[test]
    fn follows_upstreams_rules() {
        let (deployment, replica_set) = ("deployment-controller", "replicaset-controller");
        let replication_controller = "replicationcontroller-controller";
        assert_eq!(selected(&["*"]), [deployment, replica_set]);
        assert_eq!(selected(&["*", "-deployment-controller"]), [replica_set]);
        assert_eq!(selected(&["-replicaset", "*"]), [deployment], "alias before the star");
        assert_eq!(
            selected(&["*", "replicationcontroller"]),
            [deployment, replica_set, replication_controller],
            "off by default"
        );
        assert!(available().all(|known| ControllerSelection::all().includes(known.name)));
        assert_eq!(selected(&["deployment"]), [deployment]);
        assert_eq!(selected(&["deployment", "-deployment"]), [deployment], "the first element decides");
        assert_eq!(selected(&["-deployment"]), Vec::<&str>::new());
        assert_eq!(selected(&[]), Vec::<&str>::new());
    }

    #[test]
    fn rejects_unknown_controllers() {
        let error = |elements: &[&str]| selection(elements).unwrap_err();
        assert_eq!(error(&["*", "-foo"]), "\"foo\" is not in the list of known controllers");
        assert_eq!(
            error(&["foo", "Deployment"]),
            "[\"foo\" is not in the list of known controllers, \"Deployment\" is not in the list of known controllers]"
        );
        assert_eq!(error(&["-*"]), "\"*\" is not in the list of known controllers");
    }

    #[test]
    fn lists_unavailable_controllers() {
        let unavailable = |elements: &[&str]| selection(elements).unwrap().unavailable();
        assert_eq!(
            unavailable(&["*", "bootstrap-signer-controller", "tokencleaner", "-job"]),
            ["bootstrap-signer-controller", "token-cleaner-controller"]
        );
        assert!(unavailable(&["*", "-attachdetach", "-route"]).is_empty());
        assert_eq!(
            selection(&["*", "-csrcleaner"]).unwrap().elements(),
            ["*", "-certificatesigningrequest-cleaner-controller"]
        );
    }

    #[test]
    fn lists_unserved_controllers() {
        let unserved = |elements: &[&str]| selection(elements).unwrap().unserved();
        let all = unserved(&["*"]);
        assert_eq!(all.len(), KNOWN.len() - 2);
        assert!(all.contains(&"job-controller") && all.contains(&"replicationcontroller-controller"));
        let fewer = unserved(&["*", "replicationcontroller", "-job", "tokencleaner"]);
        let gone: Vec<_> = all.iter().filter(|name| !fewer.contains(name)).collect();
        assert_eq!(gone, [&"job-controller", &"replicationcontroller-controller"], "disabled, and run");
        assert!(unserved(&["-deployment", "replicaset"]).iter().all(|name| *name != "deployment-controller"));
    }

    #[test]
    fn known_controllers_are_sorted() {
        assert!(KNOWN.is_sorted_by_key(|known| known.name));
    }
}
