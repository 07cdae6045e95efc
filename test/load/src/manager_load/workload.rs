//! Workloads.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use kcm_client::{ApiClient, Request};
use kcm_clock::Clock;
use serde_json::{Value, json};

use super::{load_cluster::DEPLOYMENTS, manager::TIMEOUT};
use crate::error::TaskError;

/// Duration of the workload without requests.
const REST: Duration = Duration::from_secs(30);
/// Interval of status checks.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Number of pods of the large Deployment.
const LARGE: usize = 100;
/// Image that replaces that of the setup.
const IMAGE: &str = "app:9";
const LARGE_NAME: &str = "large";

/// Workload: a state that is set up before the measurement, and the part that is measured.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    /// Number of Deployments, and of pods of each, at scale 1.
    deployments: usize,
    pods_each: usize,
    /// Quantity that the scale multiplies.
    grows: Grows,
    /// `true` if pods become ready.
    pub(super) nodes: bool,
    setup: Setup,
    change: Change,
    /// `true` if the managers have their default rate limits.
    pub(super) limited: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grows {
    Deployments,
    PodsEach,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setup {
    Empty,
    /// All pods exist. With nodes, they are available.
    Pods,
    /// The same, and those of a Deployment of [`LARGE`] pods.
    PodsAndLarge,
    /// The pods are available, and each Deployment has three old ReplicaSets.
    OldReplicaSets,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Create,
    ScaleToZero,
    SetImage,
    SetImageAndScaleLargeToZero,
    Nothing,
}

/// All workloads.
pub(super) const WORKLOADS: [Workload; 11] = [
    Workload {
        name: "burst5000",
        deployments: 1,
        pods_each: 5_000,
        grows: Grows::PodsEach,
        nodes: false,
        setup: Setup::Empty,
        change: Change::Create,
        limited: false,
    },
    Workload {
        name: "down5000",
        deployments: 1,
        pods_each: 5_000,
        grows: Grows::PodsEach,
        nodes: false,
        setup: Setup::Pods,
        change: Change::ScaleToZero,
        limited: false,
    },
    Workload {
        name: "small500",
        deployments: 500,
        pods_each: 3,
        grows: Grows::Deployments,
        nodes: true,
        setup: Setup::Empty,
        change: Change::Create,
        limited: false,
    },
    Workload {
        name: "roll500",
        deployments: 1,
        pods_each: 500,
        grows: Grows::PodsEach,
        nodes: true,
        setup: Setup::Pods,
        change: Change::SetImage,
        limited: false,
    },
    Workload {
        name: "mass_roll300",
        deployments: 300,
        pods_each: 3,
        grows: Grows::Deployments,
        nodes: true,
        setup: Setup::OldReplicaSets,
        change: Change::SetImage,
        limited: false,
    },
    Workload {
        name: "ten_by_1000",
        deployments: 10,
        pods_each: 1_000,
        grows: Grows::Deployments,
        nodes: false,
        setup: Setup::Empty,
        change: Change::Create,
        limited: false,
    },
    Workload {
        name: "idle",
        deployments: 0,
        pods_each: 0,
        grows: Grows::Deployments,
        nodes: false,
        setup: Setup::Empty,
        change: Change::Nothing,
        limited: false,
    },
    Workload {
        name: "limited_up500",
        deployments: 1,
        pods_each: 500,
        grows: Grows::PodsEach,
        nodes: true,
        setup: Setup::Empty,
        change: Change::Create,
        limited: true,
    },
    Workload {
        name: "limited_small100",
        deployments: 100,
        pods_each: 3,
        grows: Grows::Deployments,
        nodes: true,
        setup: Setup::Empty,
        change: Change::Create,
        limited: true,
    },
    Workload {
        name: "limited_roll20",
        deployments: 20,
        pods_each: 5,
        grows: Grows::Deployments,
        nodes: true,
        setup: Setup::Pods,
        change: Change::SetImage,
        limited: true,
    },
    Workload {
        name: "limited_roll20_down100",
        deployments: 20,
        pods_each: 5,
        grows: Grows::Deployments,
        nodes: true,
        setup: Setup::PodsAndLarge,
        change: Change::SetImageAndScaleLargeToZero,
        limited: true,
    },
];

/// Workload with a scale.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scaled {
    pub(super) workload: &'static Workload,
    pub(super) scale: usize,
}

impl Scaled {
    fn deployments(self) -> usize {
        match self.workload.grows {
            Grows::Deployments => self.workload.deployments * self.scale,
            Grows::PodsEach => self.workload.deployments,
        }
    }

    fn pods_each(self) -> usize {
        match self.workload.grows {
            Grows::Deployments => self.workload.pods_each,
            Grows::PodsEach => self.workload.pods_each * self.scale,
        }
    }

    /// Number of objects that the cost is divided by, and their kind. `None` without objects.
    pub(super) fn units(self) -> Option<(usize, &'static str)> {
        let (deployments, pods_each) = (self.deployments(), self.pods_each());
        match (deployments, pods_each) {
            (0, _) => None,
            (_, 3) => Some((deployments, "Deployment")),
            _ => Some((deployments * pods_each, "pod")),
        }
    }
}

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}×", self.workload.name, self.scale)
    }
}

/// Client that runs the workload.
pub(super) struct Script<'a> {
    pub(super) api: &'a ApiClient,
    pub(super) clock: &'a Arc<dyn Clock>,
    pub(super) scaled: Scaled,
}

