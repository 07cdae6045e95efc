use std::{
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use kcm_api::error::reason;
use kcm_clock::{Random, SeededRandom, is_generated_name};
use kcm_runtime::Requeue;
use kcm_testkit::CapturedLog;
use parking_lot::Mutex;
use serde_json::json;
use tracing::level_filters::LevelFilter;

use super::*;
use crate::testing::{
    World, changed_replica_set, going, owned_by, pod, refusal, relabelled, replica_set, summary,
};

fn lost() -> ApiError {
    ApiError::Transport("POST: connection broken".into())
}

fn already_exists() -> ApiError {
    ApiError::status(409, reason::ALREADY_EXISTS, "the pod already exists")
}

/// A pod of the ReplicaSet, of a version that the caches do not have.
fn created(name: &str) -> Pod {
    Pod { resource_version: "1000007".into(), ..owned_by(&replica_set("web", 1), pod(name)) }
}

/// A ReplicaSet with one replica after a sync in which the create failed with `error`, and the name of that pod.
async fn failed(error: ApiError) -> (World, ObjectKey, String) {
    let mut world = World::new();
    let key = world.add_replica_set(&replica_set("web", 1));
    world.cluster.create_errors.lock().push_back(error);
    assert_eq!(sync(&world, &key).await.1, "create, status");
    assert_eq!(world.own_writes.expectations.get(&key), Some((0, 0)));
    let names = world.cluster.take_names();
    assert_eq!(pending(&world), names);
    world.events.take();
    world.catch_up();
    (world, key, names[0].clone())
}

/// One sync: its error, or nothing, and its requests.
async fn sync(world: &World, key: &ObjectKey) -> (String, String) {
    let outcome = world.syncer.sync_replica_set(key).await;
    (outcome.map_or_else(|error| error.to_string(), |_| String::new()), summary(&world.cluster.take()))
}

fn pending(world: &World) -> Vec<String> {
    let owner = OwnerIdentity::new("apps/v1", "ReplicaSet", &replica_set("web", 1).metadata);
    let names = world.own_writes.names.pending(&owner.key(), &owner.uid);
    names.iter().map(|(name, _)| name.to_string()).collect()
}

#[tokio::test]
async fn pods_get_different_names_from_the_base_of_their_owner() {
    let mut world = World::new();
    let owner = format!("web-{}", "x".repeat(70));
    let key = world.add_replica_set(&replica_set(&owner, 500));
    assert_eq!(sync(&world, &key).await.0, "");
    let mut names = world.cluster.take_names();
    assert!(names.iter().all(|name| is_generated_name(name, &format!("{owner}-"))), "{names:?}");
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 500);
    assert!(pending(&world).is_empty());
}

/// Draws each number of another source twice.
#[derive(Debug)]
struct Twice(SeededRandom, Mutex<Option<u64>>);

impl Random for Twice {
    fn next_u64(&self) -> u64 {
        let mut last = self.1.lock();
        match last.take() {
            Some(number) => number,
            None => *last.insert(self.0.next_u64()),
        }
    }
}

/// The first pod is created before the second name is drawn, and is not in the cache.
#[tokio::test]
async fn name_of_a_pod_that_this_sync_has_created_is_not_drawn_again() {
    for is_repeated in [false, true] {
        let mut world = World::with_random(Arc::new(Twice(SeededRandom::new(1), Mutex::default())));
        let key = world.add_replica_set(&replica_set("web", if is_repeated { 1 } else { 2 }));
        if is_repeated {
            world.cluster.create_errors.lock().push_back(lost());
            sync(&world, &key).await;
            world.cluster.take_names();
            world.add_replica_set(&replica_set("web", 2));
            world.catch_up();
        }
        assert_eq!(sync(&world, &key).await, (String::new(), "create x2, status".to_owned()));
        let names = world.cluster.take_names();
        assert_ne!(names[0], names[1], "the first is a repetition: {is_repeated}");
    }
}

mod next_sync {
    use super::*;

