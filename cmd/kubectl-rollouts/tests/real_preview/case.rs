//! Drawn Deployments and changes.

use std::path::Path;

use kcm_clock::{Random, SeededRandom};
use serde_json::{Value, json};

use crate::nodes::Timing;

/// Deployment `web` and a change of it.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) replicas: u64,
    pub(crate) strategy: Value,
    pub(crate) timing: Timing,
    /// Number of images that were rolled out before.
    pub(crate) history: u64,
    pub(crate) change: Change,
    /// If `true`, the strategy of the changed manifest is `Recreate`.
    pub(crate) recreates: bool,
}

/// Change of a Deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Image,
    Replicas(u64),
    Restart,
    Undo(Option<u64>),
    Apply,
    Pause,
    Resume,
}

impl Case {
    pub(crate) fn draw(seed: u64) -> Self {
        let random = SeededRandom::new(seed);
        let below = |bound: u64| random.next_u64() % bound;
        let rolling = |surge: Value, unavailable: Value| {
            let bounds = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
            json!({ "type": "RollingUpdate", "rollingUpdate": bounds })
        };
        let strategy = match below(7) {
            0 => rolling(json!(1), json!(0)),
            1 => rolling(json!(0), json!(1)),
            2 => rolling(json!(1), json!(1)),
            3 => rolling(json!(3), json!(2)),
            4 => rolling(json!("25%"), json!("25%")),
            5 => rolling(json!("100%"), json!(0)),
            _ => json!({ "type": "Recreate" }),
        };
        let history = 1 + below(2);
        let change = match below(7) {
            0 | 1 => Change::Image,
            2 => Change::Replicas(below(9)),
            3 => Change::Restart,
            4 => Change::Undo(None),
            5 => Change::Undo(Some(1 + below(history))),
            _ => Change::Apply,
        };
        let recreates = below(2) == 0;
        let timing = Timing { ready: 2 + below(8), stop: 1 + below(6) };
        Self { replicas: 1 + below(7), strategy, timing, history, change, recreates }
    }

    /// Manifest with this image.
    pub(crate) fn manifest(&self, image: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
            "spec": {
                "replicas": self.replicas,
                "selector": { "matchLabels": { "app": "web" } },
                "strategy": self.strategy,
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [{
                        "name": "app", "image": image,
                        "env": [{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }],
                        "ports": [{ "containerPort": 80 }],
                    }] },
                },
            },
        })
    }

    /// Manifest for [`Change::Apply`]: fields are changed, added and removed.
    pub(crate) fn changed_manifest(&self) -> Value {
        let mut manifest = self.manifest("app:applied");
        let container = &mut manifest["spec"]["template"]["spec"]["containers"][0];
        container["env"] = json!([{ "name": "B", "value": "3" }, { "name": "C", "value": "4" }]);
        container["resources"] = json!({ "requests": { "cpu": "100m" } });
        container.as_object_mut().unwrap().remove("ports");
        if self.recreates {
            manifest["spec"]["strategy"] = json!({ "type": "Recreate" });
        }
        manifest
    }
}

impl Change {
    /// Flags of `preview`. `manifest` is the changed manifest.
    pub(crate) fn preview_arguments(&self, manifest: &Path) -> Vec<String> {
        match self {
            Self::Image => vec!["--image=app=app:new".to_owned()],
            Self::Replicas(replicas) => vec![format!("--replicas={replicas}")],
            Self::Restart => vec!["--restart".to_owned()],
            Self::Undo(None) => vec!["--undo".to_owned()],
            Self::Undo(Some(revision)) => vec![format!("--undo={revision}")],
            Self::Apply => vec!["-f".to_owned(), manifest.display().to_string()],
            Self::Pause => vec!["--pause".to_owned()],
            Self::Resume => vec!["--resume".to_owned()],
        }
    }

    /// Command of `kubectl` that makes the change.
    pub(crate) fn kubectl_arguments(&self, manifest: &Path) -> Vec<String> {
        let command = match self {
            Self::Image => "set image deployment/web app=app:new".to_owned(),
            Self::Replicas(replicas) => format!("scale deployment/web --replicas={replicas}"),
            Self::Restart => "rollout restart deployment/web".to_owned(),
            Self::Undo(None) => "rollout undo deployment/web".to_owned(),
            Self::Undo(Some(revision)) => format!("rollout undo deployment/web --to-revision={revision}"),
            Self::Apply => format!("apply -f {}", manifest.display()),
            Self::Pause => "rollout pause deployment/web".to_owned(),
            Self::Resume => "rollout resume deployment/web".to_owned(),
        };
        command.split(' ').map(str::to_owned).collect()
    }
}
