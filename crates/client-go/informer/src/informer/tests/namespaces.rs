//! Informers with a source per namespace.

use super::*;
use crate::{ObjectKey, Sources, test_object::OWNER};

/// Informer of the namespaces `a` and `b`.
struct TwoNamespaces {
    a: FakeSource<TestObject>,
    b: FakeSource<TestObject>,
    env: TestEnv,
}

impl TwoNamespaces {
    fn new() -> Self {
        let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
        let (a, b) = (FakeSource::new(clock.clone()), FakeSource::new(clock));
        let (in_a, in_b) = (a.clone(), b.clone());
        let env = TestEnv::with(move |config| {
            config.sources = Sources::of(["a", "b"], |namespace| match namespace {
                Some("a") => Arc::new(in_a.clone()),
                Some("b") => Arc::new(in_b.clone()),
                other => panic!("{other:?}"),
            });
        });
        Self { a, b, env }
    }

    async fn start_synced(&self) -> Running {
        let running = self.env.start();
        settle().await;
        assert!(self.env.informer.has_synced());
        self.env.handler.take();
        running
    }

    fn stored(&self) -> Vec<String> {
        let objects = self.env.informer.store().list();
        let mut names: Vec<_> = objects.iter().map(|o| format!("{}@{}", o.key, o.version)).collect();
        names.sort();
        names
    }

    /// Returns the version of the store, that of namespace `a`, and that of namespace `b`.
    fn versions(&self) -> [Option<String>; 3] {
        let store = self.env.informer.store();
        [
            store.last_sync_resource_version(),
            store.last_sync_resource_version_in("a"),
            store.last_sync_resource_version_in("b"),
        ]
    }
}

fn in_namespace(namespace: &str, name: &str) -> TestObject {
    TestObject { key: ObjectKey::new(namespace, name), ..object(name) }
}

fn versions<const N: usize>(versions: [&str; N]) -> [Option<String>; N] {
    versions.map(|version| Some(version.to_owned()).filter(|version| !version.is_empty()))
}

#[tokio::test(start_paused = true)]
async fn objects_of_all_sources_are_in_one_store() {
    let informer = TwoNamespaces::new();
    informer.a.apply(in_namespace("a", "web").owned_by("x"));
    informer.b.apply(in_namespace("b", "web").owned_by("x"));
    let running = informer.start_synced().await;
    assert_eq!(informer.stored(), ["a/web@2", "b/web@2"]);
    assert_eq!(informer.env.informer.store().by_index(OWNER, "x").len(), 2);

    informer.b.apply(in_namespace("b", "db"));
    informer.a.delete(&ObjectKey::new("a", "web"));
    settle().await;
    let mut calls = informer.env.handler.take_texts();
    calls.sort();
    assert_eq!(calls, ["add b/db@3", "delete a/web@3"]);
    assert_eq!(informer.stored(), ["b/db@3", "b/web@2"]);
    running.stop().await;
    assert_eq!((informer.a.watchers(), informer.b.watchers()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn synced_when_all_sources_are_listed() {
    let informer = TwoNamespaces::new();
    informer.a.apply(in_namespace("a", "web"));
    informer.b.apply(in_namespace("b", "web"));
    informer.b.hold_watches(true);
    let env = &informer.env;
    let registration = env.informer.add_handler(Arc::new(RecordingHandler::new()));
    let _running = env.start();
    settle().await;
    assert_eq!(informer.stored(), ["a/web@2"]);
    assert_eq!(env.handler.take_texts(), ["add a/web@2 (initial)"]);
    assert!(!env.informer.has_synced() && !registration.has_synced() && !env.informer.store().is_synced());
    assert_eq!(informer.versions(), versions(["", "2", ""]));

    // The connection of the watch is lost. The source is then read by a list.
    informer.b.set_streaming_lists(false);
    informer.b.hold_watches(false);
    env.informer.relist().await;
    assert!(env.informer.has_synced() && registration.has_synced() && env.informer.store().is_synced());
    assert_eq!(informer.stored(), ["a/web@2", "b/web@2"]);
    // The first state of a namespace is initial, a relist is not.
    let mut calls = env.handler.take_texts();
    calls.sort();
    assert_eq!(calls, ["add b/web@2 (initial)", "update a/web@2->2"]);
}

#[tokio::test(start_paused = true)]
async fn relist_of_one_source_keeps_the_objects_of_the_others() {
    for streaming_lists in [true, false] {
        let informer = TwoNamespaces::new();
        informer.a.set_streaming_lists(streaming_lists);
        for name in ["changed", "deleted"] {
            informer.a.apply(in_namespace("a", name).owned_by("x"));
        }
        informer.b.apply(in_namespace("b", "web").owned_by("x"));
        let _running = informer.start_synced().await;

        informer.a.end_watches();
        informer.a.apply(in_namespace("a", "changed").owned_by("x"));
        informer.a.delete(&ObjectKey::new("a", "deleted"));
        informer.a.compact();
        pass(MINUTE).await;
        assert_eq!(informer.stored(), ["a/changed@4", "b/web@2"], "streaming: {streaming_lists}");
        let mut calls = informer.env.handler.take_texts();
        calls.sort();
        assert_eq!(calls, ["delete a/deleted@3 (final state unknown)", "update a/changed@2->4"]);
        let owned = informer.env.informer.store().by_index(OWNER, "x");
        assert_eq!(owned.len(), 2);
        informer.env.handler.replay().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn each_source_resumes_at_its_own_version() {
    let informer = TwoNamespaces::new();
    informer.a.apply(in_namespace("a", "web"));
    let running = informer.start_synced().await;
    for _ in 0..9 {
        informer.b.apply(in_namespace("b", "web"));
    }
    settle().await;
    running.stop().await;
    informer.a.take_requests();
    informer.b.take_requests();

    let _running = informer.env.start();
    settle().await;
    let version = |source: &FakeSource<TestObject>| match source.take_requests().as_slice() {
        [FakeRequest::Watch(options)] => options.resource_version.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!([version(&informer.a), version(&informer.b)], versions(["2", "10"]));
}

#[tokio::test(start_paused = true)]
async fn version_of_the_store_is_the_oldest_of_its_sources() {
    let informer = TwoNamespaces::new();
    assert_eq!(informer.versions(), versions(["", "", ""]));
    let _running = informer.start_synced().await;
    assert_eq!(informer.versions(), versions(["1", "1", "1"]));
    for _ in 0..9 {
        informer.a.apply(in_namespace("a", "web"));
    }
    settle().await;
    assert_eq!(informer.versions(), versions(["1", "10", "1"]));
    for _ in 0..8 {
        informer.b.advance();
    }
    informer.b.bookmark();
    settle().await;
    assert_eq!(informer.versions(), versions(["9", "10", "9"]), "compared as numbers");
    assert_eq!(informer.env.informer.store().last_sync_resource_version_in("c"), None);
}

#[test]
fn sources_without_namespaces_are_one() {
    let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
    let none: [&str; 0] = [];
    let sources = Sources::<TestObject>::of(none, |namespace| {
        assert_eq!(namespace, None);
        Arc::new(FakeSource::new(clock.clone()))
    });
    assert!(matches!(sources, Sources::One(_)));
}
