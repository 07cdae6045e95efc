//! Metrics about the component and about its metrics.

use std::{collections::BTreeMap, fmt};

use crate::{
    BuildInfo, Counter, Family, Gauge, MetricsOptions, Registry, Spec,
    Stability::{Alpha, Beta, Unmarked},
};

/// Versions, feature gates, and metrics about metrics.
///
/// Upstream counterpart: `metrics/prometheus/version`, `metrics/prometheus/feature` and `metrics/metric.go` in
/// `k8s.io/component-base`.
///
/// ```
/// use kcm_metrics::{BuildInfo, ComponentMetrics, MetricsOptions, Registry};
///
/// let options = MetricsOptions::default();
/// let registry = Registry::new(&options);
/// let component = ComponentMetrics::new(&registry, &options, &BuildInfo::default());
/// component.set_feature("WatchList", "BETA", true);
/// assert!(registry.text().contains("kubernetes_feature_enabled{name=\"WatchList\",stage=\"BETA\"} 1"));
/// ```
pub struct ComponentMetrics {
    features: Family<Gauge, 2>,
    registered: Family<Counter, 2>,
}

impl ComponentMetrics {
    /// Registers the metrics and sets those that do not change.
    pub fn new(registry: &Registry, options: &MetricsOptions, build: &BuildInfo) -> Self {
        let BuildInfo { minor, version, commit, date } = build;
        let info = registry.metric::<Gauge, 9>(Spec::upstream(
            "kubernetes_build_info",
            Beta,
            [
                "build_date",
                "compiler",
                "git_commit",
                "git_tree_state",
                "git_version",
                "go_version",
                "major",
                "minor",
                "platform",
            ],
            "Constant 1 with the emulated version of Kubernetes and build information as labels. go_version is empty.",
        ));
        let platform = format!("{}/{}", std::env::consts::OS, go_architecture());
        let minor_text = minor.to_string();
        let version = format!("v1.{minor}.0+kcm.{}", version.trim_start_matches('v'));
        info.with([date, "rustc", commit, "", &version, "", "1", &minor_text, &platform]).set(1.0);

        let versions = registry.metric::<Gauge, 4>(Spec::upstream(
            "version_info",
            Alpha,
            ["binary", "component", "emulation", "min_compat"],
            "Constant 1 with the binary, emulation and minimum compatibility version of the component as labels.",
        ));
        let (this, previous) = (format!("1.{minor}"), format!("1.{}", minor.saturating_sub(1)));
        versions.with([&this, "kube", &this, &previous]).set(1.0);

        let disabled = registry.metric::<Counter, 0>(Spec::upstream(
            "disabled_metrics_total",
            Beta,
            [],
            "Number of metrics disabled by --disabled-metrics.",
        ));
        let mut names: Vec<_> = options.disabled.iter().collect();
        names.sort_unstable();
        names.dedup();
        disabled.only().inc_by(names.len() as u64);
        let _hidden = registry.metric::<Counter, 0>(Spec::upstream(
            "hidden_metrics_total",
            Beta,
            [],
            "Number of hidden deprecated metrics. Always 0 in this version.",
        ));
        let unexpected = registry
            .metric::<Counter, 0>(Spec::upstream(
                "cardinality_enforcement_unexpected_categorizations_total",
                Alpha,
                [],
                "Number of label values that were replaced because --allow-metric-labels does not allow them.",
            ))
            .only();
        let replaced = registry.replaced_label_values();
        registry.on_scrape(Box::new(move || {
            unexpected.set_total(replaced.get());
            true
        }));
        Self {
            features: registry.metric(Spec::upstream(
                "kubernetes_feature_enabled",
                Beta,
                ["name", "stage"],
                "1 if the feature gate is enabled, 0 if it is disabled, by name and stage.",
            )),
            registered: registry.metric(Spec::upstream(
                "registered_metrics_total",
                Beta,
                ["deprecated_version", "stability_level"],
                "Number of registered metrics by stability level and deprecation version.",
            )),
        }
    }

    /// Sets the value of a feature gate. `stage` is `ALPHA`, `BETA`, `DEPRECATED`, or empty if the feature is stable.
    pub fn set_feature(&self, name: &str, stage: &str, enabled: bool) {
        self.features.with([name, stage]).set(if enabled { 1.0 } else { 0.0 });
    }

    /// Sets `registered_metrics_total` to the number of metrics that are registered now.
    pub fn count_registered(&self, registry: &Registry) {
        let mut totals = BTreeMap::<_, u32>::new();
        for definition in registry.definitions() {
            if definition.stability != Unmarked {
                *totals.entry(definition.stability.as_str()).or_default() += 1;
            }
        }
        for (stability, total) in totals {
            self.registered.with(["", stability]).set_total(f64::from(total));
        }
    }
}

/// Go's name of the architecture.
fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

impl fmt::Debug for ComponentMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComponentMetrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_and_version_are_labels() {
        let build = BuildInfo {
            commit: "abc".to_owned(),
            date: "2026-01-02T03:04:05Z".to_owned(),
            version: "v0.7.1".to_owned(),
            ..BuildInfo::default()
        };
        let options = MetricsOptions::default();
        let registry = Registry::new(&options);
        ComponentMetrics::new(&registry, &options, &build);
        let text = registry.text();
        let build_info = "kubernetes_build_info{build_date=\"2026-01-02T03:04:05Z\",compiler=\"rustc\",git_commit=\"abc\",\
             git_tree_state=\"\",git_version=\"v1.36.0+kcm.0.7.1\",go_version=\"\",major=\"1\",minor=\"36\",platform=";
        assert!(text.contains(build_info), "{text}");
        let version_info =
            "version_info{binary=\"1.36\",component=\"kube\",emulation=\"1.36\",min_compat=\"1.35\"} 1\n";
        assert!(text.contains(version_info), "{text}");
    }
}
