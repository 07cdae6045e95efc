//! Two managers with one lease in simulated time: the API server's record of their requests.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test fails that way")]

mod connection;
mod failures;
mod freshness;
pub mod world;

use std::{ops::RangeInclusive, time::Duration};

use connection::State;
use kcm_apiserver::Resource;
use kcm_client::RateLimit;
use kcm_controller_manager::RunError;
use kcm_sandbox::KubeletConfig;
use world::{LEASE_DURATION, World};

/// Time from the end of a leader until the standby acquires the lease.
///
/// The standby waits for the lease duration of 15 s from its last observation of a renewal. The last renewal was up to 2 s
/// before the end of the leader, so the minimum is 13 s. The standby observes a renewal and the expiry at a retry, up to 2.2
/// retry periods (4.4 s) late.
const TAKEOVER: RangeInclusive<Duration> = Duration::from_secs(13)..=Duration::from_millis(19_450);

/// Tolerance for the order in which tasks run. Requests take no simulated time.
const SLACK: Duration = Duration::from_millis(50);

/// Pods with a delay, so that a rollout takes some time.
fn slow_pods() -> KubeletConfig {
    let five_seconds = Duration::from_secs(5);
    KubeletConfig { pod_ready_delay: five_seconds, pod_stop_delay: five_seconds }
}

/// A leader, a standby, and a Deployment of ten pods in the middle of a rollout.
async fn mid_rollout() -> (World, world::Running, world::Running) {
    let world = World::new(slow_pods());
    let leader = world.start("manager-a");
    world.until_led_by("manager-a").await;
    let standby = world.start("manager-b");
    world.deploy("web", 10);
    world.until_rolled_out("web").await;
    world.set_image("web", "app:2");
    world.sleep(6).await;
    assert!(!world.is_rolled_out("web"));
    assert_eq!(world.list(Resource::REPLICA_SETS).len(), 2);
    (world, leader, standby)
}

/// Waits for the end of the rollout, and asserts that no extra pods were created or deleted.
async fn assert_rollout_completes_without_extra_pods(world: &World) {
    world.until_rolled_out("web").await;
    world.sleep(60).await;
    world.assert_single_writer();
    assert_eq!(world.count("create", "replicasets"), 2);
    assert_eq!(world.list(Resource::REPLICA_SETS).len(), 2);
    // Ten pods of each template. Each pod of the first template is deleted once.
    assert_eq!(world.count("create", "pods"), 20);
    assert_eq!(world.count("delete", "pods"), 10);
    assert_eq!(world.list(Resource::PODS).len(), 10);
}

/// Time between the last write of the first leader and the first write of the second.
fn gap(world: &World) -> Duration {
    let writes = world.writes();
    let first = writes.iter().position(|entry| entry.manager == "manager-b").unwrap();
    writes[first].at - writes[first - 1].at
}

#[tokio::test(start_paused = true)]
async fn standby_only_reads() {
    let (world, leader, standby) = mid_rollout().await;
    let standby_requests: Vec<_> =
        world.trail.lock().iter().filter(|entry| entry.manager == "manager-b").cloned().collect();
    assert!(
        standby_requests.iter().all(|entry| matches!(entry.verb, "get" | "list" | "watch")),
        "{standby_requests:?}"
    );
    for resource in ["pods", "replicasets", "deployments", "leases"] {
        assert!(
            standby_requests.iter().any(|entry| entry.verb == "watch" && entry.resource == resource),
            "{resource}"
        );
    }
    let before = world.trail.lock().len();
    standby.shutdown.cancel();
    standby.ended().await.unwrap();
    let after = world.trail.lock()[before..].iter().filter(|entry| entry.manager == "manager-b").count();
    assert_eq!(after, 0, "no lease to release");
    leader.shutdown.cancel();
    leader.ended().await.unwrap();
    assert_eq!(world.leader(), "");
}

