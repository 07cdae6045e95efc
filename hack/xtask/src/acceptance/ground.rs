//! What a check stands on: a namespace and a folder of its own, commands, requests.

use std::{fs, path::Path, time::Duration};

use kcm_clock::{Clock, RealClock};
use serde_json::{Value, json};

use super::{
    cluster::{Cluster, SandboxProgram},
    failure::{Failure, ensure},
    kubectl::{Ended, Kubectl, Running, Version},
    manifests,
    wire::{Watch, Wire},
};

/// After this a state is taken not to come about.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the server is asked. There is no need to be polite to it.
const PAUSE: Duration = Duration::from_millis(30);

/// A check's surroundings.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) kubectl: Kubectl,
    pub(super) wire: Wire,
    pub(super) namespace: String,
    /// None with a cluster that the lane did not start.
    pub(super) sandbox: Option<SandboxProgram>,
    /// Whether pods become ready.
    pub(super) has_nodes: bool,
}

impl Ground {
    /// Runs a `kubectl` command line; see [`Kubectl::run`].
    pub(super) async fn run(&self, line: &str) -> Result<Ended, Failure> {
        self.kubectl.run(line).await
    }

    /// Starts one that goes on.
    pub(super) fn start(&self, line: &str) -> Result<Running, Failure> {
        self.kubectl.start(line)
    }

    /// The same surroundings with a variable set.
    pub(super) fn with(&self, name: &str, value: &str) -> Kubectl {
        let mut kubectl = self.kubectl.clone();
        kubectl.environment.push((name.to_owned(), value.to_owned()));
        kubectl
    }

    /// Writes a file that command lines can name.
    pub(super) fn file(&self, name: &str, text: &str) -> Result<(), Failure> {
        Ok(fs::write(self.folder().join(name), text)?)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.kubectl.folder
    }

    pub(super) fn version(&self) -> &Version {
        &self.kubectl.version
    }

    /// The path of something in the check's namespace, such as `deployments/web/scale` or `pods?limit=1`.
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

    /// What is stored there.
    pub(super) async fn object(&self, what: &str) -> Result<Value, Failure> {
        let reply = self.wire.get(&self.path(what)).await?;
        ensure(reply.status == 200, || format!("{what}: {} {}", reply.status, reply.body))?;
        Ok(reply.body)
    }

    /// Whether it is stored.
    pub(super) async fn exists(&self, what: &str) -> Result<bool, Failure> {
        Ok(self.wire.get(&self.path(what)).await?.status == 200)
    }

    /// The items of a list.
    pub(super) async fn items(&self, what: &str) -> Result<Vec<Value>, Failure> {
        match self.object(what).await?["items"].take() {
            Value::Array(items) => Ok(items),
            other => Err(Failure::new(format!("{what}: items is {other}"))),
        }
    }

    /// The names of what is listed.
    pub(super) async fn names(&self, what: &str) -> Result<Vec<String>, Failure> {
        Ok(self.items(what).await?.iter().map(|item| name(item).to_owned()).collect())
    }

    /// Waits until `attempt` gives something.
    pub(super) async fn until<T>(
        &self,
        what: &str,
        mut attempt: impl AsyncFnMut() -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        let clock = RealClock::new();
        let deadline = clock.monotonic() + PATIENCE;
        while clock.monotonic() < deadline {
            if let Some(found) = attempt().await? {
                return Ok(found);
            }
            clock.sleep(PAUSE).await;
        }
        Err(Failure::new(format!("{what} has not come about after {} s", PATIENCE.as_secs())))
    }

    /// Waits until the object at `path` is as `accept` says, and gives it.
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

    /// Waits until nothing is at `path`.
    pub(super) async fn until_gone(&self, path: &str) -> Result<(), Failure> {
        self.until(&format!("the end of {path}"), async || Ok((!self.exists(path).await?).then_some(())))
            .await
    }

    /// Watches from the present state of `what` on.
    pub(super) async fn watch(&self, what: &str) -> Result<Watch, Failure> {
        let list = self.object(what).await?;
        let separator = if what.contains('?') { '&' } else { '?' };
        let path = self.path(&format!("{what}{separator}watch=true&resourceVersion={}", revision(&list)));
        self.wire.watch(&path).await
    }

