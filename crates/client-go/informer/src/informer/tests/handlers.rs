//! What handlers are told, and when.

use super::*;
use crate::{Deleted, EventHandler, Store};

/// A handler that looks into the store each time it is called.
struct Looking {
    store: Store<TestObject>,
    seen: Mutex<Vec<String>>,
}

impl Looking {
    fn join(world: &World) -> Arc<Self> {
        let looking = Arc::new(Self { store: world.informer.store(), seen: Mutex::default() });
        world.informer.add_handler(looking.clone());
        looking.seen.lock().unwrap().clear();
        looking
    }

    fn look(&self, what: &str, thing: &TestObject) {
        let there = self.store.get(&thing.key).map_or("nothing".to_owned(), |there| there.version.clone());
        let line = format!("{what} {}@{}: {there} of {}", thing.key.name, thing.version, self.store.len());
        self.seen.lock().unwrap().push(line);
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

impl EventHandler<TestObject> for Looking {
    fn on_add(&self, object: &Arc<TestObject>, _: bool) {
        self.look("add", object);
    }

    fn on_update(&self, _: &Arc<TestObject>, new: &Arc<TestObject>) {
        self.look("update", new);
    }

    fn on_delete(&self, deleted: &Deleted<TestObject>) {
        self.look("delete", deleted.object());
    }
}

/// Makes everything that the informer knows too old, and cuts it off, so that it must list again.
fn cut_off(world: &World) {
    world.source.end_watches();
    world.source.compact();
}

#[tokio::test(start_paused = true)]
async fn relist_tells_deletions_then_the_rest_with_the_store_changed_as_a_whole() {
    for streaming_lists in [true, false] {
        let world = World::new();
        world.source.set_streaming_lists(streaming_lists);
        for name in ["gone", "same", "changed"] {
            world.source.apply(object(name));
        }
        world.synced().await;
        let looking = Looking::join(&world);
        pass(SECOND).await;
        cut_off(&world);
        world.source.delete(&key("gone"));
        world.source.apply(object("changed"));
        world.source.apply(object("new"));
        pass(MINUTE).await;
        assert_eq!(
            world.handler.take_texts(),
            [
                "delete ns/gone@2 (final state unknown)",
                "update ns/changed@4->7",
                "add ns/new@8",
                "update ns/same@3->3"
            ],
        );
        assert_eq!(
            looking.seen(),
            [
                "delete gone@2: nothing of 3",
                "update changed@7: 7 of 3",
                "add new@8: 8 of 3",
                "update same@3: 3 of 3"
            ],
        );
    }
}

#[tokio::test(start_paused = true)]
async fn store_has_changed_when_a_handler_is_told() {
    let world = World::new();
    world.synced().await;
    let looking = Looking::join(&world);
    world.source.apply(object("a"));
    world.source.apply(object("a"));
    world.source.delete(&key("a"));
    settle().await;
    assert_eq!(looking.seen(), ["add a@2: 2 of 1", "update a@3: 3 of 1", "delete a@4: nothing of 0"]);
}

#[tokio::test(start_paused = true)]
async fn object_deleted_and_created_between_two_looks_is_an_update_to_another() {
    let world = World::new();
    world.source.apply(object("a").uid("first"));
    world.synced().await;
    cut_off(&world);
    world.source.delete(&key("a"));
    world.source.apply(object("a").uid("second"));
    pass(MINUTE).await;
    assert_eq!(world.handler.take_texts(), ["update ns/a@2->5 (recreated)"]);
}

#[tokio::test(start_paused = true)]
async fn object_deleted_and_created_under_watch_is_told_as_both() {
    let world = World::new();
    world.source.apply(object("a").uid("first"));
    world.synced().await;
    world.source.delete(&key("a"));
    world.source.apply(object("a").uid("second"));
    settle().await;
    assert_eq!(world.handler.take_texts(), ["delete ns/a@3", "add ns/a@4"]);
}

#[tokio::test(start_paused = true)]
async fn handler_that_joins_late_is_told_all_that_is_there_and_then_all_that_happens() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.source.apply(object(name));
    }
    world.synced().await;
    world.source.delete(&key("b"));
    world.source.apply(object("a"));
    settle().await;
    let late = Arc::new(RecordingHandler::new());
    let registration = world.informer.add_handler(late.clone());
    assert!(registration.has_synced());
    assert_eq!(late.take_texts(), ["add ns/a@6 (initial)", "add ns/c@4 (initial)"]);
    world.source.apply(object("a"));
    settle().await;
    assert_eq!(late.take_texts(), ["update ns/a@6->7"]);
}