#[tokio::test(start_paused = true)]
async fn shutdown_releases_the_lease() {
    let (world, leader, standby) = mid_rollout().await;
    leader.shutdown.cancel();
    let took = world.until_led_by("manager-b").await;
    println!("SIGTERM: the lease changed hands in {took:?}");
    assert!(took <= Duration::from_millis(100), "{took:?}");
    leader.ended().await.unwrap();
    world.deploy("api", 1);
    let took = world.until("the new leader writes", |world| {
        world.writes().iter().any(|entry| entry.manager == "manager-b")
    });
    println!("SIGTERM: and the new leader wrote {:?} later", took.await);
    assert!(gap(&world) < Duration::from_secs(1), "{:?}", gap(&world));
    world.until_rolled_out("api").await;
    world.until_rolled_out("web").await;
    world.assert_single_writer();
    standby.shutdown.cancel();
    standby.ended().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn repeated_takeovers_create_no_extra_pods() {
    let (world, leader, standby) = mid_rollout().await;
    leader.shutdown.cancel();
    leader.ended().await.unwrap();
    world.until_led_by("manager-b").await;
    let leader = world.start("manager-a");
    world.sleep(3).await;
    assert!(!world.is_rolled_out("web"));
    standby.shutdown.cancel();
    standby.ended().await.unwrap();
    world.until_led_by("manager-a").await;
    assert_rollout_completes_without_extra_pods(&world).await;
    leader.shutdown.cancel();
    leader.ended().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn killed_leader_is_replaced_when_its_lease_expires() {
    let (world, leader, _standby) = mid_rollout().await;
    leader.kill();
    let took = world.until_led_by("manager-b").await;
    println!("kill -9: the lease changed hands in {took:?}");
    assert!(TAKEOVER.contains(&took), "{took:?}");
    assert_rollout_completes_without_extra_pods(&world).await;
}

#[tokio::test(start_paused = true)]
async fn stopped_leader_writes_nothing_after_losing_the_lease() {
    let (world, leader, _standby) = mid_rollout().await;
    leader.switch.set(State::Stopped);
    let took = world.until_led_by("manager-b").await;
    println!("SIGSTOP: the lease changed hands in {took:?}");
    assert!(TAKEOVER.contains(&took), "{took:?}");
    world.sleep(1).await;
    assert!(leader.is_running());
    let before = world.trail.lock().len();
    leader.switch.set(State::Up);
    let error = leader.ended().await.unwrap_err();
    assert!(matches!(error, RunError::LeaseLost(_)), "{error}");
    assert!(error.to_string().starts_with("leaderelection lost/stopped: "), "{error}");
    world.sleep(5).await;
    let after = world.trail.lock()[before..].to_vec();
    assert!(!after.iter().any(|entry| entry.manager == "manager-a" && entry.is_of_leader()), "{after:?}");
    assert_rollout_completes_without_extra_pods(&world).await;
}

#[tokio::test(start_paused = true)]
async fn stopped_leader_drops_throttled_writes() {
    let world = World::new(slow_pods());
    let leader = world.start_with("manager-a", RateLimit { qps: 2.0, burst: 1 }, None);
    world.until_led_by("manager-a").await;
    let _standby = world.start("manager-b");
    world.deploy("web", 10);
    world.sleep(3).await;
    let created = world.count("create", "pods");
    assert!((1..10).contains(&created), "{created}");
    leader.switch.set(State::Stopped);
    world.until_led_by("manager-b").await;
    world.until_rolled_out("web").await;
    leader.switch.set(State::Up);
    assert!(matches!(leader.ended().await, Err(RunError::LeaseLost(_))));
    world.sleep(60).await;
    world.assert_single_writer();
    assert_eq!((world.count("create", "replicasets"), world.count("create", "pods")), (1, 10));
}

#[tokio::test(start_paused = true)]
async fn briefly_stopped_leader_keeps_the_lease() {
    let (world, leader, _standby) = mid_rollout().await;
    leader.switch.set(State::Stopped);
    world.sleep(7).await;
    leader.switch.set(State::Up);
    assert_rollout_completes_without_extra_pods(&world).await;
    assert_eq!(world.leader(), "manager-a");
}

#[tokio::test(start_paused = true)]
async fn clock_jumps_have_no_effect() {
    const HOUR: i64 = 60 * 60;
    let (world, leader, standby) = mid_rollout().await;
    for (leaders, standbys) in [(HOUR, -HOUR), (-24 * HOUR, 24 * HOUR), (0, HOUR), (HOUR, 0), (-HOUR, -HOUR)]
    {
        leader.switch.set_time_of_day(leaders);
        standby.switch.set_time_of_day(standbys);
        world.sleep(5).await;
        assert_eq!(world.leader(), "manager-a");
    }
    assert_rollout_completes_without_extra_pods(&world).await;
    assert_eq!(world.leader(), "manager-a");
    assert!(leader.is_running() && standby.is_running());
}

#[tokio::test(start_paused = true)]
async fn disconnected_leader_exits_before_the_takeover() {
    let (world, leader, _standby) = mid_rollout().await;
    leader.switch.set(State::Cut);
    let cut = world.now();
    let error = leader.ended().await.unwrap_err();
    assert!(matches!(error, RunError::LeaseLost(_)), "{error}");
    let ended = world.now() - cut;
    assert!((LEASE_DURATION - Duration::from_secs(2)..=LEASE_DURATION + SLACK).contains(&ended), "{ended:?}");
    assert_eq!(world.leader(), "manager-a", "the Lease still names it");
    world.until_led_by("manager-b").await;
    let took = world.now() - cut;
    println!("cut off: the leader ended after {ended:?}, the lease changed hands in {took:?}");
    assert!(TAKEOVER.contains(&took), "{took:?}");
    assert_rollout_completes_without_extra_pods(&world).await;
}

#[tokio::test(start_paused = true)]
async fn standby_with_dead_watches_relists_at_takeover() {
    let world = World::new(slow_pods());
    let leader = world.start("manager-a");
    world.until_led_by("manager-a").await;
    let standby = world.start("manager-b");
    world.sleep(5).await;
    // The watches deliver no more events, and no errors.
    standby.switch.freeze_streams();
    world.deploy("web", 10);
    world.sleep(1).await;
    assert_eq!(world.count("create", "pods"), 10);
    leader.kill();
    world.until_led_by("manager-b").await;
    world.until_rolled_out("web").await;
    world.sleep(60).await;
    world.assert_single_writer();
    assert_eq!((world.count("create", "replicasets"), world.count("create", "pods")), (1, 10));
    assert_eq!(world.count("delete", "pods"), 0);
}
