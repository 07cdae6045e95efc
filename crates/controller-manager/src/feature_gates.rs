//! Feature gates: `--feature-gates`.
//!
//! All gates of upstream's manager are accepted. Most have no effect; see [`IMPLEMENTED`] and [`FIXED`].
//!
//! Upstream counterpart: `k8s.io/component-base/featuregate`.

use std::collections::BTreeMap;

use crate::go_syntax::parse_bool;

/// Names, stages and defaults of the gates of upstream v1.36.
static TABLE: &str = include_str!("feature_gates/v1.36.txt");

/// Component whose gates can be set.
const COMPONENT: &str = "kube";

/// Gate that releases the lease on exit.
///
/// DEVIATION: on by default; see [`LeaderElectionSettings::release_on_cancel`](crate::LeaderElectionSettings).
pub(crate) const RELEASE_ON_EXIT: &str = "ControllerManagerReleaseLeaderElectionLockOnExit";

/// Gates of which both values are implemented.
static IMPLEMENTED: &[&str] = &[
    "AllAlpha",
    "AllBeta",
    "ComponentFlagz",
    "ComponentStatusz",
    RELEASE_ON_EXIT,
    "DeploymentReplicaSetTerminatingReplicas",
    "LoggingAlphaOptions",
    "LoggingBetaOptions",
    "PodDeletionCost",
    "StaleControllerConsistencyReplicaSet",
    "WatchListClient",
];

/// Gates of which only one value is implemented, with that value. Setting the other value causes a warning.
static FIXED: &[(&str, bool)] = &[
    ("ClientsPreferCBOR", false),
    ("ContextualLogging", true),
    ("CoordinatedLeaderElection", false),
    ("NativeHistograms", false),
    ("RemoteRequestHeaderUID", true),
];

/// Feature gates that change the controllers or their caches. The defaults are those of v1.36.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerFeatures {
    /// `DeploymentReplicaSetTerminatingReplicas`: the status of Deployments and ReplicaSets contains
    /// `terminatingReplicas`. If `false`, the field is not set, and cleared where it is.
    pub deployment_replica_set_terminating_replicas: bool,
    /// `PodDeletionCost`: pods with a lower deletion cost are deleted first. If `false`, the annotation is ignored.
    pub pod_deletion_cost: bool,
    /// `StaleControllerConsistencyReplicaSet`: a sync of a ReplicaSet waits until the caches contain the writes of the
    /// previous one. If `false`, it waits for its writes of pods only.
    ///
    /// DEVIATION: upstream then waits for none. Here the cache of pods must contain the outcome of a create without an
    /// answer before expectations are compared.
    pub stale_controller_consistency_replica_set: bool,
    /// `WatchListClient`: caches are filled by streaming lists. If `false`, by list requests.
    pub watch_list_client: bool,
}

impl Default for ControllerFeatures {
    fn default() -> Self {
        Self::from(&FeatureGates::default())
    }
}

impl From<&FeatureGates> for ControllerFeatures {
    fn from(gates: &FeatureGates) -> Self {
        Self {
            deployment_replica_set_terminating_replicas: gates
                .is_enabled("DeploymentReplicaSetTerminatingReplicas"),
            pod_deletion_cost: gates.is_enabled("PodDeletionCost"),
            stale_controller_consistency_replica_set: gates
                .is_enabled("StaleControllerConsistencyReplicaSet"),
            watch_list_client: gates.is_enabled("WatchListClient"),
        }
    }
}

/// Maturity of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
    /// Generally available.
    Ga,
    Deprecated,
}

impl Stage {
    /// Value of the `stage` label of `kubernetes_feature_enabled`.
    fn as_str(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Ga => "",
            Self::Deprecated => "DEPRECATED",
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Gate {
    name: &'static str,
    stage: Stage,
    default: bool,
    is_locked: bool,
    /// Gates that must be enabled if this one is, separated by commas.
    needs: &'static str,
}

fn gates() -> impl Iterator<Item = Gate> {
    TABLE.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let name = words.next().filter(|name| *name != "#")?;
        let stage = match words.next()? {
            "ALPHA" => Stage::Alpha,
            "BETA" => Stage::Beta,
            "GA" => Stage::Ga,
            _ => Stage::Deprecated,
        };
        let default = words.next()? == "true";
        let mut more = words.peekable();
        let is_locked = more.next_if_eq(&"locked").is_some();
        let needs = more.nth(1).unwrap_or_default();
        Some(Gate { name, stage, default, is_locked, needs })
    })
}

/// Feature gates and the values that were set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeatureGates {
    set: BTreeMap<&'static str, bool>,
}