    #[tokio::test]
    async fn repeats_the_name_unless_the_request_was_refused() {
        for error in [
            lost(),
            ApiError::Timeout("POST".to_owned()),
            ApiError::Decode("POST: not a pod".into()),
            ApiError::NotLeading("POST".to_owned()),
            ApiError::status(500, "InternalError", "failed calling webhook"),
            ApiError::status(504, reason::TIMEOUT, "etcd"),
            ApiError::status(429, reason::TOO_MANY_REQUESTS, "try again"),
            ApiError::status(409, reason::CONFLICT, "the quota was updated"),
            // An earlier attempt may have taken effect and used up the quota.
            refusal("exceeded quota").after_lost_attempt(),
        ] {
            let (world, key, name) = failed(error).await;
            assert_eq!(sync(&world, &key).await, (String::new(), "create, status".to_owned()));
            assert_eq!(world.cluster.take_names(), [name]);
            assert!(pending(&world).is_empty());
            assert_eq!(world.own_writes.expectations.get(&key), Some((1, 0)));
        }
    }

    #[tokio::test]
    async fn generates_another_name_if_the_request_was_refused() {
        for error in [
            refusal("names must end in a letter"),
            ApiError::status(422, reason::INVALID, "invalid name"),
            ApiError::NotSent("POST: connection refused".into()),
        ] {
            let mut world = World::new();
            let key = world.add_replica_set(&replica_set("web", 1));
            world.cluster.create_errors.lock().push_back(error);
            assert_eq!(sync(&world, &key).await.1, "create, status");
            assert!(pending(&world).is_empty());
            world.catch_up();
            assert_eq!(sync(&world, &key).await, (String::new(), "create, status".to_owned()));
            let names = world.cluster.take_names();
            assert_ne!(names[0], names[1]);
            assert_eq!(world.own_writes.expectations.get(&key), Some((1, 0)));
        }
    }

    #[tokio::test]
    async fn uses_pending_names_after_new_ones() {
        let (mut world, key, name) = failed(lost()).await;
        world.add_replica_set(&replica_set("web", 3));
        world.catch_up();
        assert_eq!(sync(&world, &key).await.0, "");
        let names = world.cluster.take_names();
        assert_eq!((names.len(), &names[2]), (3, &name));
    }

    /// A pending name takes the place of one pod, whatever becomes of it.
    #[tokio::test]
    async fn creates_all_other_pods_while_a_name_is_refused() {
        for error in [refusal("the address of this name is taken"), lost()] {
            let (mut world, key, name) = failed(lost()).await;
            world.cluster.name_errors.lock().insert(name.clone(), error.clone());
            world.add_replica_set(&replica_set("web", 10));
            world.catch_up();
            let (reported, requests) = sync(&world, &key).await;
            assert_eq!((reported, requests.as_str()), (error.to_string(), "create x10, status"));
            assert_eq!(world.own_writes.expectations.get(&key), Some((9, 0)));
            assert_eq!(pending(&world), [name]);
        }
    }

    /// Upstream: one request per sync, if all are refused.
    #[tokio::test]
    async fn sends_one_request_if_all_fail() {
        for error in [refusal("exceeded quota"), ApiError::status(500, "InternalError", "no webhook")] {
            let (mut world, key, _) = failed(lost()).await;
            world.add_replica_set(&replica_set("web", 10));
            *world.cluster.refuse_creates.lock() = Some((0, error.clone()));
            for round in 0..20 {
                world.catch_up();
                let (reported, requests) = sync(&world, &key).await;
                assert_eq!(reported, error.to_string());
                assert_eq!(requests.matches("create").count(), 1, "sync {round}: {requests}");
                assert!(!requests.contains("create x"), "sync {round}: {requests}");
            }
        }
    }

    /// Each sync sends one request. The name that always fails does not prevent the repetition of the other.
    #[tokio::test]
    async fn repeats_the_least_recently_requested_name_first() {
        let mut world = World::new();
        let key = world.add_replica_set(&replica_set("web", 2));
        world.cluster.create_errors.lock().extend([lost(), lost()]);
        for _ in 0..2 {
            sync(&world, &key).await;
            world.catch_up();
        }
        let names = world.cluster.take_names();
        assert_ne!(names[0], names[1]);
        world.cluster.name_errors.lock().insert(names[0].clone(), refusal("no"));
        for _ in 0..2 {
            sync(&world, &key).await;
            world.catch_up();
        }
        assert_eq!(world.cluster.take_names(), [&*names[0], &*names[1], &*names[0]]);
        assert_eq!(pending(&world), names[..1]);
    }

