//! Environment of a check: its namespace, files, commands and requests.

use std::{fs, path::Path, time::Duration};

use kcm_clock::{Clock, RealClock};
use serde_json::{Value, json};

use super::{
    cluster::{Cluster, SandboxProgram},
    failure::{Failure, ensure},
    http_client::{HttpClient, Watch},
    kubectl::{CommandOutput, Kubectl, Running, Version},
    manifests,
    objects::{generation, name, revision},
};

/// Maximum time to wait for a state.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two requests while waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(30);

/// Environment of a check.
#[derive(Debug)]
pub(super) struct TestEnv {
    pub(super) kubectl: Kubectl,
    pub(super) http: HttpClient,
    pub(super) namespace: String,
    /// `None` for an existing cluster.
    pub(super) sandbox: Option<SandboxProgram>,
    /// `true` if pods become ready.
    pub(super) has_nodes: bool,
}

impl TestEnv {
    /// Runs a `kubectl` command line, see [`Kubectl::run`].
    pub(super) async fn run(&self, line: &str) -> Result<CommandOutput, Failure> {
        self.kubectl.run(line).await
    }

    /// Starts a `kubectl` command line that runs until it is interrupted.
    pub(super) fn start(&self, line: &str) -> Result<Running, Failure> {
        self.kubectl.start(line)
    }

    /// Returns a copy of the `kubectl` configuration with an environment variable.
    pub(super) fn with(&self, name: &str, value: &str) -> Kubectl {
        let mut kubectl = self.kubectl.clone();
        kubectl.environment.push((name.to_owned(), value.to_owned()));
        kubectl
    }

    /// Writes a file for use in command lines.
    pub(super) fn file(&self, name: &str, text: &str) -> Result<(), Failure> {
        Ok(fs::write(self.folder().join(name), text)?)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.kubectl.folder
    }

    pub(super) fn version(&self) -> &Version {
        &self.kubectl.version
    }

    /// API path in the namespace of the check, for example of `deployments/web/scale` or `pods?limit=1`.
    pub(super) fn path(&self, what: &str) -> String {
        let plural = what.split(['/', '?']).next().unwrap_or_default();
        let group = match plural {
            "deployments" | "replicasets" => "apis/apps/v1",
            "horizontalpodautoscalers" => "apis/autoscaling/v2",
            "poddisruptionbudgets" => "apis/policy/v1",
            "leases" => "apis/coordination.k8s.io/v1",
            _ => "api/v1",
        };
        format!("/{group}/namespaces/{}/{what}", self.namespace)
    }

    /// Returns the stored object or list.
    pub(super) async fn object(&self, what: &str) -> Result<Value, Failure> {
        let response = self.http.get(&self.path(what)).await?;
        ensure(response.status == 200, || format!("{what}: {} {}", response.status, response.body))?;
        Ok(response.body)
    }

    /// `true` if the object exists.
    pub(super) async fn exists(&self, what: &str) -> Result<bool, Failure> {
        Ok(self.http.get(&self.path(what)).await?.status == 200)
    }

    /// Returns the items of a list.
    pub(super) async fn items(&self, what: &str) -> Result<Vec<Value>, Failure> {
        match self.object(what).await?["items"].take() {
            Value::Array(items) => Ok(items),
            other => Err(Failure::new(format!("{what}: items is {other}"))),
        }
    }

    /// Returns the names of the items of a list.
    pub(super) async fn names(&self, what: &str) -> Result<Vec<String>, Failure> {
        Ok(self.items(what).await?.iter().map(|item| name(item).to_owned()).collect())
    }

    /// Waits until `attempt` returns a value.
    pub(super) async fn until<T>(
        &self,
        what: &str,
        mut attempt: impl AsyncFnMut() -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        let clock = RealClock::new();
        let deadline = clock.monotonic() + TIMEOUT;
        while clock.monotonic() < deadline {
            if let Some(found) = attempt().await? {
                return Ok(found);
            }
            clock.sleep(POLL_INTERVAL).await;
        }
        Err(Failure::new(format!("timeout after {}s: {what}", TIMEOUT.as_secs())))
    }

    /// Waits until `accept` returns `true` for the object at `path`. Returns the object.
    pub(super) async fn until_object(
        &self,
        path: &str,
        what: &str,
        accept: impl Fn(&Value) -> bool,
    ) -> Result<Value, Failure> {
        let last = std::cell::RefCell::new(Value::Null);
        let found = self
            .until(what, async || {
                let object = self.object(path).await?;
                if accept(&object) {
                    return Ok(Some(object));
                }
                *last.borrow_mut() = object;
                Ok(None)
            })
            .await;
        found.map_err(|failure| Failure::new(format!("{failure}; {path} is {}", last.borrow())))
    }