#[tokio::test(start_paused = true)]
async fn handler_that_joins_before_the_sync_is_synced_with_it() {
    let world = World::new();
    let early = world.informer.add_handler(Arc::new(RecordingHandler::new()));
    assert!(!early.has_synced());
    world.start();
    settle().await;
    assert!(early.has_synced());
}

#[test]
fn handlers_that_join_while_much_happens_miss_nothing() {
    const CHANGES: usize = 3000;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let handlers = runtime.block_on(async {
        let world = World::new();
        world.start();
        assert!(world.informer.wait_for_sync(&CancellationToken::new()).await);
        let source = world.source.clone();
        let changes = tokio::spawn(async move {
            for n in 0..CHANGES {
                source.apply(object(&(n % 10).to_string()));
                if n % 7 == 0 {
                    source.delete(&key(&(n % 3).to_string()));
                }
                tokio::task::yield_now().await;
            }
            source.apply(object("last"));
        });
        let mut handlers = vec![world.handler.clone()];
        while !changes.is_finished() {
            if handlers.len() < 50 {
                let late = Arc::new(RecordingHandler::new());
                world.informer.add_handler(late.clone());
                handlers.push(late);
            }
            tokio::task::yield_now().await;
        }
        while world.version() != Some(world.source.version().to_string()) {
            tokio::task::yield_now().await;
        }
        // Whoever joins now waits until the handlers have been told of that, too.
        world.informer.add_handler(Arc::new(RecordingHandler::new()));
        let store = world.informer.store();
        handlers.into_iter().map(|handler| (handler.replay(), store.clone())).collect::<Vec<_>>()
    });
    assert!(handlers.len() > 1);
    for (told, store) in handlers {
        let told: Vec<_> = told.unwrap().into_values().collect();
        let mut there = store.list();
        there.sort_by(|a, b| a.key.cmp(&b.key));
        assert_eq!(told, there);
    }
}

#[tokio::test(start_paused = true)]
async fn handler_removed_is_told_nothing_more() {
    let world = World::new();
    let leaving = Arc::new(RecordingHandler::new());
    let registration = world.informer.add_handler(leaving.clone());
    world.synced().await;
    world.source.apply(object("a"));
    settle().await;
    world.informer.remove_handler(&registration);
    world.source.apply(object("b"));
    settle().await;
    assert_eq!(leaving.take_texts(), ["add ns/a@2"]);
    assert_eq!(world.handler.take_texts(), ["add ns/a@2", "add ns/b@3"]);
}

/// When, counted from its start, an informer with a resync of a minute at least tells of its one object again.
async fn resyncs(seed: u64, delay: Duration) -> Vec<f64> {
    let world = World::with(|config| {
        config.resync = Some(MINUTE);
        config.random = Arc::new(SeededRandom::new(seed));
    });
    world.source.set_delay(delay);
    world.source.apply(object("a"));
    let start = world.clock.monotonic();
    let running = world.start();
    assert!(world.informer.wait_for_sync(&CancellationToken::new()).await);
    world.handler.take();
    let mut resyncs = Vec::new();
    while resyncs.len() < 4 {
        pass(Duration::from_millis(100)).await;
        let texts = world.handler.take_texts();
        if !texts.is_empty() {
            assert_eq!(texts, ["update ns/a@2->2"]);
            resyncs.push((world.clock.monotonic() - start).as_secs_f64());
        }
    }
    assert_eq!(world.metrics.get("relists"), 0, "the source has no part in it");
    running.stop().await;
    resyncs
}

#[tokio::test(start_paused = true)]
async fn resync_comes_again_and_again_after_a_time_drawn_once() {
    let mut periods = Vec::new();
    for seed in 0..20 {
        let resyncs = resyncs(seed, Duration::ZERO).await;
        let period = resyncs[0];
        assert!((60.0..120.2).contains(&period), "{resyncs:?}");
        for pair in resyncs.windows(2) {
            assert!((pair[1] - pair[0] - period).abs() < 0.3, "{resyncs:?}");
        }
        periods.push(period);
    }
    assert!(periods.iter().any(|period| *period < 75.0) && periods.iter().any(|period| *period > 105.0));
}

#[tokio::test(start_paused = true)]
async fn resync_is_counted_from_the_first_sync() {
    for seed in 0..10 {
        let at_once = resyncs(seed, Duration::ZERO).await;
        let late = resyncs(seed, 4 * MINUTE).await;
        assert!((late[0] - at_once[0] - 240.0).abs() < 0.3, "{late:?} {at_once:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn resync_unless_asked_for_never_happens() {
    let world = World::new();
    world.source.apply(object("a"));
    world.synced().await;
    pass(48 * 60 * MINUTE).await;
    assert!(world.handler.take_texts().is_empty());
}
