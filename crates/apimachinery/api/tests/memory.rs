//! A cached pod is to stay below 1 KB of heap. Alone in its binary, because it counts what the process allocates.

use std::{alloc::System, sync::Arc};

use kcm_api::PodDecoder;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn pod_takes_less_than_400_bytes() {
    const PODS: usize = 1_000;
    for json in [include_str!("../testdata/pod-3k.json"), include_str!("../testdata/pod-12k.json")] {
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
        let mut pods = Vec::with_capacity(PODS);
        let region = Region::new(ALLOCATOR);
        pods.extend(texts.iter().map(|text| Arc::new(decoder.decode(text).unwrap())));
        let change = region.change();
        let each = (change.bytes_allocated - change.bytes_deallocated) / PODS;
        assert_eq!(pods.iter().map(|pod| &pod.key).collect::<std::collections::HashSet<_>>().len(), PODS);
        // Lower bound of the parts that are not shared: checks that allocations are counted.
        assert!((200..400).contains(&each), "{each} bytes a pod");
    }
}