    /// Waits until the object does not exist.
    pub(super) async fn until_gone(&self, path: &str) -> Result<(), Failure> {
        self.until(&format!("deletion of {path}"), async || Ok((!self.exists(path).await?).then_some(())))
            .await
    }

    /// Starts a watch of `what` from its current resource version.
    pub(super) async fn watch(&self, what: &str) -> Result<Watch, Failure> {
        let list = self.object(what).await?;
        let separator = if what.contains('?') { '&' } else { '?' };
        let path = self.path(&format!("{what}{separator}watch=true&resourceVersion={}", revision(&list)));
        self.http.watch(&path).await
    }

    /// Applies [`manifests::WEB`] as `web.yaml` and waits until it is rolled out.
    pub(super) async fn web(&self) -> Result<Value, Failure> {
        self.apply_web(manifests::WEB).await?;
        self.until_rolled_out("web").await
    }

    /// Applies `text` as `web.yaml`.
    pub(super) async fn apply_web(&self, text: &str) -> Result<CommandOutput, Failure> {
        self.file("web.yaml", text)?;
        let applied = self.run("apply -f web.yaml").await?;
        applied.prints("deployment.apps/web *")?;
        Ok(applied)
    }

    /// Waits until the Deployment is completely rolled out. Returns it.
    pub(super) async fn until_rolled_out(&self, deployment: &str) -> Result<Value, Failure> {
        self.until_object(&format!("deployments/{deployment}"), "end of the rollout", |object| {
            let number = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or(0);
            let wanted = number("/spec/replicas");
            number("/status/observedGeneration") == number("/metadata/generation")
                && ["updatedReplicas", "replicas", "availableReplicas"]
                    .iter()
                    .all(|count| number(&format!("/status/{count}")) == wanted)
        })
        .await
    }

    /// Waits until the Deployment no longer changes. Returns it.
    pub(super) async fn until_unchanged(&self, deployment: &str) -> Result<Value, Failure> {
        /// Number of observations without a change.
        const UNCHANGED: u32 = 8;
        if self.has_nodes {
            self.until_rolled_out(deployment).await?;
        }
        let (mut last, mut unchanged) = (Value::Null, 0);
        self.until("a Deployment without changes", async || {
            let now = self.object(&format!("deployments/{deployment}")).await?;
            unchanged = if now == last && now["status"]["observedGeneration"] == generation(&now) {
                unchanged + 1
            } else {
                0
            };
            last = now;
            Ok((unchanged >= UNCHANGED).then(|| last.clone()))
        })
        .await
    }

    /// Returns the ReplicaSet with this image.
    pub(super) async fn replica_set_with_image(&self, image: &str) -> Result<Value, Failure> {
        let sets = self.items("replicasets").await?;
        let found =
            sets.into_iter().find(|set| set["spec"]["template"]["spec"]["containers"][0]["image"] == image);
        found.ok_or_else(|| Failure::new(format!("no ReplicaSet with image {image}")))
    }

    /// Starts another sandbox. Returns it and its environment.
    pub(super) async fn start_sandbox(&self, flags: &[&str]) -> Result<(Cluster, Self), Failure> {
        let program = self.program()?;
        let cluster = program.start(self.folder(), self.version(), flags).await?;
        let kubectl = Kubectl {
            kubeconfig: Some(cluster.kubeconfig.clone()),
            home: self.folder().join("home"),
            namespace: Some(self.namespace.clone()),
            ..self.kubectl.clone()
        };
        let env = Self {
            kubectl,
            http: cluster.http.clone(),
            namespace: self.namespace.clone(),
            sandbox: self.sandbox.clone(),
            has_nodes: true,
        };
        env.create_namespace().await?;
        Ok((cluster, env))
    }

    /// Returns the sandbox program.
    pub(super) fn program(&self) -> Result<&SandboxProgram, Failure> {
        self.sandbox.as_ref().ok_or_else(|| Failure::new("requires its own server"))
    }

    /// Creates the namespace if it does not exist, and waits until pods can be created in it.
    pub(super) async fn create_namespace(&self) -> Result<(), Failure> {
        let namespace = json!({ "metadata": { "name": self.namespace } });
        let response = self.http.post("/api/v1/namespaces", &namespace).await?;
        ensure(matches!(response.status, 201 | 409), || {
            format!("failed to create the namespace: {}", response.body)
        })?;
        self.until("the default service account", async || {
            Ok(self.exists("serviceaccounts/default").await?.then_some(()))
        })
        .await
    }
}
