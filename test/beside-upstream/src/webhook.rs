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
/// Largest number of replicas of a ReplicaSet that the webhook admits.
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
    let patch = patch(admission, &review["request"]["object"]);
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

/// JSON patch for a new object.
fn patch(admission: Admission, object: &Value) -> Vec<Value> {
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
        Admission::ReplicasMutated if object["spec"]["replicas"].as_u64() > Some(MAX_REPLICAS) => {
            vec![json!({"op": "replace", "path": "/spec/replicas", "value": MAX_REPLICAS})]
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
            assert_eq!(patch(admission, &pod).len(), 1, "{admission:?}");
            assert!(patch(admission, &json!({"metadata": {}})).is_empty(), "{admission:?}");
        }
        assert_eq!(patch(Admission::ReplicasMutated, &json!({"spec": {"replicas": 31}})).len(), 1);
        assert!(patch(Admission::ReplicasMutated, &json!({"spec": {"replicas": 30}})).is_empty());
    }
}
