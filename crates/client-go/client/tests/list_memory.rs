//! Memory of an informer while it lists pods of 6 KB. A separate binary with one test, because the allocator counts
//! for the whole process.

#![allow(clippy::unwrap_used, reason = "a test fails that way")]

use std::{
    alloc::System,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use kcm_api::{Pod, protobuf::open_envelope};
use kcm_apiserver::protobuf::encode;
use kcm_client::{Body, ClientFactory, ClientOptions, ContentType, ListParams, RateLimit, UserAgent};
use kcm_clock::{SeededRandom, SimulatedClock, Timestamp};
use kcm_informer::{InformerConfig, SharedInformer};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio_util::sync::CancellationToken;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Length of the pieces in which a body arrives, as the frames of HTTP/2.
const PIECE: usize = 16 << 10;

/// Maximum memory of a list besides the objects that are kept: an entry of the new table for each object, and the pieces
/// that have arrived.
const fn beside(pods: usize) -> usize {
    pods * 100 + (256 << 10)
}

/// Number in the template of a pod, and digit of its resource version.
const NUMBER: &[u8] = b"@@@@@@";
const GENERATION: &[u8] = b"@&";

fn heap() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Maximum of the heap at the samples.
#[derive(Default)]
struct Peak(AtomicUsize);

impl Peak {
    fn sample(&self) {
        self.0.fetch_max(heap(), Ordering::Relaxed);
    }

    fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

fn container(n: usize) -> Value {
    let env: Vec<_> =
        (0..13).map(|n| json!({"name": format!("SETTING_{n}"), "value": "some value"})).collect();
    json!({
        "name": format!("container-{n}"), "image": "registry.example/shop/web:1.2.3", "env": env,
        "imagePullPolicy": "IfNotPresent", "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "resources": {
            "limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"},
        },
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 5},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "volumeMounts": [{"name": "token", "readOnly": true, "mountPath": "/var/run/secrets"}],
    })
}

/// Entry of `managedFields` with the fields of two containers.
fn managed_by(manager: &str) -> Value {
    let fields = json!({
        ".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:terminationMessagePath": {},
        "f:resources": {
            ".": {}, "f:limits": {".": {}, "f:cpu": {}, "f:memory": {}},
            "f:requests": {".": {}, "f:cpu": {}, "f:memory": {}},
        },
        "f:env": {".": {}, "k:{\"name\":\"SETTING_0\"}": {".": {}, "f:name": {}, "f:value": {}}},
        "f:readinessProbe": {".": {}, "f:httpGet": {".": {}, "f:path": {}, "f:port": {}, "f:scheme": {}}},
    });
    let containers = json!({"k:{\"name\":\"container-0\"}": fields, "k:{\"name\":\"container-1\"}": fields});
    json!({
        "manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:containers": containers, "f:dnsPolicy": {}}},
    })
}

/// Template of a pod, as a kubelet leaves it.
fn pod() -> Value {
    let time = "2026-01-02T03:04:05Z";
    let condition = |type_: &str| json!({"type": type_, "status": "True", "lastTransitionTime": time});
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
    let digest = "0123456789abcdef".repeat(4);
    let status = |n: usize| {
        json!({
            "name": format!("container-{n}"), "image": "registry.example/shop/web:1.2.3", "ready": true,
            "imageID": format!("registry.example/shop/web@sha256:{digest}"), "restartCount": 0, "started": true,
            "containerID": format!("containerd://{digest}"), "state": {"running": {"startedAt": time}},
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-5f7c9d8b6-@@@@@@", "generateName": "web-5f7c9d8b6-", "namespace": "default",
            "uid": "0b1c2d3e-0000-4000-8000-000000@@@@@@", "resourceVersion": "1@&@@@@@@", "creationTimestamp": time,
            "labels": {"app": "web", "pod-template-hash": "5f7c9d8b6", "app.kubernetes.io/part-of": "shop"},
            "annotations": {"checksum/config": digest},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5f7c9d8b6", "controller": true,
                "uid": "0b1c2d3e-0000-4000-8000-000000000000", "blockOwnerDeletion": true,
            }],
            "managedFields": [managed_by("kube-controller-manager"), managed_by("kubelet")],
        },
        "spec": {
            "containers": [container(0), container(1)], "nodeName": "node-1", "restartPolicy": "Always",
            "serviceAccountName": "default", "schedulerName": "default-scheduler", "dnsPolicy": "ClusterFirst",
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.1", "hostIP": "10.1.0.1", "startTime": time,
            "conditions": conditions,
            "containerStatuses": [status(0), status(1)],
        },
    })
}

/// Server of pods. It produces its lists while they are read.
struct Server {
    pods: usize,
    is_protobuf: bool,
    /// `true` if the server supports `limit`.
    has_pages: bool,
    /// Pod in a list.
    template: Vec<u8>,
    /// Positions of [`NUMBER`] and [`GENERATION`].
    places: [Vec<usize>; 2],
    /// Part of the resource version of each pod.
    generation: AtomicUsize,
    peak: Peak,
}

impl Server {
    fn new(pods: usize, is_protobuf: bool, has_pages: bool) -> Arc<Self> {
        let pod = pod();
        assert!((5_800..6_600).contains(&pod.to_string().len()), "{} bytes", pod.to_string().len());
        let template = match is_protobuf {
            true => field(2, open_envelope(&encode(&pod).unwrap()).unwrap()),
            false => pod.to_string().into_bytes(),
        };
        let places = [NUMBER, GENERATION].map(|placeholder| {
            let starts = |at: &usize| template[*at..].starts_with(placeholder);
            (0..template.len()).filter(starts).collect()
        });
        let (generation, peak) = (AtomicUsize::new(1), Peak::default());
        Arc::new(Self { pods, is_protobuf, has_pages, template, places, generation, peak })
    }