    #[tokio::test]
    async fn counts_the_pod_as_created_that_the_lost_request_made() {
        let (mut world, key, name) = failed(lost()).await;
        world.cluster.create_errors.lock().push_back(already_exists());
        world.cluster.found_pods.lock().push_back(Ok(Some(created(&name))));
        assert_eq!(sync(&world, &key).await, (String::new(), "create, find, status".to_owned()));
        assert_eq!(world.events.take(), [format!("Normal SuccessfulCreate Created pod: {name}")]);
        assert!(pending(&world).is_empty());
        // Its event may have been handled before this sync. The version of the pod is what the next sync waits for.
        assert_eq!(world.own_writes.expectations.get(&key), Some((0, 0)));
        let (error, requests) = sync(&world, &key).await;
        assert!(error.starts_with("read version: 1000000 is not as new as"), "{error}");
        assert_eq!(requests, "");
        world.add_pods([created(&name)]);
        assert!(!sync(&world, &key).await.1.contains("create"));
    }

    #[tokio::test]
    async fn creates_nothing_if_the_pod_has_appeared_in_the_cache() {
        let (world, key, name) = failed(lost()).await;
        let mut world = world;
        world.add_pods([created(&name)]);
        assert_eq!(sync(&world, &key).await, (String::new(), "status".to_owned()));
        assert!(pending(&world).is_empty());
    }

    #[tokio::test]
    async fn creates_nothing_if_fewer_pods_are_wanted_and_keeps_the_name() {
        let (mut world, key, name) = failed(lost()).await;
        world.add_replica_set(&replica_set("web", 0));
        world.catch_up();
        assert!(!sync(&world, &key).await.1.contains("create"));
        assert_eq!(pending(&world), std::slice::from_ref(&name));
        // The request is executed late: the pod is surplus.
        world.add_pods([created(&name)]);
        world.catch_up();
        assert!(sync(&world, &key).await.1.contains(&format!("delete {name}")));
        assert!(pending(&world).is_empty());
    }

    #[tokio::test]
    async fn of_another_owner_with_the_same_key_draws_another_name() {
        let (mut world, key, name) = failed(lost()).await;
        let change = json!({"metadata": {"uid": "other", "resourceVersion": "11"}});
        world.add_replica_set(&changed_replica_set("web", 1, &change));
        world.catch_up();
        assert_eq!(sync(&world, &key).await.0, "");
        assert_ne!(world.cluster.take_names(), [name]);
        assert!(pending(&world).is_empty());
    }

    #[tokio::test]
    async fn after_the_owner_was_deleted_drops_the_name() {
        let (mut world, key, _) = failed(lost()).await;
        world.replica_sets.remove(&key, None);
        assert_eq!(sync(&world, &key).await, (String::new(), String::new()));
        assert!(pending(&world).is_empty());
    }

    #[tokio::test]
    async fn deletes_pods_and_writes_the_status_while_a_name_is_pending() {
        let (mut world, key, _) = failed(lost()).await;
        world.add_replica_set(&replica_set("web", 1));
        world.add_pods(["a", "b"].map(created));
        world.catch_up();
        let (error, requests) = sync(&world, &key).await;
        assert_eq!(error, "");
        assert!(requests.starts_with("delete") && requests.ends_with("status"), "{requests}");
        assert_eq!(pending(&world).len(), 1);
    }

    #[tokio::test]
    async fn adopts_and_releases_pods_while_a_name_is_pending() {
        let (mut world, key, name) = failed(lost()).await;
        let owner = replica_set("web", 1);
        *world.cluster.live.lock() = Some(owner.clone());
        world.add_replica_set(&owner);
        world.add_pods([pod("orphan"), relabelled(owned_by(&owner, pod("relabelled")))]);
        world.catch_up();
        let adopted = "get, adopt orphan, release relabelled, status";
        assert_eq!(sync(&world, &key).await, (String::new(), adopted.to_owned()));
        assert_eq!(pending(&world), [name]);
    }
}

/// Seconds after the last failure after which a request is not executed any more.
const LIMIT: u64 = 75;

mod name_without_a_result {
    use super::*;

    async fn at(seconds: u64, error: ApiError) -> (World, ObjectKey, String) {
        let (mut world, key, name) = failed(error).await;
        world.clock.step(Duration::from_secs(seconds));
        world.catch_up();
        (world, key, name)
    }