    /// Applies [`manifests::WEB`] as `web.yaml` and waits until its pods are available.
    pub(super) async fn web(&self) -> Result<Value, Failure> {
        self.apply_web(manifests::WEB).await?;
        self.rolled_out("web").await
    }

    /// Applies `text` as `web.yaml`.
    pub(super) async fn apply_web(&self, text: &str) -> Result<Ended, Failure> {
        self.file("web.yaml", text)?;
        let applied = self.run("apply -f web.yaml").await?;
        applied.prints("deployment.apps/web *")?;
        Ok(applied)
    }

    /// Waits until the Deployment is complete and nothing of its past is left; gives it.
    pub(super) async fn rolled_out(&self, deployment: &str) -> Result<Value, Failure> {
        self.until_object(&format!("deployments/{deployment}"), "the rollout's end", |object| {
            let number = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or(0);
            let wanted = number("/spec/replicas");
            number("/status/observedGeneration") == number("/metadata/generation")
                && ["updatedReplicas", "replicas", "availableReplicas"]
                    .iter()
                    .all(|count| number(&format!("/status/{count}")) == wanted)
        })
        .await
    }

    /// Waits until nobody writes the Deployment any more; gives it.
    pub(super) async fn at_rest(&self, deployment: &str) -> Result<Value, Failure> {
        /// So often it has to be found unchanged.
        const CALM: u32 = 8;
        if self.has_nodes {
            self.rolled_out(deployment).await?;
        }
        let (mut last, mut calm) = (Value::Null, 0);
        self.until("a Deployment at rest", async || {
            let now = self.object(&format!("deployments/{deployment}")).await?;
            calm = if now == last && now["status"]["observedGeneration"] == generation(&now) {
                calm + 1
            } else {
                0
            };
            last = now;
            Ok((calm >= CALM).then(|| last.clone()))
        })
        .await
    }

    /// The ReplicaSet of the Deployment's present template, as told by its pods' image.
    pub(super) async fn replica_set_with_image(&self, image: &str) -> Result<Value, Failure> {
        let sets = self.items("replicasets").await?;
        let found =
            sets.into_iter().find(|set| set["spec"]["template"]["spec"]["containers"][0]["image"] == image);
        found.ok_or_else(|| Failure::new(format!("no ReplicaSet has the image {image}")))
    }

    /// A sandbox of the check's own, and its surroundings.
    pub(super) async fn own(&self, flags: &[&str]) -> Result<(Cluster, Self), Failure> {
        let program = self.program()?;
        let cluster = program.start(self.folder(), self.version(), flags).await?;
        let kubectl = Kubectl {
            kubeconfig: Some(cluster.kubeconfig.clone()),
            home: self.folder().join("home"),
            namespace: Some(self.namespace.clone()),
            ..self.kubectl.clone()
        };
        let ground = Self {
            kubectl,
            wire: cluster.wire.clone(),
            namespace: self.namespace.clone(),
            sandbox: self.sandbox.clone(),
            has_nodes: true,
        };
        ground.make_namespace().await?;
        Ok((cluster, ground))
    }

    /// How to start sandboxes.
    pub(super) fn program(&self) -> Result<&SandboxProgram, Failure> {
        self.sandbox.as_ref().ok_or_else(|| Failure::new("needs a server of its own"))
    }

    /// Creates the check's namespace unless it is there, and waits until pods can be created in it.
    pub(super) async fn make_namespace(&self) -> Result<(), Failure> {
        let namespace = json!({ "metadata": { "name": self.namespace } });
        let reply = self.wire.post("/api/v1/namespaces", &namespace).await?;
        ensure(matches!(reply.status, 201 | 409), || format!("cannot create the namespace: {}", reply.body))?;
        self.until("the default service account", async || {
            Ok(self.exists("serviceaccounts/default").await?.then_some(()))
        })
        .await
    }
}

/// The name of an object.
pub(super) fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// The revision of an object or a list as a number, which clients may not do but a judge of servers must.
pub(super) fn revision(object: &Value) -> u64 {
    object
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

/// The generation of an object.
pub(super) fn generation(object: &Value) -> i64 {
    object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default()
}
