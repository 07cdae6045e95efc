//! Admission webhook.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use kcm_clock::{Clock, RealClock};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::{
    catalogue::Admission,
    error::{SuiteError, failed},
};

/// Delay of a slow webhook.
const SLOW: Duration = Duration::from_secs(25);
/// Number of replicas up to which the webhook lets a ReplicaSet grow.
const MAX_REPLICAS: u64 = 30;
/// Finalizer that the webhook adds.
pub(crate) const FINALIZER: &str = "beside-upstream.test/finalizer";

/// Running webhook.
#[derive(Debug)]
pub(crate) struct Webhook {
    address: SocketAddr,
    changed: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Webhook {
    /// Starts a webhook on a free port.
    pub(crate) async fn start(admission: Admission, tls: rustls::ServerConfig) -> Result<Self, SuiteError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed("webhook"))?;
        let address = listener.local_addr().map_err(failed("webhook"))?;
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let changed = Arc::new(AtomicU64::default());
        let counter = Arc::clone(&changed);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let (acceptor, counter) = (acceptor.clone(), Arc::clone(&counter));
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(|request| respond(request, admission, Arc::clone(&counter)));
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { address, changed, _tasks: tasks })
    }

    /// URL of the webhook.
    pub(crate) fn url(&self) -> String {
        format!("https://{}/", self.address)
    }

    /// Number of objects that were changed or delayed.
    pub(crate) fn changed(&self) -> u64 {
        self.changed.load(Ordering::SeqCst)
    }
}

async fn respond(
    request: Request<Incoming>,
    admission: Admission,
    changed: Arc<AtomicU64>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let patch = patch(admission, &review["request"]["object"], &review["request"]["oldObject"]);
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    if !patch.is_empty() || admission == Admission::Slow {
        changed.fetch_add(1, Ordering::SeqCst);
    }
    if admission == Admission::Slow {
        RealClock::new().sleep(SLOW).await;
    }
    if !patch.is_empty() {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(STANDARD.encode(Value::from(patch).to_string()));
    }
    let answer =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    let mut response = Response::new(Full::from(answer.to_string()));
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    Ok(response)
}

/// JSON patch for a new object. `old` is null for a creation.
fn patch(admission: Admission, object: &Value, old: &Value) -> Vec<Value> {
    let replicas = |object: &Value| object["spec"]["replicas"].as_u64().unwrap_or(0);
    let most = replicas(old).max(MAX_REPLICAS);
    let has_owner = object["metadata"]["ownerReferences"].is_array();
    match admission {
        Admission::OwnersStripped if has_owner => {
            vec![json!({"op": "remove", "path": "/metadata/ownerReferences"})]
        }
        Admission::LabelsChanged if has_owner => {
            vec![json!({"op": "replace", "path": "/metadata/labels/app", "value": "changed"})]
        }
        Admission::FinalizersAdded if has_owner => {
            vec![json!({"op": "add", "path": "/metadata/finalizers", "value": [FINALIZER]})]
        }
        Admission::ReplicasMutated if replicas(object) > most => {
            vec![json!({"op": "replace", "path": "/spec/replicas", "value": most})]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_apply_to_owned_pods_and_large_replica_sets() {
        let pod = json!({"metadata": {"ownerReferences": [{"name": "web-1"}], "labels": {"app": "web"}}});
        for admission in [Admission::OwnersStripped, Admission::LabelsChanged, Admission::FinalizersAdded] {
            assert_eq!(patch(admission, &pod, &Value::Null).len(), 1, "{admission:?}");
            assert!(patch(admission, &json!({"metadata": {}}), &Value::Null).is_empty(), "{admission:?}");
        }
        let grown = |from: Value, to: u64| {
            patch(
                Admission::ReplicasMutated,
                &json!({"spec": {"replicas": to}}),
                &json!({"spec": {"replicas": from}}),
            )
        };
        assert_eq!(grown(Value::Null, 31)[0]["value"], 30);
        assert_eq!(grown(json!(50), 95)[0]["value"], 50);
        assert!(grown(json!(0), 30).is_empty() && grown(json!(75), 60).is_empty());
    }
}