    #[tokio::test]
    async fn is_repeated_until_the_limit() {
        let (world, key, name) = at(LIMIT - 1, lost()).await;
        assert_eq!(sync(&world, &key).await.1, "create, status");
        assert_eq!(world.cluster.take_names(), [name]);
    }

    #[tokio::test]
    async fn is_dropped_if_no_pod_has_it() {
        let (world, key, name) = at(LIMIT, lost()).await;
        assert_eq!(sync(&world, &key).await, (String::new(), "find, create, status".to_owned()));
        assert_ne!(world.cluster.take_names(), [name]);
        assert!(pending(&world).is_empty());
        assert_eq!(world.own_writes.expectations.get(&key), Some((1, 0)));
    }

    #[tokio::test]
    async fn is_kept_if_the_pod_cannot_be_read() {
        let (world, key, name) = at(LIMIT, lost()).await;
        world.cluster.found_pods.lock().push_back(Err(refusal("no list")));
        assert_eq!(sync(&world, &key).await, ("no list".to_owned(), "find, status".to_owned()));
        assert_eq!(pending(&world), [name]);
    }

    #[tokio::test]
    async fn belongs_to_the_pod_that_is_found() {
        let (world, key, name) = at(LIMIT, lost()).await;
        world.cluster.found_pods.lock().push_back(Ok(Some(created(&name))));
        assert_eq!(sync(&world, &key).await, (String::new(), "find, status".to_owned()));
        assert_eq!(world.events.take(), [format!("Normal SuccessfulCreate Created pod: {name}")]);
        assert!(pending(&world).is_empty());
        assert_eq!(world.own_writes.expectations.get(&key), Some((0, 0)));
    }

    /// Refusals prove nothing about the request before them, and do not extend the time.
    #[tokio::test]
    async fn is_dropped_although_it_was_refused_since() {
        let (mut world, key, name) = at(LIMIT - 1, lost()).await;
        world.cluster.create_errors.lock().push_back(refusal("the address of this name is taken"));
        assert_eq!(sync(&world, &key).await.1, "create, status");
        assert_eq!(pending(&world), [name]);
        world.clock.step(Duration::from_secs(1));
        world.catch_up();
        assert_eq!(sync(&world, &key).await, (String::new(), "find, create, status".to_owned()));
    }

    /// Syncs are started by events every 50 s, and no request has a result.
    #[tokio::test]
    async fn is_not_repeated_for_ever() {
        let (mut world, key, name) = failed(lost()).await;
        world.add_replica_set(&replica_set("web", 2));
        world.cluster.name_errors.lock().insert(name.clone(), lost());
        let mut requests = Vec::new();
        for _ in 0..14 {
            world.clock.step(Duration::from_secs(50));
            world.catch_up();
            let outcome = world.syncer.sync_replica_set(&key).await;
            let sent = summary(&world.cluster.take());
            match requests.len() {
                0..=10 => assert_eq!(outcome.unwrap_err().to_string(), lost().to_string()),
                // The condition keeps the error, and the next sync is that of the lookup.
                11 => {
                    assert_eq!(outcome.unwrap(), Requeue::After(Duration::from_secs(25)));
                    let written = world.cluster.take_statuses().pop().unwrap();
                    assert!(written.status.conditions[0].message.contains("connection broken"));
                }
                _ => assert_eq!(outcome.unwrap(), Requeue::Done),
            }
            requests.push(sent.replace(", status", "").replace("status", ""));
            if requests.len() == 1 {
                // The other pod exists.
                let other = world.cluster.take_names().into_iter().find(|other| *other != name);
                world.add_pods([created(&other.unwrap())]);
                world.own_writes.expectations.creation_observed(&key);
            }
        }
        let [once, none] = ["create", ""].map(str::to_owned);
        let mut expected = vec!["create x2".to_owned()];
        expected.extend(vec![once; 10]);
        expected.push(none.clone());
        expected.push("find, create".to_owned());
        expected.push(none);
        assert_eq!(requests, expected);
    }
}

mod existing_pod {
    use super::*;

    /// A sync in which the first create is refused because `found` has the name.
    async fn taken_by(
        found: impl Fn(&str) -> Option<Pod>,
    ) -> (World, ObjectKey, (String, String), Vec<String>) {
        let (world, key, name) = failed(lost()).await;
        world.cluster.create_errors.lock().push_back(already_exists());
        world.cluster.found_pods.lock().push_back(Ok(found(&name)));
        let outcome = sync(&world, &key).await;
        let mut names = world.cluster.take_names();
        assert_eq!(names.remove(0), name);
        names.push(name);
        (world, key, outcome, names)
    }

