//! `kcm_informer` beside `kube_runtime::reflector`: one test per row of the table in the documentation of the crate.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::support::{
    Script, cluster, config_map, create, expired, names, pass, run, run_scripted, scripted, settle, stored,
    synced,
};
use futures_util::{FutureExt, Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kcm_informer::{
    IndexName, Indexers, InformerMetrics, InformerOptions, ListWatchError, Object, ObjectKey, SharedInformer,
    Sources, is_newer, testing::RecordingHandler,
};
use kcm_kube::{list_watch, sources, touched_objects};
use kcm_testkit::{FakeApiServer, FakeResponse};
use kube_client::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use kube_runtime::{
    PredicateConfig, WatchStreamExt, predicates,
    reflector::{self, ObjectRef, Store, store::Writer},
    watcher::{self, Config, Event, watcher},
};
use parking_lot::Mutex;
use serde_json::json;

type Events = Arc<Mutex<Vec<String>>>;

/// Describes an event of `kube_runtime::watcher`.
fn describe(event: &Result<Event<ConfigMap>, watcher::Error>) -> String {
    let name = |object: &ConfigMap| format!("{}@{}", object.key().name, object.resource_version_str());
    match event {
        Ok(Event::Init) => "init".to_owned(),
        Ok(Event::InitApply(object)) => format!("init {}", name(object)),
        Ok(Event::InitDone) => "init done".to_owned(),
        Ok(Event::Apply(object)) => format!("apply {}", name(object)),
        Ok(Event::Delete(object)) => format!("delete {}", name(object)),
        Err(_) => "error".to_owned(),
    }
}

/// Runs a reflector of kube_runtime. Returns its store and the events.
fn reflect(
    events: impl Stream<Item = Result<Event<ConfigMap>, watcher::Error>> + Send + 'static,
) -> (Store<ConfigMap>, Events) {
    let (store, writer) = reflector::store();
    let seen = Events::default();
    let record = Arc::clone(&seen);
    let events = reflector::reflector(writer, events);
    tokio::spawn(events.for_each(move |event| {
        record.lock().push(describe(&event));
        std::future::ready(())
    }));
    (store, seen)
}

fn reflect_scripted(server: &FakeApiServer) -> (Store<ConfigMap>, Events) {
    let api = Api::all(Client::new(server.service(), "default"));
    reflect(watcher(api, Config::default()).default_backoff())
}

fn state(store: &Store<ConfigMap>) -> Vec<String> {
    let mut names: Vec<_> = store.state().iter().map(|object| object.key().to_string()).collect();
    names.sort();
    names
}

/// Lists of both, and a watch that expires after the first list.
fn relisted(first: &[(&str, u32)], second: &[(&str, u32)]) -> Script {
    let list = |version: u32, objects: &[(&str, u32)]| {
        (version, objects.iter().map(|(name, version)| stored(name, *version)).collect())
    };
    Script { lists: [list(5, first), list(9, second)].into(), watches: [expired()].into() }
}

#[tokio::test(start_paused = true)]
async fn indexes() {
    const TEAM: IndexName = IndexName("team");
    let client = cluster().await;
    let api = Api::<ConfigMap>::namespaced(client.clone(), "a");
    for (name, team) in [("one", "red"), ("two", "blue"), ("three", "red")] {
        let mut object = config_map("a", name);
        object["metadata"]["labels"] = json!({"team": team});
        create(&api, object).await;
    }
    let source = list_watch(Api::<ConfigMap>::all(client.clone()), ListParams::default());
    let (informer, _running) = run(Sources::One(source), |config| {
        config.indexers =
            Indexers::new().with(TEAM, |object: &ConfigMap| object.label("team").map(Into::into));
    });
    synced(&informer).await;
    assert_eq!(informer.store().by_index(TEAM, "red").len(), 2);

    let (store, _) = reflect(watcher(Api::all(client), Config::default()));
    store.wait_until_ready().await.unwrap();
    let scanned = store.state().into_iter().filter(|object| object.label("team") == Some("red"));
    assert_eq!(scanned.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn old_and_new_state() {
    let client = cluster().await;
    let api = Api::<ConfigMap>::namespaced(client.clone(), "a");
    let old = create(&api, config_map("a", "web")).await;
    let source = list_watch(Api::<ConfigMap>::namespaced(client.clone(), "a"), ListParams::default());
    let (informer, _running) = run(Sources::One(source), |_| {});
    let handler = Arc::new(RecordingHandler::new());
    informer.add_handler(handler.clone());
    synced(&informer).await;
    let (store, events) = reflect(watcher(api.clone(), Config::default()));
    store.wait_until_ready().await.unwrap();
    handler.take();
    events.lock().clear();

    let patch = Patch::Merge(json!({"data": {"key": "new"}}));
    let new = api.patch("web", &PatchParams::default(), &patch).await.unwrap();
    settle().await;
    let (old, new) = (old.resource_version_str(), new.resource_version_str());
    assert_eq!(handler.take_texts(), [format!("update a/web@{old}->{new}")]);
    assert_eq!(*events.lock(), [format!("apply web@{new}")]);
}

#[tokio::test(start_paused = true)]
async fn relist_of_unchanged_objects() {
    let (server, _) = scripted(relisted(&[("web", 3)], &[("web", 3)]));
    let (informer, _running) = run_scripted(&server);
    synced(&informer).await;
    let before = informer.store().list();
    pass(Duration::from_secs(60)).await;
    assert_eq!(server.requests().len(), 4, "{:?}", server.request_lines());
    assert!(Arc::ptr_eq(&before[0], &informer.store().list()[0]));

    let (server, _) = scripted(relisted(&[("web", 3)], &[("web", 3)]));
    let (store, _) = reflect_scripted(&server);
    store.wait_until_ready().await.unwrap();
    let before = store.state();
    pass(Duration::from_secs(60)).await;
    assert!(!Arc::ptr_eq(&before[0], &store.state()[0]));
}

#[tokio::test(start_paused = true)]
async fn missed_deletion() {
    let script = || scripted(relisted(&[("deleted", 3), ("web", 4)], &[("web", 4)])).0;
    let (informer, _running) = run_scripted(&script());
    let handler = Arc::new(RecordingHandler::new());
    informer.add_handler(handler.clone());
    pass(Duration::from_secs(60)).await;
    assert_eq!(names(&informer), ["a/web"]);
    assert!(handler.take_texts().contains(&"delete a/deleted@3 (final state unknown)".to_owned()));

    let (store, events) = reflect_scripted(&script());
    pass(Duration::from_secs(60)).await;
    assert_eq!(state(&store), ["a/web"]);
    assert_eq!(
        *events.lock(),
        ["init", "init deleted@3", "init web@4", "init done", "error", "init", "init web@4", "init done"]
    );
}

#[tokio::test(start_paused = true)]
async fn undecodable_object() {
    let mut broken = stored("broken", 4);
    broken["data"] = json!(["not", "a", "map"]);
    let script = || {
        let lists = [(5, vec![stored("web", 3), broken.clone()])].into();
        scripted(Script { lists, ..Script::default() }).0
    };
    let (informer, _running) = run_scripted(&script());
    synced(&informer).await;
    assert_eq!(names(&informer), ["a/web"]);

    let (store, events) = reflect_scripted(&script());
    pass(Duration::from_secs(60)).await;
    assert!(events.lock().iter().filter(|event| *event == "error").count() > 1);
    assert!(store.wait_until_ready().now_or_never().is_none());
    assert!(store.state().is_empty());
}

#[tokio::test(start_paused = true)]
async fn resource_version() {
    let client = cluster().await;
    let source = list_watch(Api::<ConfigMap>::all(client.clone()), ListParams::default());
    let (informer, _running) = run(Sources::One(source), |_| {});
    synced(&informer).await;
    let written = create(&Api::<ConfigMap>::namespaced(client, "a"), config_map("a", "web")).await;
    let contains_write = || {
        let version = informer.store().last_sync_resource_version().unwrap();
        !is_newer(written.resource_version_str(), &version)
    };
    assert!(!contains_write());
    settle().await;
    assert!(contains_write() && names(&informer) == ["a/web"]);
}

#[tokio::test(start_paused = true)]
async fn relist_on_demand() {
    let script = || scripted(Script { lists: [(5, vec![stored("web", 3)])].into(), ..Script::default() });
    let ((ours, ours_script), (theirs, theirs_script)) = (script(), script());
    let (informer, _running) = run_scripted(&ours);
    synced(&informer).await;
    let (store, _) = reflect_scripted(&theirs);
    store.wait_until_ready().await.unwrap();
    // The watches are silent, as on a dead connection.
    for script in [ours_script, theirs_script] {
        script.lock().lists = [(9, vec![stored("new", 8)])].into();
    }
    informer.relist().await;
    assert_eq!(names(&informer), ["a/new"]);
    assert_eq!(state(&store), ["a/web"], "until the watch ends");
}

#[tokio::test(start_paused = true)]
async fn several_namespaces() {
    let client = cluster().await;
    for namespace in ["a", "b"] {
        create(&Api::<ConfigMap>::namespaced(client.clone(), namespace), config_map(namespace, "web")).await;
    }
    let options = InformerOptions::new("configmaps").namespace("a").namespace("b");
    let (informer, _running): (SharedInformer<ConfigMap>, _) = run(sources(&client, &(), &options), |_| {});
    synced(&informer).await;
    assert_eq!(names(&informer), ["a/web", "b/web"]);

    let list = |namespace| {
        let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        // Start, one object, end.
        watcher(api, Config::default()).take(3)
    };
    let (store, events) = reflect(list("a").chain(list("b")));
    settle().await;
    assert_eq!(events.lock().len(), 6);
    assert_eq!(state(&store), ["b/web"]);
}

#[tokio::test(start_paused = true)]
async fn slow_subscriber() {
    let change = |n: u32| format!("{}\n", json!({"type": "MODIFIED", "object": stored("web", n)}));
    let script = || {
        let watches = [FakeResponse::endless((10..20).map(change))].into();
        scripted(Script { lists: [(5, vec![stored("web", 3)])].into(), watches }).0
    };
    let (informer, _running) = run_scripted(&script());
    let slow = touched_objects(&informer);
    let fast = Arc::new(RecordingHandler::new());
    informer.add_handler(fast.clone());
    settle().await;
    assert_eq!(fast.take().len(), 11);
    let slow: Vec<_> = Box::pin(slow).ready_chunks(100).next().await.unwrap();
    assert_eq!(slow.iter().map(|object| object.resource_version_str()).collect::<Vec<_>>(), ["19"]);

    let writer = Writer::<ConfigMap>::new_shared(2, ());
    let (_slow, mut fast) = (writer.subscribe().unwrap(), writer.subscribe().unwrap());
    let reader = fast.reader();
    let api = Api::<ConfigMap>::all(Client::new(script().service(), "default"));
    tokio::spawn(watcher(api, Config::default()).reflect_shared(writer).for_each(|_| std::future::ready(())));
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    tokio::spawn(async move {
        while fast.next().await.is_some() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    pass(Duration::from_secs(60)).await;
    assert!(seen.load(Ordering::SeqCst) < 11, "{seen:?}");
    assert_ne!(reader.state()[0].resource_version_str(), "19");
}

#[derive(Default)]
struct Failures(AtomicUsize);

impl InformerMetrics for Failures {
    fn request_failed(&self, _: &str, _: &ListWatchError) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn errors_in_the_stream() {
    let server = FakeApiServer::new(|_| FakeResponse::failure(403, "Forbidden", "configmaps is forbidden"));
    let client = Client::new(server.service(), "default");
    let failures = Arc::new(Failures::default());
    let source = list_watch(Api::<ConfigMap>::all(client.clone()), ListParams::default());
    let (informer, _running) = run(Sources::One(source), |config| config.metrics = failures.clone());
    pass(Duration::from_secs(60)).await;
    assert!(failures.0.load(Ordering::SeqCst) > 1 && !informer.has_synced());

    let mut events = Box::pin(watcher(Api::<ConfigMap>::all(client), Config::default()).default_backoff());
    let errors = [events.next().await.unwrap(), events.next().await.unwrap(), events.next().await.unwrap()];
    assert_eq!(errors.map(|event| describe(&event)), ["init", "error", "init"]);
}

#[tokio::test(start_paused = true)]
async fn driven_by_its_consumer() {
    let (server, _) = scripted(Script { lists: [(5, vec![stored("web", 3)])].into(), ..Script::default() });
    let api = Api::<ConfigMap>::all(Client::new(server.service(), "default"));
    let mut events = Box::pin(watcher(api, Config::default()));
    settle().await;
    assert!(server.requests().is_empty());
    while describe(&events.next().await.unwrap()) != "init done" {}
    assert_eq!(server.requests().len(), 1);

    let (informer, _running) = run_scripted(&server);
    settle().await;
    assert_eq!(names(&informer), ["a/web"]);
}

#[tokio::test(start_paused = true)]
async fn combinators() {
    let (server, _) = scripted(Script {
        lists: [(5, vec![stored("web", 3)])].into(),
        watches: [FakeResponse::endless([
            format!("{}\n", json!({"type": "MODIFIED", "object": stored("web", 6)})),
            format!("{}\n", json!({"type": "DELETED", "object": stored("web", 7)})),
        ])]
        .into(),
    });
    let names = |objects: Vec<Result<ConfigMap, watcher::Error>>| -> Vec<String> {
        objects.into_iter().map(|object| object.unwrap().resource_version_str().to_owned()).collect()
    };
    let predicate = || predicates::labels::<ConfigMap>;
    let api = Api::<ConfigMap>::all(Client::new(server.service(), "default"));
    let events = watcher(api, Config::default()).touched_objects();
    let events = events.predicate_filter(predicate(), PredicateConfig::default());
    assert_eq!(names(events.take(1).collect().await), ["3"]);

    let (server, _) = scripted(Script { lists: [(5, vec![stored("web", 3)])].into(), ..Script::default() });
    let (informer, _running) = run_scripted(&server);
    let events = kcm_kube::watcher(&informer).touched_objects();
    let events = events.predicate_filter(predicate(), PredicateConfig::default());
    assert_eq!(names(events.take(1).collect().await), ["3"]);
}

#[tokio::test(start_paused = true)]
async fn single_object() {
    let client = cluster().await;
    let api = Api::<ConfigMap>::namespaced(client.clone(), "a");
    create(&api, config_map("a", "other")).await;
    let mut object = Box::pin(watcher::watch_object(api.clone(), "web"));
    assert!(object.next().await.unwrap().unwrap().is_none());
    let source = list_watch(api.clone(), ListParams::default().fields("metadata.name=web"));
    let (informer, _running) = run(Sources::One(source), |_| {});
    synced(&informer).await;
    assert!(informer.store().is_empty());

    create(&api, config_map("a", "web")).await;
    assert!(object.next().await.unwrap().unwrap().is_some());
    settle().await;
    assert!(informer.store().get(&ObjectKey::new("a", "web")).is_some());
    api.delete("web", &DeleteParams::default()).await.unwrap();
    assert!(object.next().await.unwrap().unwrap().is_none());
    settle().await;
    assert!(informer.store().is_empty());
}

/// The stream of an informer keeps a store of kube_runtime in step.
#[tokio::test(start_paused = true)]
async fn watcher_of_an_informer() {
    let (server, _) = scripted(Script {
        lists: [(5, vec![stored("a", 3), stored("b", 4)])].into(),
        watches: [FakeResponse::endless([
            format!("{}\n", json!({"type": "DELETED", "object": stored("a", 6)})),
            format!("{}\n", json!({"type": "ADDED", "object": stored("c", 7)})),
        ])]
        .into(),
    });
    let (informer, _running) = run_scripted(&server);
    let (store, events) = reflect(kcm_kube::watcher(&informer));
    store.wait_until_ready().await.unwrap();
    settle().await;
    assert_eq!(state(&store), names(&informer));
    assert!(store.get(&ObjectRef::new("c").within("a")).is_some());
    assert_eq!(events.lock().last().unwrap(), "apply c@7");
}
