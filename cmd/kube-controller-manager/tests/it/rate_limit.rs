//! Statuses while the default rate limit is exhausted.

use std::{collections::BTreeMap, time::Duration};

use kcm_apiserver::{Object, Resource};
use kcm_client::RateLimit;
use kcm_sandbox::KubeletConfig;
use serde_json::Value;

use crate::takeover::world::World;

/// Interval of the observations.
const STEP: Duration = Duration::from_millis(50);

/// Numbers of available pods of a ReplicaSet since the last one that its status reported or exceeded.
#[derive(Default)]
struct Availability {
    /// Times since which there are fewer available pods than this.
    below: BTreeMap<u64, Duration>,
}

impl Availability {
    /// Returns the time for which the status has reported more pods than are available.
    fn lag(&mut self, available: u64, reported: u64, now: Duration) -> Duration {
        self.below.retain(|count, _| *count > available);
        for count in available + 1..=reported {
            self.below.entry(count).or_insert(now);
        }
        self.below.get(&reported).map_or(Duration::ZERO, |since| now - *since)
    }
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn is_available(pod: &Object) -> bool {
    let value = pod.value();
    let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    value["metadata"]["deletionTimestamp"].is_null()
        && value["status"]["conditions"].as_array().into_iter().flatten().any(is_ready)
}

/// Returns the longest time for which the status of a ReplicaSet reported pods that were not available, until `condition`.
async fn longest_lag(world: &World, condition: impl Fn(&World) -> bool) -> Duration {
    let mut longest = Duration::ZERO;
    let mut sets: BTreeMap<String, Availability> = BTreeMap::new();
    while !condition(world) {
        let mut available: BTreeMap<String, u64> = BTreeMap::new();
        for pod in world.list(Resource::PODS).iter().filter(|pod| is_available(pod)) {
            let owner = pod.value()["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or_default();
            *available.entry(owner.to_owned()).or_default() += 1;
        }
        for set in world.list(Resource::REPLICA_SETS) {
            let name = set.value()["metadata"]["name"].as_str().unwrap_or_default();
            let available = available.get(name).copied().unwrap_or(0);
            let reported = count(&set.value()["status"]["availableReplicas"]);
            longest =
                longest.max(sets.entry(name.to_owned()).or_default().lag(available, reported, world.now()));
        }
        world.clock.sleep(STEP).await;
    }
    longest
}

/// 20 Deployments get a new image at once. With upstream's manager, the status of a ReplicaSet reports pods for up to 4.9 s after
/// their deletion.
#[tokio::test(start_paused = true)]
async fn status_that_reports_fewer_pods_is_written_first() {
    let one_second = Duration::from_secs(1);
    let world = World::new(KubeletConfig { pod_ready_delay: one_second, pod_stop_delay: one_second });
    let _manager = world.start_with("manager-a", RateLimit::DEFAULT, None);
    world.until_led_by("manager-a").await;
    let names: Vec<_> = (0..20).map(|number| format!("web-{number}")).collect();
    names.iter().for_each(|name| world.deploy(name, 5));
    // The last events are written later.
    world.sleep(120).await;
    names.iter().for_each(|name| world.set_image(name, "app:2"));
    let is_complete = |world: &World| names.iter().all(|name| world.is_rolled_out(name));
    let lag = longest_lag(&world, is_complete).await;
    assert!(lag < Duration::from_secs(3), "{lag:?}");
}
