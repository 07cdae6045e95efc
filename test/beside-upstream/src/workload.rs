//! The workload: a rollout of 100 pods, ten small Deployments, one Recreate.

use std::time::Duration;

use kcm_client::{ApiClient, Request};
use serde_json::{Value, json};

use crate::error::SuiteError;

/// The Deployment that is rolled out.
pub(crate) const WEB: &str = "web";
const RECREATE: &str = "recreate";

/// Size and speed of the workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// Pods of the rollout.
    web: usize,
    /// Pods of the Recreate.
    recreate: usize,
    /// Small Deployments, and pods of each.
    small: usize,
    small_replicas: usize,
    /// Client-side rate limit of the managers.
    pub(crate) qps: usize,
    /// Number of updated pods at which the fault starts.
    pub(crate) updated: usize,
    /// Time from the first observation of a pod to its readiness.
    pub(crate) ready_after: Duration,
}

/// The workload of the catalogue. Its rollout takes about 10 s.
pub(crate) const FULL: Scale = Scale {
    web: 100,
    recreate: 5,
    small: 10,
    small_replicas: 3,
    qps: 50,
    updated: 10,
    ready_after: Duration::from_secs(1),
};

/// The workload of the tests with the embedded API server.
pub(crate) const SMALL: Scale = Scale {
    web: 16,
    recreate: 2,
    small: 2,
    small_replicas: 2,
    qps: 1000,
    updated: 2,
    ready_after: Duration::from_millis(100),
};

impl Scale {
    /// Pods that the rollout and the new Deployments need.
    pub(crate) const fn needed(&self) -> usize {
        self.web + self.recreate + self.small * self.small_replicas
    }

    /// Pods of the rollout that must be available: `maxUnavailable` is 25%.
    pub(crate) const fn min_available(&self) -> usize {
        self.web * 3 / 4
    }

    /// The Deployments before the rollout.
    pub(crate) fn before(&self) -> Vec<Goal> {
        [(WEB, self.web), (RECREATE, self.recreate)]
            .map(|(name, replicas)| Goal { name: name.to_owned(), replicas, image: OLD })
            .into()
    }

    /// All Deployments after the rollout.
    pub(crate) fn after(&self) -> Vec<Goal> {
        let mut goals = self.before();
        goals.iter_mut().for_each(|goal| goal.image = NEW);
        goals.extend((0..self.small).map(|number| Goal {
            name: format!("small-{number}"),
            replicas: self.small_replicas,
            image: NEW,
        }));
        goals
    }
}

/// Images before and after the rollout.
const OLD: &str = "app:1";
const NEW: &str = "app:2";

/// State that a Deployment should reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Goal {
    pub(crate) name: String,
    pub(crate) replicas: usize,
    pub(crate) image: &'static str,
}

/// Client of the workload in a namespace.
#[derive(Debug)]
pub(crate) struct Workload<'a> {
    pub(crate) api: &'a ApiClient,
    pub(crate) namespace: &'a str,
    pub(crate) scale: Scale,
}

impl Workload<'_> {
    /// Creates the Deployments before the rollout.
    pub(crate) async fn set_up(&self) -> Result<(), SuiteError> {
        for goal in self.scale.before() {
            self.create(&goal).await?;
        }
        Ok(())
    }

    /// Starts the rollout.
    pub(crate) async fn roll(&self) -> Result<(), SuiteError> {
        self.set_image(WEB).await
    }

    /// Creates the small Deployments, and changes the one with the strategy `Recreate`.
    pub(crate) async fn add(&self) -> Result<(), SuiteError> {
        self.set_image(RECREATE).await?;
        for goal in self.scale.after().iter().filter(|goal| goal.name.starts_with("small")) {
            self.create(goal).await?;
        }
        Ok(())
    }

    async fn create(&self, goal: &Goal) -> Result<(), SuiteError> {
        let path = format!("/apis/apps/v1/namespaces/{}/deployments", self.namespace);
        self.api.send(&Request::create(path, deployment(goal).to_string())).await?;
        Ok(())
    }

    async fn set_image(&self, name: &str) -> Result<(), SuiteError> {
        let containers = json!([{"name": "main", "image": NEW}]);
        let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        let path = format!("/apis/apps/v1/namespaces/{}/deployments/{name}", self.namespace);
        self.api.send(&Request::strategic_merge_patch(path, patch.to_string())).await?;
        Ok(())
    }
}

fn deployment(goal: &Goal) -> Value {
    let Goal { name, replicas, image } = goal;
    let strategy = if name == RECREATE {
        json!({"type": "Recreate"})
    } else {
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "strategy": strategy,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    // Assigned pods are deleted gracefully.
                    "nodeName": "node-1",
                    "terminationGracePeriodSeconds": 30,
                    "containers": [{
                        "name": "main",
                        "image": image,
                        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
                    }],
                },
            },
        },
    })
}
