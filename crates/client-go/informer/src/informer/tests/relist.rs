//! Relists on request.

use super::*;

/// Requests a relist on a task of its own.
fn relist(world: &World) -> JoinHandle<()> {
    let informer = world.informer.clone();
    tokio::spawn(async move { informer.relist().await })
}

/// An informer that holds `same` and `changed`, and whose watch is dead: it does not get what happened since.
async fn behind() -> (World, Running) {
    let world = World::new();
    world.source.apply(object("same"));
    world.source.apply(object("changed"));
    world.source.apply(object("gone"));
    let running = world.synced().await;
    world.source.silence_watches();
    world.source.apply(object("changed"));
    world.source.apply(object("new"));
    world.source.delete(&key("gone"));
    settle().await;
    assert_eq!(world.names(), ["changed@3", "gone@4", "same@2"]);
    (world, running)
}

const CURRENT: [&str; 3] = ["changed@5", "new@6", "same@2"];

#[tokio::test(start_paused = true)]
async fn replaces_a_watch_that_is_dead() {
    for streaming_lists in [true, false] {
        let (world, _running) = behind().await;
        world.source.set_streaming_lists(streaming_lists);
        world.informer.relist().await;
        assert_eq!(world.names(), CURRENT);
        settle().await;
        let asked: &[_] =
            if streaming_lists { &["stream newest"] } else { &["stream newest", "list newest", "watch 7"] };
        assert_eq!(world.asked(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn keeps_objects_that_have_not_changed() {
    let (world, _running) = behind().await;
    let store = world.informer.store();
    let before = store.get(&key("same")).unwrap();
    world.informer.relist().await;
    assert!(Arc::ptr_eq(&before, &store.get(&key("same")).unwrap()));
}

#[tokio::test(start_paused = true)]
async fn handler_that_joins_later_gets_each_object_once() {
    let (world, _running) = behind().await;
    world.informer.relist().await;
    let handler = Arc::new(RecordingHandler::new());
    world.informer.add_handler(handler.clone());
    settle().await;
    let mut calls: Vec<_> = handler.take().iter().map(ToString::to_string).collect();
    calls.sort();
    assert_eq!(calls, CURRENT.map(|object| format!("add ns/{object} (initial)")));
}

#[tokio::test(start_paused = true)]
async fn is_retried_until_a_list_from_the_newest_is_complete() {
    let gone = ListWatchError::new(ListWatchErrorKind::Expired, "too old resource version");
    let failures = [
        refused(),
        gone,
        ListWatchError::new(ListWatchErrorKind::Other, "no"),
        ListWatchError::new(ListWatchErrorKind::TooManyRequests, "no"),
    ];
    for failure in failures {
        let (world, _running) = behind().await;
        world.source.fail_watches(&failure, 3);
        world.source.fail_lists(&failure, 3);
        let relist = relist(&world);
        settle().await;
        assert!(!relist.is_finished(), "{failure}");
        assert_eq!(world.names(), ["changed@3", "gone@4", "same@2"], "{failure}");
        pass(MINUTE).await;
        assert!(relist.is_finished(), "{failure}");
        assert_eq!(world.names(), CURRENT, "{failure}");
        let asked = world.asked();
        let lists = asked.iter().filter(|request| !request.starts_with("watch"));
        assert!(lists.clone().all(|request| request.ends_with("newest")), "{failure}: {asked:?}");
        assert!(lists.count() > 3, "{failure}: {asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn streaming_list_that_is_cut_counts_for_nothing() {
    let (world, _running) = behind().await;
    world.source.set_initial_bookmarks(false);
    let relist = relist(&world);
    settle().await;
    world.source.end_watches();
    world.source.set_delay(SECOND);
    settle().await;
    assert!(!relist.is_finished());
    pass(2 * SECOND).await;
    assert!(relist.is_finished());
    assert_eq!(world.asked()[..2], ["stream newest", "list newest"]);
    assert_eq!(world.names(), CURRENT);
}

#[tokio::test(start_paused = true)]
async fn streaming_list_without_an_answer_is_replaced_by_a_list() {
    let (world, _running) = behind().await;
    world.source.hold_watches(true);
    let started = world.clock.monotonic();
    world.informer.relist().await;
    assert_eq!(world.clock.monotonic() - started, 5 * SECOND);
    assert_eq!(world.names(), CURRENT);
    assert_eq!(world.asked()[..2], ["stream newest", "list newest"]);
}

#[tokio::test(start_paused = true)]
async fn list_under_way_does_not_count() {
    let world = World::new();
    world.source.set_streaming_lists(false);
    world.source.set_delay(SECOND);
    let _running = world.start();
    pass(SECOND + SECOND / 2).await;
    assert_eq!(world.asked(), ["stream newest", "list 0"]);
    world.informer.relist().await;
    assert_eq!(world.asked()[0], "list newest");
    assert!(world.informer.has_synced());
}

#[tokio::test(start_paused = true)]
async fn wait_before_a_retry_is_cut_short() {
    let world = World::new();
    world.source.fail_watches(&refused(), 1);
    let _running = world.start();
    settle().await;
    let started = world.clock.monotonic();
    world.informer.relist().await;
    assert_eq!(world.clock.monotonic(), started);
}

#[tokio::test(start_paused = true)]
async fn request_made_before_the_informer_runs_makes_its_first_list_a_consistent_one() {
    let world = World::new();
    world.source.set_streaming_lists(false);
    let relist = relist(&world);
    settle().await;
    assert!(!relist.is_finished());
    world.start();
    settle().await;
    assert!(relist.is_finished());
    assert_eq!(world.asked(), ["stream newest", "list newest", "watch 1"]);
}

#[tokio::test(start_paused = true)]
async fn requests_at_once_share_a_list() {
    let (world, _running) = behind().await;
    let (first, second) = (relist(&world), relist(&world));
    settle().await;
    assert!(first.is_finished() && second.is_finished());
    assert_eq!(world.asked(), ["stream newest"]);
}

#[tokio::test(start_paused = true)]
async fn backlog_is_in_the_store_as_a_whole() {
    const BACKLOG: usize = 50_000;
    let (world, _running) = behind().await;
    for number in 0..BACKLOG {
        world.source.apply(object(&format!("late-{number}")));
    }
    let store = world.informer.store();
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let lengths = Arc::clone(&seen);
    let reader = store.clone();
    let watcher = tokio::spawn(async move {
        loop {
            *lengths.lock().unwrap().entry(reader.len()).or_insert(0) += 1;
            tokio::task::yield_now().await;
        }
    });
    world.informer.relist().await;
    assert_eq!(store.len(), CURRENT.len() + BACKLOG);
    watcher.abort();
    let seen: Vec<_> = seen.lock().unwrap().keys().copied().collect();
    assert!(seen.iter().all(|len| [3, CURRENT.len() + BACKLOG].contains(len)), "{seen:?}");
}