impl FeatureGates {
    /// Gates with `settings`, pairs of a component and `name=value`.
    ///
    /// # Errors
    ///
    /// Upstream's messages, one for each invalid setting.
    pub(crate) fn new(settings: &[(String, String)]) -> Result<Self, Vec<String>> {
        let of = |name: &str| settings.iter().any(|(component, _)| component == name);
        if of("") && of(COMPONENT) {
            let mixed = "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use";
            return Err(vec![mixed.to_owned()]);
        }
        let mut this = Self::default();
        let mut problems = Vec::new();
        for (component, setting) in settings {
            if !component.is_empty() && component != COMPONENT {
                return Err(vec![format!("component not registered: {component}")]);
            }
            if !setting.is_empty()
                && let Err(problem) = this.set(setting)
            {
                problems.push(problem);
            }
        }
        if problems.is_empty() {
            problems = this.unmet_dependencies();
        }
        if problems.is_empty() { Ok(this) } else { Err(problems) }
    }

    /// One message for each enabled gate that depends on a disabled one. Upstream's order is random.
    fn unmet_dependencies(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for gate in gates().filter(|gate| !gate.needs.is_empty() && self.value(gate)) {
            let disabled: Vec<_> = gate.needs.split(',').filter(|name| !self.is_enabled(name)).collect();
            if !disabled.is_empty() {
                problems.push(format!(
                    "{} is enabled, but depends on features that are disabled: [{}]",
                    gate.name,
                    disabled.join(" ")
                ));
            }
        }
        problems
    }

    /// Value of a gate: as set by its name, by `AllAlpha` or `AllBeta`, or the default.
    fn value(&self, gate: &Gate) -> bool {
        self.set_value(gate).unwrap_or(gate.default)
    }

    fn set(&mut self, setting: &str) -> Result<(), String> {
        let (name, value) =
            setting.split_once('=').map_or((setting, None), |(name, value)| (name, Some(value)));
        let (name, value) = (name.trim(), value.map(str::trim));
        let value = value.ok_or_else(|| format!("missing bool value for {name}"))?;
        let value =
            parse_bool(value).map_err(|error| format!("invalid value of {name}={value}, err: {error}"))?;
        let gate = gates().find(|gate| gate.name == name);
        let gate = gate.ok_or_else(|| format!("unrecognized feature gate: {name}"))?;
        if gate.is_locked && value != gate.default {
            let default = gate.default;
            return Err(format!("cannot set feature gate {name} to {value}, feature is locked to {default}"));
        }
        self.set.insert(gate.name, value);
        Ok(())
    }

    /// Returns `true` if the gate called `name` exists and is enabled.
    pub fn is_enabled(&self, name: &str) -> bool {
        gates().find(|gate| gate.name == name).is_some_and(|gate| self.value(&gate))
    }

    /// Value that was set for `name` itself, not by `AllAlpha` or `AllBeta`.
    pub(crate) fn setting(&self, name: &str) -> Option<bool> {
        self.set.get(name).copied()
    }

    /// Name, stage and value of each gate, for `kubernetes_feature_enabled`.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        gates().map(|gate| (gate.name, gate.stage.as_str(), self.value(&gate)))
    }

    /// Value that was set for a gate by its name, or else by `AllAlpha` or `AllBeta`.
    fn set_value(&self, gate: &Gate) -> Option<bool> {
        let by_stage = match gate.stage {
            Stage::Alpha => self.set.get("AllAlpha"),
            Stage::Beta => self.set.get("AllBeta"),
            Stage::Ga | Stage::Deprecated => None,
        };
        self.set.get(gate.name).or(by_stage).copied()
    }

    /// Warnings about settings without effect, and about gates that will be removed.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for gate in gates() {
            if let Some((_, fixed)) = FIXED.iter().find(|(name, _)| *name == gate.name)
                && self.set_value(&gate).is_some_and(|value| value != *fixed)
            {
                let name = gate.name;
                warnings.push(format!(
                    "feature gate {name}={} has no effect, {name}={fixed} is always used",
                    !fixed
                ));
            }
            let stage = match gate.stage {
                Stage::Ga => "GA",
                Stage::Deprecated => "deprecated",
                Stage::Alpha | Stage::Beta => continue,
            };
            if self.set.contains_key(gate.name) {
                warnings.push(format!(
                    "feature gate {} is {stage}, and will be removed in a future release",
                    gate.name
                ));
            }
        }
        warnings
    }
}

