use std::time::Duration;

use kcm_clock::{SeededRandom, SimulatedClock, Timestamp};

use super::*;
use crate::{
    IndexName, Indexers, InformerConfig, ObjectKey,
    test_object::{OWNER, TestObject, indexers, object},
    testing::{FakeSource, RecordingHandler, SetResourceVersion},
};

/// Another type.
#[derive(Clone)]
struct Other(TestObject);

impl Object for Other {
    fn key(&self) -> ObjectKey {
        self.0.key()
    }

    fn uid_str(&self) -> &str {
        Object::uid_str(&self.0)
    }

    fn resource_version_str(&self) -> &str {
        self.0.resource_version_str()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.0.label(key)
    }

    fn creation_time(&self) -> Option<Timestamp> {
        self.0.creation_time()
    }

    fn deletion_timestamp(&self) -> Option<Timestamp> {
        self.0.deletion_timestamp()
    }

    fn controller(&self) -> Option<crate::ControllerRef<'_>> {
        self.0.controller()
    }
}

impl SetResourceVersion for Other {
    fn set_resource_version(&mut self, version: &str) {
        self.0.set_resource_version(version);
    }
}

fn clock() -> Arc<SimulatedClock> {
    Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH))
}

fn informer_of<K: SetResourceVersion + Clone>(
    source: &FakeSource<K>,
    clock: &Arc<SimulatedClock>,
) -> SharedInformer<K> {
    let random = Arc::new(SeededRandom::new(1));
    SharedInformer::new(InformerConfig::new("tests", Arc::new(source.clone()), clock.clone(), random))
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn two_controllers_share_one_watch() {
    let (factory, clock) = (SharedInformerFactory::new(), clock());
    let source = FakeSource::new(clock.clone());
    source.apply(object("a").owned_by("x"));
    let options = InformerOptions::new("tests").labels("app=web");
    let request = |index: Indexers<TestObject>| {
        let informer = factory.informer(&options, || informer_of(&source, &clock));
        informer.add_indexers(index);
        let handler = Arc::new(RecordingHandler::new());
        informer.add_handler(handler.clone());
        (informer, handler)
    };
    const VERSION: IndexName = IndexName("version");
    let (first, first_handler) = request(indexers());
    let (second, second_handler) =
        request(Indexers::new().with(VERSION, |object: &TestObject| Some(object.version.as_str().into())));

    let cancel = CancellationToken::new();
    let running = tokio::spawn({
        let (factory, cancel) = (factory.clone(), cancel.clone());
        async move { factory.run(cancel).await }
    });
    assert!(factory.wait_for_sync(&cancel).await);
    settle().await;
    assert_eq!((source.watchers(), source.take_requests().len()), (1, 1));
    for (informer, handler) in [(first, first_handler), (second, second_handler)] {
        assert_eq!(handler.take_texts(), ["add ns/a@2 (initial)"]);
        let store = informer.store();
        assert_eq!((store.by_index(OWNER, "x").len(), store.by_index(VERSION, "2").len()), (1, 1));
    }
    cancel.cancel();
    running.await.unwrap();
    assert_eq!(source.watchers(), 0);
}

#[test]
fn informers_differ_by_type_and_options() {
    let (factory, clock) = (SharedInformerFactory::new(), clock());
    let source = FakeSource::<TestObject>::new(clock.clone());
    let other = FakeSource::<Other>::new(clock.clone());
    let all = InformerOptions::new("tests");
    let options = [
        all.clone(),
        all.clone().namespace("a"),
        all.clone().namespace("a").namespace("b"),
        all.clone().labels("app=web"),
        all.clone().fields("metadata.name=web"),
        InformerOptions::new("others"),
    ];
    for options in options.iter().chain(&options) {
        factory.informer(options, || informer_of(&source, &clock));
    }
    assert_eq!(factory.informers().len(), options.len());
    for _ in 0..2 {
        factory.informer(&all, || informer_of(&other, &clock));
    }
    assert_eq!(factory.informers().len(), options.len() + 1);
    factory.informer(&all.clone().namespace("b").namespace("a"), || informer_of(&source, &clock));
    assert_eq!(factory.informers().len(), options.len() + 1, "the order of namespaces has no effect");
}

#[tokio::test(start_paused = true)]
async fn runs_informers_that_are_requested_later() {
    let (factory, clock) = (SharedInformerFactory::new(), clock());
    let cancel = CancellationToken::new();
    let running = tokio::spawn({
        let (factory, cancel) = (factory.clone(), cancel.clone());
        async move { factory.run(cancel).await }
    });
    settle().await;
    let source = FakeSource::<TestObject>::new(clock.clone());
    let informer = factory.informer(&InformerOptions::new("tests"), || informer_of(&source, &clock));
    assert!(informer.wait_for_sync(&cancel).await);
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    settle().await;
    assert_eq!(source.watchers(), 0, "dropping the run stops the informers");
}

#[tokio::test(start_paused = true)]
#[should_panic = "panic of a handler"]
async fn panic_of_a_handler_is_passed_on() {
    struct Panicking;
    impl crate::EventHandler<TestObject> for Panicking {
        fn on_add(&self, _: &Arc<TestObject>, _: bool) {
            panic!("panic of a handler");
        }
        fn on_update(&self, _: &Arc<TestObject>, _: &Arc<TestObject>) {}
        fn on_delete(&self, _: &crate::Deleted<TestObject>) {}
    }
    let (factory, clock) = (SharedInformerFactory::new(), clock());
    let source = FakeSource::new(clock.clone());
    source.apply(object("a"));
    let informer = factory.informer(&InformerOptions::new("tests"), || informer_of(&source, &clock));
    informer.add_handler(Arc::new(Panicking));
    factory.run(CancellationToken::new()).await;
}

#[tokio::test(start_paused = true)]
async fn wait_for_sync_ends_when_cancelled() {
    let (factory, clock) = (SharedInformerFactory::new(), clock());
    let source = FakeSource::<TestObject>::new(clock.clone());
    factory.informer(&InformerOptions::new("tests"), || informer_of(&source, &clock));
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert!(!factory.wait_for_sync(&cancel).await);
    assert!(factory.informers().iter().all(|informer| informer.name() == "tests" && !informer.has_synced()));
}
