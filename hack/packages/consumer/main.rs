//! Program outside the workspace: an informer of ConfigMaps fills a work queue.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use k8s_openapi::api::core::v1::ConfigMap;
use kcm_client::{Body, ClientFactory, ClientOptions, ListParams, RateLimit, UserAgent};
use kcm_clock::{Clock, RealClock, SeededRandom};
use kcm_informer::{Deleted, EventHandler, InformerConfig, Object, ObjectKey, SharedInformer};
use kcm_workqueue::{QueueConfig, RateLimitingQueue};
use tokio_util::sync::CancellationToken;

const LIST: &str = r#"{
    "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"},
    "items": [{"metadata": {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "5"}}]
}"#;

/// An API server with one ConfigMap, and without watches.
async fn serve(request: Request<Body>) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let mut response = Response::new(Full::from(if is_watch { "" } else { LIST }));
    if is_watch {
        *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
    }
    Ok(response)
}

struct Enqueue(RateLimitingQueue<ObjectKey>);

impl EventHandler<ConfigMap> for Enqueue {
    fn on_add(&self, object: &Arc<ConfigMap>, _initial: bool) {
        self.0.add(object.key());
    }

    fn on_update(&self, _old: &Arc<ConfigMap>, new: &Arc<ConfigMap>) {
        self.0.add(new.key());
    }

    fn on_delete(&self, deleted: &Deleted<ConfigMap>) {
        self.0.add(deleted.object().key());
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let options = ClientOptions::new(UserAgent::new("consumer", "v0.1.0", ""), Arc::clone(&clock));
    let factory = ClientFactory::in_process(tower::service_fn(serve), options);
    let source = factory.client("consumer", RateLimit::DEFAULT).api::<ConfigMap>().list_watch(ListParams::default());
    let config = InformerConfig {
        streaming_lists: false,
        ..InformerConfig::new("configmaps", source, Arc::clone(&clock), Arc::new(SeededRandom::new(1)))
    };
    let informer = SharedInformer::new(config);
    let queue = RateLimitingQueue::new(QueueConfig::new("configmaps", clock));
    informer.add_handler(Arc::new(Enqueue(queue.clone())));
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { informer.run(stop).await }
    });
    let key = queue.get().await.expect("the queue is open");
    println!("synced {}", *key);
    stop.cancel();
    running.await.expect("the informer does not panic");
}
