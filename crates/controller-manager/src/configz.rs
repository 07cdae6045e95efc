//! Configuration object of `/configz`.
//!
//! Contains the sections of all upstream controllers, filled from the flags.
//!
//! Upstream counterpart: `KubeControllerManagerConfiguration` of `kubecontrollermanager.config.k8s.io/v1alpha1`.

use serde_json::Value;

use crate::command::Options;

/// Name of the configuration: its API group.
pub const CONFIGZ_NAME: &str = "kubecontrollermanager.config.k8s.io";

/// Configuration in upstream's format. Texts of the form `--FLAG` are replaced by values of flags.
static TEMPLATE: &str = include_str!("configz/v1.36.json");

/// Configuration in upstream's format.
pub fn configz(options: &Options) -> Value {
    let mut configuration = serde_json::from_str(TEMPLATE).unwrap_or_default();
    fill(&mut configuration, options);
    let range = options.flags.text("service-cluster-ip-range");
    let (first_range, second_range) = range.split_once(',').unwrap_or((range, ""));
    configuration["NodeIPAMController"]["ServiceCIDR"] = first_range.into();
    configuration["NodeIPAMController"]["SecondaryServiceCIDR"] = second_range.into();
    configuration["Generic"]["Controllers"] = options.manager.controllers.elements().into();
    configuration
}

fn fill(value: &mut Value, options: &Options) {
    match value {
        Value::String(text) => {
            if let Some(flag) = text.strip_prefix("--") {
                *value = options.flags.value(flag).to_json();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(item, options)),
        Value::Object(members) => members.values_mut().for_each(|member| fill(member, options)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use serde_json::json;

    use super::*;
    use crate::Command;

    fn shown(line: &str) -> Value {
        // Upstream's default.
        let lease = ["--leader-elect-resource-name=kube-controller-manager"];
        let words = lease.into_iter().chain(line.split_whitespace()).map(OsString::from);
        let Ok(Command::Run(options)) = Command::parse(words) else { panic!("{line}") };
        configz(&options)
    }

    #[test]
    fn defaults_equal_upstream() {
        let upstream: Value = serde_json::from_str(include_str!("configz/upstream-v1.36.json")).unwrap();
        assert_eq!(shown(""), upstream);
    }

    #[test]
    fn contains_values_of_flags() {
        let shown = shown(
            "--controllers=-job,deployment --leader-elect-lease-duration=90s --kube-api-qps=1.5 --kubeconfig=/k \
             --service-cluster-ip-range=10.0.0.0/8,fd00::/64 --concurrent-rc-syncs=9",
        );
        assert_eq!(shown["Generic"]["Controllers"], json!(["-job-controller", "deployment-controller"]));
        assert_eq!(shown["Generic"]["LeaderElection"]["leaseDuration"], "1m30s");
        assert_eq!(shown["Generic"]["ClientConnection"]["qps"], 1.5);
        assert_eq!(shown["Generic"]["ClientConnection"]["kubeconfig"], "/k");
        assert_eq!(shown["NodeIPAMController"]["SecondaryServiceCIDR"], "fd00::/64");
        assert_eq!(shown["ReplicationController"]["ConcurrentRCSyncs"], 9);
    }
}
