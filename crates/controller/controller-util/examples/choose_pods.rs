//! Ranks pods for deletion and prints the reasons.
//!
//! `cargo run -p kcm-controller-util --example choose_pods`

use std::{error::Error, sync::Arc};

use kcm_api::{Pod, PodDecoder};
use kcm_clock::{Clock, RealClock};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_controller_util::{
    index::pods_of,
    pod_indexers,
    ranking::{NodeCounts, Ranking, rank_for_deletion},
};
use kcm_informer::StoreWriter;
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    // A cache, as an informer would fill it.
    let mut cache = StoreWriter::new(pod_indexers());
    let pods =
        [("alone", "node-1", "Running"), ("crowded", "node-2", "Running"), ("starting", "node-2", "Pending")];
    for (name, node, phase) in pods {
        cache.apply(Arc::new(pod(name, node, phase)?));
    }

    let owner = OwnerIdentity {
        api_version: "example.org/v1".into(),
        kind: "PodSet".into(),
        namespace: "default".into(),
        name: "set".into(),
        uid: "set-uid".into(),
        deleting: false,
    };
    let owned: Vec<_> = pods_of(&cache.reader().read(), &owner).cloned().collect();
    let related = NodeCounts::of(&owned);
    for choice in rank_for_deletion(&owned, 2, &Ranking::new(&related, RealClock::new().now())) {
        println!("{} goes: {}", choice.pod.key, choice.criterion);
    }
    Ok(())
}

fn pod(name: &str, node: &str, phase: &str) -> Result<Pod, Box<dyn Error>> {
    let owner = json!({"apiVersion": "example.org/v1", "kind": "PodSet", "name": "set", "uid": "set-uid", "controller": true});
    let object = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "ownerReferences": [owner]},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    });
    Ok(PodDecoder::default().decode_value(&object)?)
}
