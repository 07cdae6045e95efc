//! Front ends whose watch cache lags behind the store.

use std::{sync::Arc, time::Duration};

use kcm_apiserver::WatchCacheLag;
use kcm_clock::SimulatedClock;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    client::{Client, PODS, pod, version_of},
    watches::Watch,
};

const STREAMING_LIST: &str =
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
const LAG: Duration = Duration::from_secs(2);

/// A front end without lag and one that lags by [`LAG`], with simulated time.
fn front_ends() -> (Client, Client, WatchCacheLag) {
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let exact = Client::with(|config| config.clock = Arc::new(SimulatedClock::new(start)));
    let lag = WatchCacheLag::new(LAG);
    let lagging = exact.of_lagging_front_end(&lag);
    (exact, lagging, lag)
}

/// Creates a pod and returns its version.
async fn create(client: &Client, name: &str) -> u64 {
    version_of(&client.post(PODS, &pod(name)).await.expect(201)).parse().unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

async fn list(client: &Client, query: &str) -> Value {
    client.get(&format!("{PODS}?{query}")).await.expect(200)
}

/// Reads to the end of the initial events. Returns the lines as `TYPE name`, and the version of the end.
async fn initial_events(watch: &mut Watch) -> (Vec<String>, u64) {
    let mut events = Vec::new();
    loop {
        let line = watch.next().await.unwrap();
        if line["type"] == "BOOKMARK" {
            assert_eq!(line["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
            return (events, version_of(&line["object"]).parse().unwrap());
        }
        events.push(format!(
            "{} {}",
            line["type"].as_str().unwrap(),
            line["object"]["metadata"]["name"].as_str().unwrap()
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn watch_events_are_delayed() {
    let (exact, lagging, _) = front_ends();
    let from = exact.server.revision();
    let mut watch = Watch::start(&lagging, &format!("resourceVersion={from}")).await;
    let began = Instant::now();
    create(&lagging, "a").await;
    sleep(Duration::from_secs(1)).await;
    create(&exact, "b").await;
    assert_eq!(watch.now().await, "nothing");
    for (name, at) in [("a", 2), ("b", 3)] {
        assert_eq!(watch.next().await.unwrap()["object"]["metadata"]["name"], name);
        assert_eq!(began.elapsed().as_secs(), at);
    }
    assert_eq!(watch.now().await, "nothing");
}

#[tokio::test(start_paused = true)]
async fn lag_changes_at_run_time() {
    let (exact, lagging, lag) = front_ends();
    let mut watch = Watch::start(&lagging, &format!("resourceVersion={}", exact.server.revision())).await;
    create(&exact, "a").await;
    assert_eq!(watch.now().await, "nothing");
    lag.set(Duration::ZERO);
    assert_eq!(watch.now().await, "ADDED a");
    lag.set(Duration::from_secs(60));
    let seen = list(&lagging, "resourceVersion=0").await;
    assert_eq!(names(&seen), ["a"], "a longer lag does not hide events");
    let began = Instant::now();
    create(&exact, "b").await;
    assert_eq!(watch.next().await.unwrap()["object"]["metadata"]["name"], "b");
    assert_eq!(began.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn front_ends_have_independent_lags() {
    let (exact, lagging, _) = front_ends();
    let other = exact.of_lagging_front_end(&WatchCacheLag::new(Duration::from_secs(1)));
    create(&exact, "a").await;
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(names(&list(&other, "resourceVersion=0").await), ["a"]);
    assert!(names(&list(&lagging, "resourceVersion=0").await).is_empty());
}

#[tokio::test(start_paused = true)]
async fn bookmarks_follow_the_cache() {
    let (exact, lagging, _) = front_ends();
    create(&exact, "a").await;
    let from = exact.server.revision();
    let query = format!("resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=130");
    let mut watch = Watch::start(&lagging, &query).await;
    sleep(Duration::from_secs(59)).await;
    let late = create(&exact, "b").await;
    let bookmark = watch.next().await.unwrap();
    assert_eq!(
        (&bookmark["type"], version_of(&bookmark["object"])),
        (&json!("BOOKMARK"), &*from.to_string())
    );
    assert_eq!(watch.next().await.unwrap()["type"], "ADDED");
    assert_eq!(version_of(&watch.next().await.unwrap()["object"]), late.to_string());
}

#[tokio::test(start_paused = true)]
async fn version_0_shows_the_cache() {
    let (exact, lagging, _) = front_ends();
    let old = create(&exact, "a").await;
    create(&exact, "gone").await;
    sleep(LAG).await;
    let before = exact.server.revision();
    exact.patch(&format!("{PODS}/a"), &json!({"metadata": {"labels": {"app": "new"}}})).await.expect(200);
    exact.delete(&format!("{PODS}/gone"), &Value::Null).await.expect(200);
    create(&exact, "b").await;

    let seen = list(&lagging, "resourceVersion=0").await;
    assert_eq!(names(&seen), ["a", "gone"]);
    assert_eq!(version_of(&seen), before.to_string());
    assert_eq!(version_of(&seen["items"][0]), old.to_string());
    for query in [format!("{STREAMING_LIST}&resourceVersion=0"), "allowWatchBookmarks=true".to_owned()] {
        let mut watch = Watch::start(&lagging, &query).await;
        assert_eq!(watch.now().await, "ADDED a");
        assert_eq!(watch.now().await, "ADDED gone");
    }
    // Single objects are read from the store.
    let read = lagging.get(&format!("{PODS}/b")).await.expect(200);
    assert_eq!(read["metadata"]["name"], "b");
    // A watch from the list's version reports the rest once.
    let mut watch = Watch::start(&lagging, &format!("resourceVersion={before}")).await;
    let mut types = Vec::new();
    for _ in 0..4 {
        types.push(watch.next().await.unwrap()["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(types, ["MODIFIED", "MODIFIED", "DELETED", "ADDED"]);
}

#[tokio::test(start_paused = true)]
async fn minimum_version_is_awaited() {
    let (exact, lagging, _) = front_ends();
    let version = create(&exact, "a").await;
    let began = Instant::now();
    let seen = list(&lagging, &format!("resourceVersion={version}")).await;
    assert_eq!((names(&seen), began.elapsed().as_secs()), (vec!["a"], 2));
    let version = create(&exact, "b").await;
    let mut watch = Watch::start(&lagging, &format!("{STREAMING_LIST}&resourceVersion={version}")).await;
    let (events, end) = initial_events(&mut watch).await;
    assert_eq!(
        (events, end, began.elapsed().as_secs()),
        (vec!["ADDED a".into(), "ADDED b".into()], version, 4)
    );
}

#[tokio::test(start_paused = true)]
async fn minimum_version_times_out() {
    let (exact, lagging, lag) = front_ends();
    lag.set(Duration::from_secs(10));
    let before = exact.server.revision();
    sleep(Duration::from_secs(10)).await;
    let version = create(&exact, "a").await;
    for query in
        [format!("resourceVersion={version}"), format!("watch=1&{STREAMING_LIST}&resourceVersion={version}")]
    {
        lag.set(Duration::from_secs(10 + 3 * u64::from(query.starts_with("watch"))));
        let began = Instant::now();
        let answer = lagging.get(&format!("{PODS}?{query}")).await;
        let message = answer.refused(504, "Timeout");
        assert_eq!(message, format!("Timeout: Too large resource version: {version}, current: {before}"));
        assert_eq!(answer.json()["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
        assert_eq!(began.elapsed().as_secs(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn consistent_list_shows_earlier_writes() {
    let (exact, lagging, lag) = front_ends();
    create(&exact, "a").await;
    let began = Instant::now();
    let seen = list(&lagging, "limit=1").await;
    assert_eq!((names(&seen), began.elapsed().as_secs()), (vec!["a"], 2));

    let version = create(&exact, "b").await;
    let mut watch = Watch::start(&lagging, STREAMING_LIST).await;
    let (events, end) = initial_events(&mut watch).await;
    assert_eq!((events.len(), end, began.elapsed().as_secs()), (2, version, 4));

    // If the cache is too slow, the store serves the list. A streaming list fails.
    lag.set(Duration::from_secs(60));
    create(&exact, "c").await;
    let seen = list(&lagging, "").await;
    assert_eq!((names(&seen).len(), began.elapsed().as_secs()), (3, 7));
    lagging.get(&format!("{PODS}?watch=1&{STREAMING_LIST}")).await.refused(504, "Timeout");
}

#[tokio::test(start_paused = true)]
async fn exact_version_and_continued_list_are_read_from_store() {
    let (exact, lagging, _) = front_ends();
    create(&exact, "a").await;
    let version = create(&exact, "b").await;
    let began = Instant::now();
    let seen = list(&lagging, &format!("resourceVersion={version}&resourceVersionMatch=Exact&limit=1")).await;
    assert_eq!(names(&seen), ["a"]);
    let next = seen["metadata"]["continue"].as_str().unwrap();
    assert_eq!(names(&list(&lagging, &format!("continue={next}")).await), ["b"]);
    assert_eq!(began.elapsed(), Duration::ZERO);
}
