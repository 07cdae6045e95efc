//! Tests of [`SharedInformer::relist`].

use super::*;

/// Requests a relist in a task.
fn relist(env: &TestEnv) -> JoinHandle<()> {
    let informer = env.informer.clone();
    tokio::spawn(async move { informer.relist().await })
}

/// Starts an informer whose watch gets no events, and changes the objects of its source.
async fn stale() -> (TestEnv, Running) {
    let env = TestEnv::new();
    env.source.apply(object("same"));
    env.source.apply(object("changed"));
    env.source.apply(object("deleted"));
    let running = env.start_synced().await;
    env.source.silence_watches();
    env.source.apply(object("changed"));
    env.source.apply(object("new"));
    env.source.delete(&key("deleted"));
    settle().await;
    assert_eq!(env.stored(), STALE);
    (env, running)
}

const STALE: [&str; 3] = ["changed@3", "deleted@4", "same@2"];
const CURRENT: [&str; 3] = ["changed@5", "new@6", "same@2"];

#[tokio::test(start_paused = true)]
async fn replaces_a_dead_watch() {
    for streaming_lists in [true, false] {
        let (env, _running) = stale().await;
        env.source.set_streaming_lists(streaming_lists);
        env.informer.relist().await;
        assert_eq!(env.stored(), CURRENT);
        settle().await;
        let requests: &[_] =
            if streaming_lists { &["stream newest"] } else { &["stream newest", "list newest", "watch 7"] };
        assert_eq!(env.take_requests(), requests);
    }
}

#[tokio::test(start_paused = true)]
async fn keeps_unchanged_objects() {
    let (env, _running) = stale().await;
    let store = env.informer.store();
    let before = store.get(&key("same")).unwrap();
    env.informer.relist().await;
    assert!(Arc::ptr_eq(&before, &store.get(&key("same")).unwrap()));
}

#[tokio::test(start_paused = true)]
async fn later_handler_gets_each_object_once() {
    let (env, _running) = stale().await;
    env.informer.relist().await;
    let handler = Arc::new(RecordingHandler::new());
    env.informer.add_handler(handler.clone());
    settle().await;
    let mut calls = handler.take_texts();
    calls.sort();
    assert_eq!(calls, CURRENT.map(|object| format!("add ns/{object} (initial)")));
}

#[tokio::test(start_paused = true)]
async fn is_retried_until_a_consistent_list_is_complete() {
    for failure in [connection_refused(), expired(), internal_error(), too_many_requests()] {
        let (env, _running) = stale().await;
        env.source.fail_watches(&failure, 3);
        env.source.fail_lists(&failure, 3);
        let relist = relist(&env);
        settle().await;
        assert!(!relist.is_finished(), "{failure}");
        assert_eq!(env.stored(), STALE, "{failure}");
        pass(MINUTE).await;
        assert!(relist.is_finished(), "{failure}");
        assert_eq!(env.stored(), CURRENT, "{failure}");
        let requests = env.take_requests();
        let lists = requests.iter().filter(|request| !request.starts_with("watch"));
        assert!(lists.clone().all(|request| request.ends_with("newest")), "{failure}: {requests:?}");
        assert!(lists.count() > 3, "{failure}: {requests:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn ignores_an_incomplete_streaming_list() {
    let (env, _running) = stale().await;
    env.source.set_initial_bookmarks(false);
    let relist = relist(&env);
    settle().await;
    env.source.end_watches();
    env.source.set_delay(SECOND);
    settle().await;
    assert!(!relist.is_finished());
    pass(2 * SECOND).await;
    assert!(relist.is_finished());
    assert_eq!(env.take_requests()[..2], ["stream newest", "list newest"]);
    assert_eq!(env.stored(), CURRENT);
}

#[tokio::test(start_paused = true)]
async fn replaces_a_streaming_list_without_events() {
    let (env, _running) = stale().await;
    env.source.hold_watches(true);
    let started = env.clock.monotonic();
    env.informer.relist().await;
    assert_eq!(env.clock.monotonic() - started, 5 * SECOND);
    assert_eq!(env.stored(), CURRENT);
    assert_eq!(env.take_requests()[..2], ["stream newest", "list newest"]);
}

#[tokio::test(start_paused = true)]
async fn replaces_a_list_in_progress() {
    let env = TestEnv::new();
    env.source.set_streaming_lists(false);
    env.source.set_delay(SECOND);
    let _running = env.start();
    pass(SECOND + SECOND / 2).await;
    assert_eq!(env.take_requests(), ["stream newest", "list 0"]);
    env.informer.relist().await;
    assert_eq!(env.take_requests()[0], "list newest");
    assert!(env.informer.has_synced());
}

#[tokio::test(start_paused = true)]
async fn ends_the_back_off() {
    let env = TestEnv::new();
    env.source.fail_watches(&connection_refused(), 1);
    let _running = env.start();
    settle().await;
    let started = env.clock.monotonic();
    env.informer.relist().await;
    assert_eq!(env.clock.monotonic(), started);
}

#[tokio::test(start_paused = true)]
async fn before_the_start_makes_the_first_list_consistent() {
    let env = TestEnv::new();
    env.source.set_streaming_lists(false);
    let relist = relist(&env);
    settle().await;
    assert!(!relist.is_finished());
    env.start();
    settle().await;
    assert!(relist.is_finished());
    assert_eq!(env.take_requests(), ["stream newest", "list newest", "watch 1"]);
}

#[tokio::test(start_paused = true)]
async fn simultaneous_requests_share_a_list() {
    let (env, _running) = stale().await;
    let (first, second) = (relist(&env), relist(&env));
    settle().await;
    assert!(first.is_finished() && second.is_finished());
    assert_eq!(env.take_requests(), ["stream newest"]);
}

#[tokio::test(start_paused = true)]
async fn changes_the_store_atomically() {
    const NEW_OBJECTS: usize = 50_000;
    let (env, _running) = stale().await;
    for number in 0..NEW_OBJECTS {
        env.source.apply(object(&format!("late-{number}")));
    }
    let store = env.informer.store();
    let lengths = Arc::new(Mutex::new(BTreeMap::new()));
    let observed = Arc::clone(&lengths);
    let reader = store.clone();
    let observer = tokio::spawn(async move {
        loop {
            *observed.lock().unwrap().entry(reader.len()).or_insert(0) += 1;
            tokio::task::yield_now().await;
        }
    });
    env.informer.relist().await;
    assert_eq!(store.len(), CURRENT.len() + NEW_OBJECTS);
    observer.abort();
    let lengths: Vec<_> = lengths.lock().unwrap().keys().copied().collect();
    assert!(
        lengths.iter().all(|len| [STALE.len(), CURRENT.len() + NEW_OBJECTS].contains(len)),
        "{lengths:?}"
    );
}