/// Help for `--feature-gates`: the gates that have an effect.
pub(crate) fn help() -> String {
    let mut text = "\nOptions with an effect are:".to_owned();
    for gate in gates().filter(|gate| IMPLEMENTED.contains(&gate.name)) {
        let default = gate.default || gate.name == RELEASE_ON_EXIT;
        text +=
            &format!("\n{COMPONENT}:{}=true|false ({} - default={default})", gate.name, gate.stage.as_str());
    }
    text += "\nAll other feature gates of upstream's manager are accepted and have no effect.";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<FeatureGates, String> {
        let settings = text.split(',').map(|pair| {
            let (component, setting) = pair.split_once(':').unwrap_or(("", pair));
            (component.to_owned(), setting.to_owned())
        });
        FeatureGates::new(&settings.collect::<Vec<_>>()).map_err(|problems| problems.join("; "))
    }

    #[test]
    fn values_are_set_by_name_or_stage_or_default() {
        let gates = parse("").unwrap();
        assert!(gates.is_enabled("LoggingBetaOptions") && !gates.is_enabled("LoggingAlphaOptions"));
        let gates = parse("kube:AllAlpha=true,kube:LoggingBetaOptions=0").unwrap();
        assert!(!gates.is_enabled("LoggingBetaOptions") && gates.is_enabled("LoggingAlphaOptions"));
        let gates = parse("AllAlpha=true,LoggingAlphaOptions=false").unwrap();
        assert!(!gates.is_enabled("LoggingAlphaOptions"), "the gate's name takes precedence");
        assert!(!gates.is_enabled("NoSuchGate"));
    }

    mod controller_features {
        use super::*;

        fn features(text: &str) -> ControllerFeatures {
            ControllerFeatures::from(&parse(text).unwrap())
        }

        #[test]
        fn are_on_by_default() {
            let ControllerFeatures {
                deployment_replica_set_terminating_replicas,
                pod_deletion_cost,
                stale_controller_consistency_replica_set,
                watch_list_client,
            } = ControllerFeatures::default();
            assert!(deployment_replica_set_terminating_replicas && pod_deletion_cost);
            assert!(stale_controller_consistency_replica_set && watch_list_client);
            assert_eq!(features(""), ControllerFeatures::default());
        }

        #[test]
        fn follow_each_gate_without_a_warning() {
            let on = ControllerFeatures::default();
            let cases = [
                (
                    "DeploymentReplicaSetTerminatingReplicas",
                    ControllerFeatures { deployment_replica_set_terminating_replicas: false, ..on },
                ),
                ("PodDeletionCost", ControllerFeatures { pod_deletion_cost: false, ..on }),
                (
                    "StaleControllerConsistencyReplicaSet",
                    ControllerFeatures { stale_controller_consistency_replica_set: false, ..on },
                ),
                ("WatchListClient", ControllerFeatures { watch_list_client: false, ..on }),
            ];
            for (gate, off) in cases {
                let gates = [format!("{gate}=false"), format!("{gate}=true")];
                assert_eq!(gates.each_ref().map(|text| features(text)), [off, on], "{gate}");
                for text in gates {
                    assert!(parse(&text).unwrap().warnings().is_empty(), "{text}");
                }
            }
        }

        #[test]
        fn follow_all_beta() {
            let off = features("AllBeta=false");
            assert!(!off.pod_deletion_cost && !off.deployment_replica_set_terminating_replicas);
            assert!(!off.stale_controller_consistency_replica_set && !off.watch_list_client);
            let all_but_one = features("AllBeta=false,PodDeletionCost=true");
            assert_eq!(all_but_one, ControllerFeatures { pod_deletion_cost: true, ..off });
        }
    }

    #[test]
    fn rejects_invalid_settings_with_upstreams_messages() {
        let cases: BTreeMap<String, String> =
            serde_saphyr::from_str(include_str!("feature_gates/rejected.yaml")).unwrap();
        for (text, error) in cases {
            assert_eq!(parse(&text), Err(error), "{text}");
        }
    }

    #[test]
    fn warns_of_settings_without_effect() {
        let warnings = |text| parse(text).unwrap().warnings();
        assert!(warnings("").is_empty());
        assert!(
            warnings("SELinuxMount=true,PodDeletionCost=true,RotateKubeletServerCertificate=true").is_empty()
        );
        assert_eq!(
            warnings("ContextualLogging=false"),
            ["feature gate ContextualLogging=false has no effect, ContextualLogging=true is always used"]
        );
        assert_eq!(
            warnings("LogarithmicScaleDown=true"),
            ["feature gate LogarithmicScaleDown is GA, and will be removed in a future release"]
        );
        assert!(warnings("AllBeta=false").len() > 1);
    }

    #[test]
    fn table_is_sorted_and_complete() {
        let names: Vec<_> = gates().map(|gate| gate.name).collect();
        assert!(names.len() > 200 && names.is_sorted());
        assert!(FIXED.iter().all(|(name, _)| names.contains(name)));
        let needed: Vec<_> = gates().filter(|gate| !gate.needs.is_empty()).collect();
        assert!(
            needed.len() > 40
                && needed.iter().flat_map(|gate| gate.needs.split(',')).all(|name| names.contains(&name))
        );
        assert!(IMPLEMENTED.iter().all(|name| names.contains(name)));
    }
}