impl Script<'_> {
    /// Creates the state before the measurement.
    pub(super) async fn set_up(&self) -> Result<(), TaskError> {
        let setup = self.scaled.workload.setup;
        if setup == Setup::Empty {
            return Ok(());
        }
        self.create().await?;
        if setup == Setup::PodsAndLarge {
            self.api.send(&Request::post(DEPLOYMENTS, deployment(LARGE_NAME, LARGE).to_string())).await?;
        }
        self.settled().await?;
        if setup == Setup::OldReplicaSets {
            for image in ["app:2", "app:3", "app:4"] {
                self.set_image(image).await?;
                self.settled().await?;
            }
        }
        Ok(())
    }

    /// Runs the part that is measured. Returns the time of each Deployment, shortest first.
    pub(super) async fn run(&self) -> Result<Vec<Duration>, TaskError> {
        let to_zero = json!({"spec": {"replicas": 0}});
        match self.scaled.workload.change {
            Change::Create => self.create().await?,
            Change::ScaleToZero => self.patch(&to_zero).await?,
            Change::SetImage => self.set_image(IMAGE).await?,
            Change::SetImageAndScaleLargeToZero => {
                self.patch_one(LARGE_NAME, &to_zero).await?;
                self.set_image(IMAGE).await?;
            }
            Change::Nothing => {
                self.clock.sleep(REST).await;
                return Ok(Vec::new());
            }
        }
        self.settled().await
    }

    async fn create(&self) -> Result<(), TaskError> {
        for at in 0..self.scaled.deployments() {
            let body = deployment(&format!("web-{at}"), self.scaled.pods_each()).to_string();
            self.api.send(&Request::post(DEPLOYMENTS, body)).await?;
        }
        Ok(())
    }

    async fn set_image(&self, image: &str) -> Result<(), TaskError> {
        let containers = json!([{"name": "main", "image": image}]);
        self.patch(&json!({"spec": {"template": {"spec": {"containers": containers}}}})).await
    }

    /// Patches all Deployments but the large one.
    async fn patch(&self, patch: &Value) -> Result<(), TaskError> {
        for at in 0..self.scaled.deployments() {
            self.patch_one(&format!("web-{at}"), patch).await?;
        }
        Ok(())
    }

    async fn patch_one(&self, name: &str, patch: &Value) -> Result<(), TaskError> {
        let path = format!("{DEPLOYMENTS}/{name}");
        self.api.send(&Request::strategic_merge_patch(path, patch.to_string())).await?;
        Ok(())
    }

    /// Waits until the status of each Deployment counts its pods. With nodes, until these are updated and available. Returns
    /// the time of each, shortest first.
    async fn settled(&self) -> Result<Vec<Duration>, TaskError> {
        let start = self.clock.monotonic();
        let fields: &[&str] = if self.scaled.workload.nodes {
            &["replicas", "updatedReplicas", "availableReplicas"]
        } else {
            &["replicas"]
        };
        let mut times = BTreeMap::new();
        loop {
            let list = self.api.send(&Request::get(format!("{DEPLOYMENTS}?resourceVersion=0"))).await?;
            let list: Value = serde_json::from_slice(&list)?;
            let deployments: Vec<_> = list["items"].as_array().into_iter().flatten().collect();
            let elapsed = self.clock.monotonic().saturating_sub(start);
            for deployment in &deployments {
                let name = deployment["metadata"]["name"].to_string();
                if is_settled(deployment, fields) {
                    times.entry(name).or_insert(elapsed);
                } else {
                    // The first lists may be older than the change.
                    times.remove(&name);
                }
            }
            if times.len() == deployments.len() {
                let mut times: Vec<_> = times.into_values().collect();
                times.sort_unstable();
                return Ok(times);
            }
            if elapsed > TIMEOUT {
                return Err(TaskError::Late(self.scaled.workload.name.to_owned()));
            }
            self.clock.sleep(POLL_INTERVAL).await;
        }
    }
}

/// Returns `true` if these fields of the status are the number of replicas.
fn is_settled(deployment: &Value, fields: &[&str]) -> bool {
    let (spec, status) = (&deployment["spec"], &deployment["status"]);
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && fields.iter().all(|field| count(&status[*field]) == count(&spec["replicas"]))
}

pub(super) fn deployment(name: &str, replicas: usize) -> Value {
    let env: Vec<_> = (0..10).map(|at| json!({"name": format!("E{at}"), "value": "v".repeat(20)})).collect();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name, "team": "load"}},
                "spec": {"containers": [{
                    "name": "main",
                    "image": "app:1",
                    "ports": [{"containerPort": 80}],
                    "env": env,
                    "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
                }]},
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_multiplies_pods_or_deployments() {
        struct Case {
            workload: &'static str,
            units: Option<(usize, &'static str)>,
        }
        let cases = [
            Case { workload: "burst5000", units: Some((15_000, "pod")) },
            Case { workload: "small500", units: Some((1_500, "Deployment")) },
            Case { workload: "ten_by_1000", units: Some((30_000, "pod")) },
            Case { workload: "idle", units: None },
        ];
        for Case { workload: name, units } in cases {
            let workload = WORKLOADS.iter().find(|workload| workload.name == name).unwrap();
            assert_eq!(Scaled { workload, scale: 3 }.units(), units, "{name}");
        }
    }
}
