//! Heap per cached object. Alone in its binary, because it counts what the process allocates.

#![allow(clippy::unwrap_used, reason = "a test fails that way")]

use std::{alloc::System, collections::HashSet, sync::Arc};

use kcm_api::{PodDecoder, ReplicaSet, protobuf::open_envelope};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const POD_3K: &str = include_str!("../testdata/pod-3k.json");
const POD_12K: &str = include_str!("../testdata/pod-12k.json");

/// Decodes all inputs. Returns the objects and the bytes on the heap for each.
fn decoded<I, T>(inputs: &[I], decode: impl Fn(&I) -> T) -> (Vec<T>, usize) {
    let mut objects = Vec::with_capacity(inputs.len());
    let region = Region::new(ALLOCATOR);
    objects.extend(inputs.iter().map(decode));
    let change = region.change();
    let each = (change.bytes_allocated - change.bytes_deallocated) / inputs.len();
    (objects, each)
}

fn pod_takes_less_than_400_bytes() {
    const PODS: usize = 1_000;
    for json in [POD_3K, POD_12K] {
        let decoder = PodDecoder::default();
        // Ten ReplicaSets with 100 pods each.
        let texts: Vec<String> = (0..PODS)
            .map(|n| {
                json.replace("x7k2p", &format!("{n:05}"))
                    .replace("5d4f8c7b9d", &format!("5d4f8c{:04}", n / 100))
                    .replace("0e1f2a3b4c5d", &format!("0e1f2a{:06}", n / 100))
                    .replace("3f1f0e6f1c11", &format!("3f1f0e{n:06}"))
            })
            .collect();
        let (pods, each) = decoded(&texts, |text| Arc::new(decoder.decode(text).unwrap()));
        assert_eq!(pods.iter().map(|pod| &pod.key).collect::<HashSet<_>>().len(), PODS);
        // Lower bound of the parts that are not shared: checks that allocations are counted.
        assert!((200..400).contains(&each), "{each} bytes a pod");
    }
}

/// ReplicaSet of revision `n` of a Deployment: another image and another hash.
fn revision(n: usize) -> Value {
    let pod: Value = serde_json::from_str(POD_12K).unwrap();
    let mut labels = pod["metadata"]["labels"].clone();
    labels["pod-template-hash"] = format!("5d4f8c{n:04}").into();
    let annotations = &pod["metadata"]["annotations"];
    let mut template =
        json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": pod["spec"]});
    template["spec"]["containers"][0]["image"] = format!("registry.example/shop/web:1.{n}").into();
    json!({
        "metadata": {
            "name": format!("web-5d4f8c{n:04}"), "namespace": "shop", "generation": 3, "labels": labels,
            "uid": format!("0b1c2d3e-0000-4000-8000-{n:012}"), "resourceVersion": format!("{}", 100_000 + n),
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "annotations": {
                "deployment.kubernetes.io/revision": n.to_string(), "deployment.kubernetes.io/desired-replicas": "10",
                "deployment.kubernetes.io/max-replicas": "13",
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "controller": true,
                "uid": "0b1c2d3e-0000-4000-8000-000000000000", "blockOwnerDeletion": true,
            }],
        },
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
        "status": {"replicas": 0, "observedGeneration": 3},
    })
}

fn revisions_of_a_deployment_share_their_template() {
    let texts: Vec<String> = (0..10).map(|n| revision(n).to_string()).collect();
    let from_json = |text: &String| serde_json::from_str::<ReplicaSet>(text).unwrap();
    let messages: Vec<Vec<u8>> =
        texts.iter().map(|text| from_json(text).encode_protobuf().unwrap()).collect();
    let from_protobuf =
        |object: &Vec<u8>| ReplicaSet::decode_protobuf(open_envelope(object).unwrap()).unwrap();

    let (sets, each) = decoded(&messages, |object| Arc::new(from_protobuf(object)));
    assert!((3_000..4_000).contains(&each), "{each} bytes a ReplicaSet");
    copies_share_the_template(&sets);
    for (set, object) in sets.iter().zip(&messages) {
        assert_eq!(&set.encode_protobuf().unwrap(), object);
    }

    let (sets, each) = decoded(&texts, |text| Arc::new(from_json(text)));
    assert!((3_000..5_000).contains(&each), "{each} bytes a ReplicaSet read from JSON");
    copies_share_the_template(&sets);
    for (set, text) in sets.iter().zip(&texts) {
        assert_eq!(serde_json::to_value(&**set).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }
}

fn copies_share_the_template(sets: &[Arc<ReplicaSet>]) {
    let (_, each) = decoded(sets, |set| {
        let template = set.spec.template.with_label("copy", Some("x")).unwrap();
        assert!(template.size() < 1_100, "{} bytes", template.size());
        template
    });
    assert!(each < 1_000, "{each} bytes a template");
}

#[test]
fn memory_of_cached_objects() {
    // In one test, because the allocator counts for the whole process.
    revisions_of_a_deployment_share_their_template();
    pod_takes_less_than_400_bytes();
}
