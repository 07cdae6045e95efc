use super::*;
use crate::{Deleted, EventHandler, Store};

/// Handler that reads the store in each call.
struct StoreReader {
    store: Store<TestObject>,
    calls: Mutex<Vec<String>>,
}

impl StoreReader {
    fn add_to(env: &TestEnv) -> Arc<Self> {
        let reader = Arc::new(Self { store: env.informer.store(), calls: Mutex::default() });
        env.informer.add_handler(reader.clone());
        reader.calls.lock().unwrap().clear();
        reader
    }

    /// Records the call with the state of the object in the store, and the number of objects there.
    fn record(&self, verb: &str, object: &TestObject) {
        let stored = self.store.get(&object.key).map_or("none".to_owned(), |stored| stored.version.clone());
        let call = format!("{verb} {}@{}: {stored} of {}", object.key.name, object.version, self.store.len());
        self.calls.lock().unwrap().push(call);
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

impl EventHandler<TestObject> for StoreReader {
    fn on_add(&self, object: &Arc<TestObject>, _: bool) {
        self.record("add", object);
    }

    fn on_update(&self, _: &Arc<TestObject>, new: &Arc<TestObject>) {
        self.record("update", new);
    }

    fn on_delete(&self, deleted: &Deleted<TestObject>) {
        self.record("delete", deleted.object());
    }
}

mod events {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn follow_the_change_of_the_store() {
        let env = TestEnv::new();
        env.start_synced().await;
        let reader = StoreReader::add_to(&env);
        env.source.apply(object("a"));
        env.source.apply(object("a"));
        env.source.delete(&key("a"));
        settle().await;
        assert_eq!(reader.calls(), ["add a@2: 2 of 1", "update a@3: 3 of 1", "delete a@4: none of 0"]);
    }

    #[tokio::test(start_paused = true)]
    async fn object_recreated_during_a_watch_is_deleted_and_added() {
        let env = TestEnv::new();
        env.source.apply(object("a").uid("first"));
        env.start_synced().await;
        env.source.delete(&key("a"));
        env.source.apply(object("a").uid("second"));
        settle().await;
        assert_eq!(env.handler.take_texts(), ["delete ns/a@3", "add ns/a@4"]);
    }

    #[tokio::test(start_paused = true)]
    async fn object_recreated_before_a_relist_is_updated() {
        let env = TestEnv::new();
        env.source.apply(object("a").uid("first"));
        env.start_synced().await;
        env.force_relist();
        env.source.delete(&key("a"));
        env.source.apply(object("a").uid("second"));
        pass(MINUTE).await;
        assert_eq!(env.handler.take_texts(), ["update ns/a@2->5 (recreated)"]);
    }

    #[tokio::test(start_paused = true)]
    async fn relist_replaces_the_store_then_reports_deletions_then_other_objects() {
        for streaming_lists in [true, false] {
            let env = TestEnv::new();
            env.source.set_streaming_lists(streaming_lists);
            for name in ["deleted", "same", "changed"] {
                env.source.apply(object(name));
            }
            env.start_synced().await;
            let reader = StoreReader::add_to(&env);
            pass(SECOND).await;
            env.force_relist();
            env.source.delete(&key("deleted"));
            env.source.apply(object("changed"));
            env.source.apply(object("new"));
            pass(MINUTE).await;
            assert_eq!(
                env.handler.take_texts(),
                [
                    "delete ns/deleted@2 (final state unknown)",
                    "update ns/changed@4->7",
                    "add ns/new@8",
                    "update ns/same@3->3"
                ],
            );
            assert_eq!(
                reader.calls(),
                [
                    "delete deleted@2: none of 3",
                    "update changed@7: 7 of 3",
                    "add new@8: 8 of 3",
                    "update same@3: 3 of 3"
                ],
            );
        }
    }
}

mod add_handler {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reports_the_current_state_and_then_changes() {
        let env = TestEnv::new();
        for name in ["a", "b", "c"] {
            env.source.apply(object(name));
        }
        env.start_synced().await;
        env.source.delete(&key("b"));
        env.source.apply(object("a"));
        settle().await;
        let late = Arc::new(RecordingHandler::new());
        let registration = env.informer.add_handler(late.clone());
        assert!(registration.has_synced());
        assert_eq!(late.take_texts(), ["add ns/a@6 (initial)", "add ns/c@4 (initial)"]);
        env.source.apply(object("a"));
        settle().await;
        assert_eq!(late.take_texts(), ["update ns/a@6->7"]);
    }

    #[tokio::test(start_paused = true)]
    async fn before_the_sync_has_synced_after_it() {
        let env = TestEnv::new();
        let registration = env.informer.add_handler(Arc::new(RecordingHandler::new()));
        assert!(!registration.has_synced());
        env.start();
        settle().await;
        assert!(registration.has_synced());
    }

    /// Adds handlers on one thread while objects change on another.
    #[test]
    fn concurrent_with_changes_misses_none() {
        const CHANGES: usize = 3000;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        let handlers = runtime.block_on(async {
            let env = TestEnv::new();
            env.start();
            assert!(env.informer.wait_for_sync(&CancellationToken::new()).await);
            let source = env.source.clone();
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
            let mut handlers = vec![env.handler.clone()];
            while !changes.is_finished() {
                if handlers.len() < 50 {
                    let late = Arc::new(RecordingHandler::new());
                    env.informer.add_handler(late.clone());
                    handlers.push(late);
                }
                tokio::task::yield_now().await;
            }
            while env.version() != Some(env.source.version().to_string()) {
                tokio::task::yield_now().await;
            }
            // Waits until the handlers have been called for the last change.
            env.informer.add_handler(Arc::new(RecordingHandler::new()));
            let store = env.informer.store();
            handlers.into_iter().map(|handler| (handler.replay(), store.clone())).collect::<Vec<_>>()
        });
        assert!(handlers.len() > 1);
        for (replayed, store) in handlers {
            let replayed: Vec<_> = replayed.unwrap().into_values().collect();
            let mut stored = store.list();
            stored.sort_by(|a, b| a.key.cmp(&b.key));
            assert_eq!(replayed, stored);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn removed_handler_gets_no_events() {
    let env = TestEnv::new();
    let removed = Arc::new(RecordingHandler::new());
    let registration = env.informer.add_handler(removed.clone());
    env.start_synced().await;
    env.source.apply(object("a"));
    settle().await;
    env.informer.remove_handler(&registration);
    env.source.apply(object("b"));
    settle().await;
    assert_eq!(removed.take_texts(), ["add ns/a@2"]);
    assert_eq!(env.handler.take_texts(), ["add ns/a@2", "add ns/b@3"]);
}

mod on_restore {
    use std::sync::Mutex;

    use super::*;
    use crate::{
        Store, StoreWriter, handler_fanout::HandlerFanout, metrics::NoInformerMetrics, test_object::indexers,
    };

    /// Records the version of the store at each call.
    struct Restored(Store<TestObject>, Mutex<Vec<String>>);

    impl Restored {
        fn note(&self, call: &str) {
            self.1.lock().unwrap().push(format!("{call} at {:?}", self.0.last_sync_resource_version()));
        }
    }

    impl EventHandler<TestObject> for Restored {
        fn on_add(&self, _: &Arc<TestObject>, _: bool) {}

        fn on_update(&self, _: &Arc<TestObject>, _: &Arc<TestObject>) {
            self.note("update");
        }

        fn on_delete(&self, _: &Deleted<TestObject>) {}

        fn on_restore(&self) {
            self.note("restore");
        }
    }

    #[test]
    fn is_called_before_the_changes_of_an_older_list() {
        let writer = StoreWriter::new(indexers());
        let handler = Arc::new(Restored(writer.reader(), Mutex::default()));
        let fanout = HandlerFanout::new("test".to_owned(), Arc::new(NoInformerMetrics), writer);
        fanout.add(handler.clone());
        for version in ["10", "11", "9"] {
            let mut snapshot = fanout.snapshot(None);
            snapshot.insert(object("a").at("5"));
            fanout.replace(snapshot, version, version == "10");
        }
        let calls = handler.1.lock().unwrap().clone();
        assert_eq!(calls, ["update at Some(\"11\")", "restore at Some(\"9\")", "update at Some(\"9\")"]);
    }
}