    fn item(&self, n: usize) -> Vec<u8> {
        let (number, mut item) = (format!("{n:06}"), self.template.clone());
        let generation = format!("{:02}", self.generation.load(Ordering::Relaxed));
        for (places, value) in self.places.iter().zip([number, generation]) {
            for place in places {
                item[*place..place + value.len()].copy_from_slice(value.as_bytes());
            }
        }
        item
    }

    /// Parts of the list that `query` selects.
    fn list(self: Arc<Self>, query: &str) -> impl Iterator<Item = Vec<u8>> + Send + use<> {
        let value = |name: &str| {
            let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            value.map(|value| value.parse::<usize>().unwrap())
        };
        let start = value("continue").unwrap_or(0);
        let limit = value("limit").filter(|_| self.has_pages).unwrap_or(self.pods);
        let end = self.pods.min(start + limit);
        let next = if end < self.pods { end.to_string() } else { String::new() };
        let (first, last) = if self.is_protobuf {
            let metadata = field(1, &[field(2, b"90000000"), field(3, next.as_bytes())].concat());
            let kind = field(1, &[field(1, b"v1"), field(2, b"PodList")].concat());
            let length = varint(metadata.len() + (end - start) * self.template.len());
            let first = [b"k8s\0", &*kind, &[2 << 3 | 2], &length, &metadata].concat();
            (first, [field(3, b""), field(4, b"")].concat())
        } else {
            let metadata = json!({"resourceVersion": "90000000", "continue": next});
            let first = format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{metadata},"items":["#);
            (first.into_bytes(), b"]}\n".to_vec())
        };
        let items = (start..end).map(move |n| {
            let separator: &[u8] = if self.is_protobuf || n == start { b"" } else { b"," };
            [separator, &self.item(n)].concat()
        });
        [first].into_iter().chain(items).chain([last])
    }

    fn answer(self: Arc<Self>, request: &http::Request<Body>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let query = request.uri().query().unwrap_or_default();
        if query.contains("watch=true") {
            let none = stream::pending::<Result<Frame<Bytes>, Infallible>>();
            return Response::new(StreamBody::new(none).boxed_unsync());
        }
        let (mut parts, mut buffer) = (Arc::clone(&self).list(query), Vec::new());
        let pieces = std::iter::from_fn(move || {
            while buffer.len() < PIECE
                && let Some(part) = parts.next()
            {
                buffer.extend(part);
            }
            self.peak.sample();
            let piece: Vec<u8> = buffer.drain(..buffer.len().min(PIECE)).collect();
            (!piece.is_empty()).then(|| Ok(Frame::data(piece.into())))
        });
        Response::new(StreamBody::new(stream::iter(pieces)).boxed_unsync())
    }
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap());
    bytes
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2], &*varint(content.len()), content].concat()
}

fn source(server: &Arc<Server>) -> SharedInformer<Pod> {
    let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
    let content_type = if server.is_protobuf { ContentType::Protobuf } else { ContentType::Json };
    let options = ClientOptions::new(UserAgent::new("list-memory", "v1", "abc"), clock.clone());
    let handle = Arc::clone(server);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let answer = Arc::clone(&handle).answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let factory = ClientFactory::in_process(service, ClientOptions { content_type, ..options });
    let pods = factory.client("test", RateLimit::UNLIMITED).api::<Pod>();
    let source = pods.list_watch(ListParams::default());
    let sampled = Arc::clone(server);
    SharedInformer::new(InformerConfig {
        streaming_lists: false,
        // Called after an object was decoded.
        transform: Some(Arc::new(move |_| sampled.peak.sample())),
        ..InformerConfig::new("pods", source, clock, Arc::new(SeededRandom::new(1)))
    })
}

async fn check(pods: usize, is_protobuf: bool, has_pages: bool) {
    let server = Server::new(pods, is_protobuf, has_pages);
    let informer = source(&server);
    let before = heap();
    let stop = CancellationToken::new();
    let measure = async {
        informer.wait_for_sync(&stop).await;
        let first = server.peak.take();
        let kept = heap();
        assert_eq!(informer.store().len(), pods);

        let old = informer.store().list();
        informer.relist().await;
        let unchanged = server.peak.take();
        assert!(informer.store().list().iter().zip(&old).all(|(new, old)| Arc::ptr_eq(new, old)));
        drop(old);

        server.generation.store(2, Ordering::Relaxed);
        informer.relist().await;
        let changed = server.peak.take();
        assert_eq!(informer.store().list()[7].resource_version.as_ref(), "102000007");
        stop.cancel();

        let kib = |bytes: usize| bytes >> 10;
        let beside = [first.saturating_sub(kept), unchanged - kept, changed - kept - (kept - before)];
        println!(
            "{pods} pods, protobuf: {is_protobuf}, pages: {has_pages}: {} KiB are kept. Besides: first list {} KiB, \
             relist without changes {} KiB, relist with changes and beside the old state {} KiB",
            kib(kept - before),
            kib(beside[0]),
            kib(beside[1]),
            kib(beside[2]),
        );
        beside
    };
    let (_, measured) = tokio::join!(informer.run(stop.clone()), measure);
    assert!(measured.iter().all(|measured| *measured < beside(pods)), "{measured:?} of {}", beside(pods));
}

/// Debug builds decode JSON slowly.
#[tokio::test(start_paused = true)]
async fn lists_need_memory_for_what_is_kept_and_a_page() {
    for has_pages in [true, false] {
        check(10_000, true, has_pages).await;
        check(1_000, false, has_pages).await;
    }
}
