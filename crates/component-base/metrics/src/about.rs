//! What the process is, and what its metrics are.

use std::{fmt, sync::Arc};

use crate::{
    BuildInfo, Counter, Family, Gauge, MetricsOptions, Registry, Spec,
    Stability::{Alpha, Beta, Unmarked},
};

/// Versions, features, and metrics about metrics.
pub(crate) struct About {
    features: Family<Gauge, 2>,
    registered: Family<Counter, 2>,
    unexpected: Arc<Counter>,
}

impl About {
    pub(crate) fn new(registry: &Registry, options: &MetricsOptions, build: &BuildInfo) -> Self {
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
            "Always 1; its labels tell which version this behaves as, and from what it was built, with what, for what. \
             Built without Go, it has no Go version.",
        ));
        let platform = format!("{}/{}", std::env::consts::OS, go_architecture());
        let minor_text = minor.to_string();
        let version = format!("v1.{minor}.0+kcm.{}", version.trim_start_matches('v'));
        info.with([date, "rustc", commit, "", &version, "", "1", &minor_text, &platform]).set(1.0);

        let versions = registry.metric::<Gauge, 4>(Spec::upstream(
            "version_info",
            Alpha,
            ["binary", "component", "emulation", "min_compat"],
            "Always 1; its labels tell which versions of Kubernetes this is like and compatible with.",
        ));
        let (this, previous) = (format!("1.{minor}"), format!("1.{}", minor.saturating_sub(1)));
        versions.with([&this, "kube", &this, &previous]).set(1.0);

        let disabled = registry.metric::<Counter, 0>(Spec::upstream(
            "disabled_metrics_total",
            Beta,
            [],
            "How many metrics --disabled-metrics names.",
        ));
        let mut names: Vec<_> = options.disabled.iter().collect();
        names.sort_unstable();
        names.dedup();
        disabled.only().inc_by(names.len() as u64);
        let _hidden = registry.metric::<Counter, 0>(Spec::upstream(
            "hidden_metrics_total",
            Beta,
            [],
            "How many metrics are hidden because they will go. None is, in this version.",
        ));
        Self {
            features: registry.metric(Spec::upstream(
                "kubernetes_feature_enabled",
                Beta,
                ["name", "stage"],
                "1 for a feature gate that is on, 0 for one that is off, by name and stage.",
            )),
            registered: registry.metric(Spec::upstream(
                "registered_metrics_total",
                Beta,
                ["deprecated_version", "stability_level"],
                "How many metrics there are, by how far they can be relied upon.",
            )),
            unexpected: registry
                .metric(Spec::upstream(
                    "cardinality_enforcement_unexpected_categorizations_total",
                    Alpha,
                    [],
                    "How often a label's value was not among those that --allow-metric-labels allows.",
                ))
                .only(),
        }
    }

    pub(crate) fn feature(&self, name: &str, stage: &str, enabled: bool) {
        self.features.with([name, stage]).set(if enabled { 1.0 } else { 0.0 });
    }

    /// Counts what has come into being.
    pub(crate) fn count_registered(&self, registry: &Registry) {
        for definition in registry.definitions() {
            if definition.stability != Unmarked {
                self.registered.with(["", definition.stability.as_str()]).inc();
            }
        }
    }

    pub(crate) fn refresh(&self, registry: &Registry) {
        self.unexpected.set_total(registry.unexpected());
    }
}

/// What Go calls the architecture.
fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

impl fmt::Debug for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("About")
    }
}
