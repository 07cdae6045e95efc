//! Rules and webhooks of the API server that the faults of admission create.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kcm_client::Request;
use kcm_clock::Clock as _;
use serde_json::{Value, json};

use crate::{
    catalogue::Admission,
    cluster::{server_identity, server_tls},
    error::SuiteError,
    measure::Tally,
    observer::Observer,
    run::{POLL_INTERVAL, SETUP},
    scene::Scene,
    webhook::Webhook,
};

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
/// A URL without a server.
const NO_SERVER: &str = "https://127.0.0.1:9/";
/// Pods of the Deployment in the second namespace, before and after the start of its deletion.
const GONE_REPLICAS: [u64; 2] = [5, 20];

impl Scene<'_> {
    /// Creates the objects of the fault.
    pub(crate) async fn begin_admission(&mut self, admission: Admission) -> Result<(), SuiteError> {
        match admission {
            Admission::NamesRefused => self.refuse_names().await,
            Admission::OwnersStripped
            | Admission::LabelsChanged
            | Admission::FinalizersAdded
            | Admission::Slow
            | Admission::ReplicasMutated => {
                let tls = server_tls(&server_identity(&self.cluster.authority))?;
                let webhook = Webhook::start(admission, tls).await?;
                let url = webhook.url();
                self.webhook = Some(webhook);
                self.register(admission, &url).await
            }
            Admission::Absent => self.register(admission, NO_SERVER).await,
            Admission::Quota => self.create_quota().await,
            Admission::LimitRange => {
                let limits = json!({"cpu": "100m", "memory": "64Mi"});
                let range = json!({
                    "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": self.name},
                    "spec": {"limits": [{"type": "Container", "default": limits}]},
                });
                self.create(&format!("/api/v1/namespaces/{}/limitranges", self.name), &range).await
            }
            Admission::NamespaceTerminating => self.delete_second_namespace().await,
        }
    }

    /// Counter that shows that the objects had effect.
    pub(crate) fn admission_reached(&self, admission: Admission, tally: &Tally, observer: &Observer) -> u64 {
        match admission {
            Admission::NamesRefused
            | Admission::Absent
            | Admission::Quota
            | Admission::NamespaceTerminating => tally.refused,
            Admission::LimitRange => observer.with(|observed| observed.limited.len() as u64),
            Admission::OwnersStripped
            | Admission::LabelsChanged
            | Admission::FinalizersAdded
            | Admission::Slow
            | Admission::ReplicasMutated => self.webhook.as_ref().map_or(0, Webhook::changed),
        }
    }

    /// Selector of the namespace of the workload.
    fn namespace_selector(&self) -> Value {
        json!({"matchLabels": {"kubernetes.io/metadata.name": self.name}})
    }

    async fn refuse_names(&mut self) -> Result<(), SuiteError> {
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": self.name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
                }]},
                "validations": [{"expression": "!object.metadata.name.matches('[2-9]$')"}],
            },
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": self.name},
            "spec": {
                "policyName": self.name,
                "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": self.namespace_selector()},
            },
        });
        self.create(&format!("{REGISTRATION}/validatingadmissionpolicies"), &policy).await?;
        self.create(&format!("{REGISTRATION}/validatingadmissionpolicybindings"), &binding).await
    }

    async fn register(&mut self, admission: Admission, url: &str) -> Result<(), SuiteError> {
        let rule = match admission {
            Admission::ReplicasMutated => json!({
                "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["replicasets"],
            }),
            _ => json!({
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
            }),
        };
        let webhook = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": self.name},
            "webhooks": [{
                "name": "beside-upstream.test.example",
                "clientConfig": {"url": url, "caBundle": STANDARD.encode(self.cluster.authority.pem())},
                "rules": [rule],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 30,
                "failurePolicy": "Fail",
                "namespaceSelector": self.namespace_selector(),
            }],
        });
        self.create(&format!("{REGISTRATION}/mutatingwebhookconfigurations"), &webhook).await
    }

    /// Creates a quota that is reached. No controller changes its status.
    async fn create_quota(&mut self) -> Result<(), SuiteError> {
        let path = format!("/api/v1/namespaces/{}/resourcequotas", self.name);
        let hard = json!({"pods": "1"});
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": self.name},
            "spec": {"hard": hard},
        });
        self.create(&path, &quota).await?;
        let status = json!({"status": {"hard": hard, "used": hard}});
        let request =
            Request::strategic_merge_patch(format!("{path}/{}/status", self.name), status.to_string());
        self.cluster.api.send(&request).await?;
        Ok(())
    }

    /// Creates a second namespace, deletes it, and scales its Deployment up. No controller completes the deletion.
    async fn delete_second_namespace(&mut self) -> Result<(), SuiteError> {
        let name = format!("{}-gone", self.name);
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.cluster.create("/api/v1/namespaces", &namespace).await?;
        let deployments = format!("/apis/apps/v1/namespaces/{name}/deployments");
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "gone"},
            "spec": {
                "replicas": GONE_REPLICAS[0],
                "selector": {"matchLabels": {"app": "gone"}},
                "template": {
                    "metadata": {"labels": {"app": "gone"}},
                    "spec": {"containers": [{"name": "main", "image": "app:1"}]},
                },
            },
        });
        self.create(&deployments, &deployment).await?;
        let path = format!("{deployments}/gone");
        let clock = self.cluster.clock.clone();
        let limit = clock.monotonic() + SETUP;
        // Without a ReplicaSet, the creation of one is refused, and not that of pods.
        while self.replicas(&path).await? < GONE_REPLICAS[0] && clock.monotonic() < limit {
            clock.sleep(POLL_INTERVAL).await;
        }
        self.cluster.delete(&format!("/api/v1/namespaces/{name}")).await?;
        let scale = json!({"spec": {"replicas": GONE_REPLICAS[1]}}).to_string();
        let request = Request::strategic_merge_patch(path, scale);
        self.cluster.api.send(&request).await?;
        Ok(())
    }

    /// Number of pods in the status of a Deployment.
    async fn replicas(&self, path: &str) -> Result<u64, SuiteError> {
        let deployment: Value = serde_json::from_slice(&self.cluster.api.send(&Request::get(path)).await?)?;
        Ok(deployment["status"]["replicas"].as_u64().unwrap_or(0))
    }
}