    #[tokio::test]
    async fn of_another_owner_or_of_none_or_being_deleted_leads_to_another_name() {
        let found: [fn(&str) -> Pod; 3] = [
            |name| relabelled(pod(name)),
            |name| owned_by(&replica_set("api", 1), pod(name)),
            |name| going(created(name)),
        ];
        for found in found {
            let (world, key, outcome, names) = taken_by(|name| Some(found(name))).await;
            assert_eq!(outcome, (String::new(), "create, find, create, status".to_owned()));
            assert_ne!(names[0], names[1]);
            assert!(pending(&world).is_empty());
            assert_eq!(world.own_writes.expectations.get(&key), Some((1, 0)));
        }
    }

    /// A webhook has removed the owner. The next sync adopts the pod.
    #[tokio::test]
    async fn without_an_owner_counts_as_created_if_it_is_selected() {
        let (world, key, outcome, _) = taken_by(|name| Some(Pod { controller: None, ..created(name) })).await;
        assert_eq!(outcome, (String::new(), "create, find, status".to_owned()));
        assert!(pending(&world).is_empty());
        assert_eq!(world.own_writes.expectations.get(&key), Some((0, 0)));
        assert!(sync(&world, &key).await.0.starts_with("read version"));
    }

    #[tokio::test]
    async fn that_is_gone_again_leads_to_the_same_name() {
        let (_, _, outcome, names) = taken_by(|_| None).await;
        assert_eq!(outcome, (String::new(), "create, find, create, status".to_owned()));
        assert_eq!(names[0], names[1]);
    }

    #[tokio::test]
    async fn that_is_cached_is_not_read() {
        let mut world = World::new();
        let key = world.add_replica_set(&replica_set("web", 1));
        world.cluster.create_errors.lock().push_back(already_exists());
        // The watch reports the pod during the sync, right before the response.
        let (pods, cluster) = (Arc::clone(&world.pods), Arc::clone(&world.cluster));
        *world.cluster.before_create.lock() = Some(Box::new(move || {
            let name = cluster.last_name();
            pods.lock().apply(Arc::new(created(&name)));
        }));
        assert_eq!(sync(&world, &key).await, (String::new(), "create, status".to_owned()));
        // The request was sent first by this sync: the event of the pod comes after the expectations were set.
        assert_eq!(world.own_writes.expectations.get(&key), Some((1, 0)));
    }

    #[tokio::test]
    async fn that_cannot_be_read_leaves_the_name_pending() {
        let (world, key, name) = failed(lost()).await;
        world.cluster.create_errors.lock().push_back(already_exists());
        world.cluster.found_pods.lock().push_back(Err(lost()));
        let (error, requests) = sync(&world, &key).await;
        assert_eq!((error, requests.as_str()), (lost().to_string(), "create, find, status"));
        assert_eq!(pending(&world), [name]);
        assert_eq!(world.own_writes.expectations.get(&key), Some((0, 0)));
    }

    #[tokio::test]
    async fn under_every_name_is_given_up() {
        let (world, key, _) = failed(lost()).await;
        world.cluster.create_errors.lock().extend(vec![already_exists(); 100]);
        world.cluster.found_pods.lock().extend(vec![Ok(Some(relabelled(pod("x")))); 100]);
        let (error, requests) = sync(&world, &key).await;
        assert_eq!(error, "the pod already exists");
        assert_eq!(requests.matches("create").count(), 8);
    }
}

