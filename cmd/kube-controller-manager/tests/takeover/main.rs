//! Two managers and one lease: who writes when, in simulated time, as the API server saw it.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test fails that way")]

mod freshness;
mod line;
mod trouble;
mod world;

use std::{ops::RangeInclusive, time::Duration};

use kcm_apiserver::Resource;
use kcm_client::RateLimit;
use kcm_controller_manager::RunError;
use kcm_sandbox::KubeletConfig;
use line::State;
use world::{RENEW_DEADLINE, World};

/// How long after a leader's last renewal another leads: the lease's duration, counted from when the other saw that
/// renewal, which is at its next look, up to 2.2 retry periods later. The leader may have renewed two seconds ago.
const LEASE: RangeInclusive<Duration> = Duration::from_secs(13)..=Duration::from_millis(19_450);

/// How much sooner or later than by the book something may be: answers take no time here, but tasks take turns.
const SLACK: Duration = Duration::from_millis(50);

/// Pods take a while, so that a rollout is under way for a while.
fn slow_pods() -> KubeletConfig {
    let five_seconds = Duration::from_secs(5);
    KubeletConfig { pod_ready_delay: five_seconds, pod_stop_delay: five_seconds }
}

/// One that leads, one that stands by, and a Deployment of ten pods in the middle of a rollout.
async fn in_the_middle_of_a_rollout() -> (World, world::Running, world::Running) {
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

/// What had begun has come to its end, and nothing more than that was done.
async fn assert_rollout_ends_as_if_nothing_had_happened(world: &World) {
    world.until_rolled_out("web").await;
    world.sleep(60).await;
    world.assert_never_two_writers();
    assert_eq!(world.count("create", "replicasets"), 2);
    assert_eq!(world.list(Resource::REPLICA_SETS).len(), 2);
    // Ten of the first template, ten of the second; and each of the first is deleted once.
    assert_eq!(world.count("create", "pods"), 20);
    assert_eq!(world.count("delete", "pods"), 10);
    assert_eq!(world.list(Resource::PODS).len(), 10);
}

/// From the last write of one to the first of the other.
fn gap(world: &World) -> Duration {
    let writes = world.writes();
    let first = writes.iter().position(|entry| entry.manager == "manager-b").unwrap();
    writes[first].at - writes[first - 1].at
}

#[tokio::test(start_paused = true)]
async fn standby_reads_everything_and_writes_nothing() {
    let (world, leader, standby) = in_the_middle_of_a_rollout().await;
    let of_standby: Vec<_> =
        world.trail.lock().iter().filter(|entry| entry.manager == "manager-b").cloned().collect();
    assert!(of_standby.iter().all(|entry| matches!(entry.verb, "get" | "list" | "watch")), "{of_standby:?}");
    for resource in ["pods", "replicasets", "deployments", "leases"] {
        assert!(
            of_standby.iter().any(|entry| entry.verb == "watch" && entry.resource == resource),
            "{resource}"
        );
    }
    let before = world.trail.lock().len();
    standby.shutdown.cancel();
    standby.ended().await.unwrap();
    let after = world.trail.lock()[before..].iter().filter(|entry| entry.manager == "manager-b").count();
    assert_eq!(after, 0, "it had nothing to give back");
    leader.shutdown.cancel();
    leader.ended().await.unwrap();
    assert_eq!(world.leader(), "");
}

#[tokio::test(start_paused = true)]
async fn leader_told_to_stop_hands_over_at_once() {
    let (world, leader, standby) = in_the_middle_of_a_rollout().await;
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
    world.assert_never_two_writers();
    standby.shutdown.cancel();
    standby.ended().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn rollout_goes_to_and_fro_between_managers_without_a_pod_too_many() {
    let (world, leader, standby) = in_the_middle_of_a_rollout().await;
    leader.shutdown.cancel();
    leader.ended().await.unwrap();
    world.until_led_by("manager-b").await;
    let leader = world.start("manager-a");
    world.sleep(3).await;
    assert!(!world.is_rolled_out("web"));
    standby.shutdown.cancel();
    standby.ended().await.unwrap();
    world.until_led_by("manager-a").await;
    assert_rollout_ends_as_if_nothing_had_happened(&world).await;
    leader.shutdown.cancel();
    leader.ended().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn leader_that_is_killed_is_replaced_when_its_lease_runs_out() {
    let (world, leader, _standby) = in_the_middle_of_a_rollout().await;
    leader.kill();
    let took = world.until_led_by("manager-b").await;
    println!("kill -9: the lease changed hands in {took:?}");
    // It had renewed within the last two seconds.
    assert!(LEASE.contains(&took), "{took:?}");
    assert_rollout_ends_as_if_nothing_had_happened(&world).await;
}

#[tokio::test(start_paused = true)]
async fn leader_that_is_stopped_and_wakes_when_another_leads_writes_nothing_more() {
    let (world, leader, _standby) = in_the_middle_of_a_rollout().await;
    leader.switch.set(State::Stopped);
    let took = world.until_led_by("manager-b").await;
    println!("SIGSTOP: the lease changed hands in {took:?}");
    assert!(LEASE.contains(&took), "{took:?}");
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
    assert_rollout_ends_as_if_nothing_had_happened(&world).await;
}

#[tokio::test(start_paused = true)]
async fn leader_that_is_stopped_with_writes_in_the_queue_for_the_rate_limit_does_not_send_them_when_it_wakes()
{
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
    world.assert_never_two_writers();
    assert_eq!((world.count("create", "replicasets"), world.count("create", "pods")), (1, 10));
}

#[tokio::test(start_paused = true)]
async fn leader_that_is_stopped_briefly_goes_on_leading() {
    let (world, leader, _standby) = in_the_middle_of_a_rollout().await;
    leader.switch.set(State::Stopped);
    world.sleep(7).await;
    leader.switch.set(State::Up);
    assert_rollout_ends_as_if_nothing_had_happened(&world).await;
    assert_eq!(world.leader(), "manager-a");
}

#[tokio::test(start_paused = true)]
async fn time_of_day_that_jumps_moves_neither_the_lease_nor_a_pod() {
    const HOUR: i64 = 60 * 60;
    let (world, leader, standby) = in_the_middle_of_a_rollout().await;
    for (leaders, standbys) in [(HOUR, -HOUR), (-24 * HOUR, 24 * HOUR), (0, HOUR), (HOUR, 0), (-HOUR, -HOUR)]
    {
        leader.switch.set_time_of_day(leaders);
        standby.switch.set_time_of_day(standbys);
        world.sleep(5).await;
        assert_eq!(world.leader(), "manager-a");
    }
    assert_rollout_ends_as_if_nothing_had_happened(&world).await;
    assert_eq!(world.leader(), "manager-a");
    assert!(leader.is_running() && standby.is_running());
}

#[tokio::test(start_paused = true)]
async fn leader_that_is_cut_off_ends_before_another_leads() {
    let (world, leader, _standby) = in_the_middle_of_a_rollout().await;
    leader.switch.set(State::Cut);
    let cut = world.now();
    let error = leader.ended().await.unwrap_err();
    assert!(matches!(error, RunError::LeaseLost(_)), "{error}");
    let ended = world.now() - cut;
    assert!((RENEW_DEADLINE - Duration::from_secs(2)..=RENEW_DEADLINE + SLACK).contains(&ended), "{ended:?}");
    assert_eq!(world.leader(), "manager-a", "it is still written there");
    world.until_led_by("manager-b").await;
    let took = world.now() - cut;
    println!("cut off: the leader ended after {ended:?}, the lease changed hands in {took:?}");
    assert!(LEASE.contains(&took), "{took:?}");
    assert_rollout_ends_as_if_nothing_had_happened(&world).await;
}

#[tokio::test(start_paused = true)]
async fn standby_whose_watches_are_dead_looks_again_before_it_acts() {
    let world = World::new(slow_pods());
    let leader = world.start("manager-a");
    world.until_led_by("manager-a").await;
    let standby = world.start("manager-b");
    world.sleep(5).await;
    // From here on it does not see what happens, and does not know that.
    standby.switch.let_streams_die();
    world.deploy("web", 10);
    world.sleep(1).await;
    assert_eq!(world.count("create", "pods"), 10);
    leader.kill();
    world.until_led_by("manager-b").await;
    world.until_rolled_out("web").await;
    world.sleep(60).await;
    world.assert_never_two_writers();
    assert_eq!((world.count("create", "replicasets"), world.count("create", "pods")), (1, 10));
    assert_eq!(world.count("delete", "pods"), 0);
}