#[tokio::test]
async fn sync_that_is_dropped_leaves_the_names_in_flight_pending() {
    let mut world = World::new();
    let key = world.add_replica_set(&replica_set("web", 1));
    world.cluster.hang_creates();
    {
        let mut sync = pin!(world.syncer.sync_replica_set(&key));
        assert!(sync.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(pending(&world), world.cluster.take_names());
}

#[tokio::test]
async fn refusal_quotes_the_base_of_the_name() {
    for (code, reason, quoted) in [(403, reason::FORBIDDEN, "web-"), (422, reason::INVALID, "NAME")] {
        let mut world = World::new();
        let key = world.add_replica_set(&replica_set("web", 1));
        let cluster = Arc::clone(&world.cluster);
        *world.cluster.before_create.lock() = Some(Box::new(move || {
            let message = format!("pods \"{}\" is refused", cluster.last_name());
            *cluster.create_errors.lock() = [ApiError::status(code, reason, message)].into();
        }));
        let (error, _) = sync(&world, &key).await;
        let expected =
            format!("pods \"{quoted}\" is refused").replace("NAME", &world.cluster.take_names()[0]);
        assert_eq!(error, expected);
        assert_eq!(world.events.take(), [format!("Warning FailedCreate Error creating: {expected}")]);
    }
}

/// The name is the only one in the line, whatever the API server quotes.
#[tokio::test]
async fn log_names_the_pod_once() {
    for code in [403, 422] {
        let mut world = World::new();
        let key = world.add_replica_set(&replica_set("web", 1));
        let cluster = Arc::clone(&world.cluster);
        *world.cluster.before_create.lock() = Some(Box::new(move || {
            let message = format!("Pod \"{}\" is refused", cluster.last_name());
            *cluster.create_errors.lock() = [ApiError::status(code, "", message)].into();
        }));
        let (log, _guard) = CapturedLog::of_this_thread(LevelFilter::DEBUG);
        sync(&world, &key).await;
        let text = log.text();
        let name = &world.cluster.take_names()[0];
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(&**name)).collect();
        assert_eq!(lines.len(), 1, "{text}");
        assert_eq!(lines[0].matches(&**name).count(), 1, "{text}");
        assert!(lines[0].contains(&format!("pod=default/{name}")), "{text}");
    }
}

/// A webhook removes the owner of each pod.
#[tokio::test]
async fn pod_without_its_owner_is_awaited() {
    let mut world = World::new();
    let key = world.add_replica_set(&replica_set("web", 2));
    *world.cluster.change_created.lock() = Some(json!({"metadata": {"ownerReferences": []}}));
    world.pods.lock().bookmark("5");
    assert_eq!(sync(&world, &key).await, (String::new(), "create x2, status".to_owned()));
    world.replica_sets.bookmark("1000000");
    let (error, requests) = sync(&world, &key).await;
    assert_eq!(error, "read version: 5 is not as new as written version: 1001 for group resource pods");
    assert_eq!(requests, "");
    assert_eq!(world.own_writes.expectations.get(&key), Some((2, 0)));
}

/// A webhook gives the pods to another controller. As upstream, their expectations last until they expire.
#[tokio::test]
async fn pod_of_another_owner_is_expected() {
    let mut world = World::new();
    let key = world.add_replica_set(&replica_set("web", 2));
    let other = json!({"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "other", "controller": true});
    *world.cluster.change_created.lock() = Some(json!({"metadata": {"ownerReferences": [other]}}));
    assert_eq!(sync(&world, &key).await, (String::new(), "create x2, status".to_owned()));
    world.catch_up();
    assert_eq!(sync(&world, &key).await, (String::new(), "status".to_owned()));
    assert_eq!(world.own_writes.expectations.get(&key), Some((2, 0)));
}

/// The store was restored from a backup, and the cache has not been listed again.
#[tokio::test]
async fn pod_with_a_version_below_that_of_the_cache_is_expected_until_its_event() {
    let mut world = World::new();
    let key = world.add_replica_set(&replica_set("web", 2));
    world.catch_up();
    assert_eq!(sync(&world, &key).await, (String::new(), "create x2, status".to_owned()));
    world.pod_handler.on_restore();
    assert_eq!(sync(&world, &key).await, (String::new(), "status".to_owned()));
    assert_eq!(world.own_writes.expectations.get(&key), Some((2, 0)));
}

/// Nothing shows whether the cache contains the pod.
#[tokio::test]
async fn pod_whose_version_cannot_be_compared_is_expected_until_its_event() {
    let mut world = World::new();
    let key = world.add_replica_set(&replica_set("web", 2));
    *world.cluster.change_created.lock() = Some(json!({"metadata": {"resourceVersion": "x7"}}));
    assert_eq!(sync(&world, &key).await, (String::new(), "create x2, status".to_owned()));
    world.catch_up();
    assert_eq!(sync(&world, &key).await, (String::new(), "status".to_owned()));
    assert_eq!(world.own_writes.expectations.get(&key), Some((2, 0)));
}
