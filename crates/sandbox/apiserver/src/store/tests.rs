use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{LabelSelector, ListOptions, ResourceVersionMatch, Selection};

const PODS: Resource = Resource::PODS;

fn store(events: usize) -> Store {
    Store::new(1, HistoryLimits { events, bytes: 1 << 20 })
}

fn write(store: &Store, namespace: &str, name: &str, value: impl Into<Option<Value>>) -> UpdateResult {
    let value = value.into();
    store
        .update(
            PODS,
            &key(namespace, name),
            Commit::Real,
            Timestamp::UNIX_EPOCH,
            |old| {
                Ok(match (&value, old) {
                    (Some(value), _) => Decision::Put(value.clone()),
                    (None, Some(old)) => Decision::Remove(old.value().clone()),
                    (None, None) => Decision::Keep,
                })
            },
            |_| Ok(()),
        )
        .unwrap()
}

fn pod(namespace: &str, name: &str, app: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}"), "labels": {"app": app}}})
}

fn put(store: &Store, name: &str, app: &str) -> u64 {
    match write(store, "a", name, Some(pod("a", name, app))) {
        UpdateResult::Put(object) => object.revision(),
        other => panic!("{other:?}"),
    }
}

fn remove(store: &Store, name: &str) {
    assert!(matches!(write(store, "a", name, None), UpdateResult::Removed(_)));
}

fn names(list: &ObjectList) -> Vec<String> {
    list.items.iter().map(|object| object.name().to_owned()).collect()
}

fn label(app: &str) -> Selection {
    Selection::labels(&format!("app={app}")).unwrap()
}

#[test]
fn write_increments_revision() {
    let store = store(10);
    assert_eq!(put(&store, "x", "web"), 2);
    assert_eq!(put(&store, "x", "db"), 3);
    let object = store.get(PODS, "a/x").unwrap();
    assert_eq!(object.value()["metadata"]["resourceVersion"], "3");
    assert_eq!(store.revision(), 3);
}

#[test]
fn dry_run_writes_nothing() {
    let store = store(10);
    put(&store, "x", "web");
    let changed = pod("a", "x", "db");
    let decide = |_: Option<&Arc<Object>>| Ok(Decision::Put(changed.clone()));
    let outcome =
        store.update(PODS, &key("a", "x"), Commit::Dry, Timestamp::UNIX_EPOCH, decide, |_| Ok(())).unwrap();
    assert!(matches!(outcome, UpdateResult::Put(object) if object.label("app") == Some("db")));
    assert_eq!(store.get(PODS, "a/x").unwrap().label("app"), Some("web"));
    assert_eq!(store.revision(), 2);
}

#[test]
fn conflicting_update_is_decided_again() {
    let store = store(10);
    put(&store, "x", "0");
    let mut seen = Vec::new();
    let decide = |old: Option<&Arc<Object>>| {
        let app = old.and_then(|old| old.label("app")).unwrap_or_default().to_owned();
        seen.push(app.clone());
        if seen.len() == 1 {
            put(&store, "x", "1");
        }
        Ok(Decision::Put(pod("a", "x", &format!("{app}+"))))
    };
    store.update(PODS, &key("a", "x"), Commit::Real, Timestamp::UNIX_EPOCH, decide, |_| Ok(())).unwrap();
    assert_eq!(seen, ["0", "1"]);
    assert_eq!(store.get(PODS, "a/x").unwrap().label("app"), Some("1+"));
}

#[test]
fn update_fails_after_too_many_conflicts() {
    let store = store(10);
    put(&store, "x", "web");
    let mut attempts = 0;
    let decide = |_: Option<&Arc<Object>>| {
        attempts += 1;
        put(&store, "x", "db");
        Ok(Decision::Put(pod("a", "x", "never")))
    };
    let result = store.update(PODS, &key("a", "x"), Commit::Real, Timestamp::UNIX_EPOCH, decide, |_| Ok(()));
    let error = result.unwrap_err();
    assert_eq!(
        (error.code(), error.message.as_str()),
        (
            409,
            "Operation cannot be fulfilled on pods \"x\": the object has been modified; please apply your changes to \
             the latest version and try again"
        )
    );
    assert_eq!(attempts, MAX_ATTEMPTS);
    assert_eq!(store.get(PODS, "a/x").unwrap().label("app"), Some("db"));
}

#[test]
fn guard_prevents_write() {
    let store = store(10);
    let decide = |_: Option<&Arc<Object>>| Ok(Decision::Put(pod("a", "x", "web")));
    let guard = |_: &State| Err(ApiStatus::bad_request("no"));
    assert!(store.update(PODS, &key("a", "x"), Commit::Real, Timestamp::UNIX_EPOCH, decide, guard).is_err());
    assert_eq!(store.revision(), 1);
}

#[test]
fn owner_index_is_updated() {
    let store = store(10);
    let owned = |owners: &[&str]| {
        let references: Vec<Value> = owners.iter().map(|uid| json!({"uid": uid})).collect();
        let mut pod = pod("a", "x", "web");
        pod["metadata"]["ownerReferences"] = json!(references);
        pod
    };
    write(&store, "a", "x", Some(owned(&["1", "2"])));
    assert_eq!(store.dependents("1").len(), 1);
    write(&store, "a", "x", Some(owned(&["2"])));
    assert!(store.dependents("1").is_empty());
    assert_eq!(store.dependents("2")[0].name(), "x");
    assert_eq!(store.by_uid("a-x").unwrap().name(), "x");
    remove(&store, "x");
    assert!(store.dependents("2").is_empty());
    assert!(store.by_uid("a-x").is_none());
}

#[test]
fn namespaces_with_common_prefix_are_distinct() {
    let store = store(10);
    for namespace in ["a", "a-b", "a0", "b"] {
        write(&store, namespace, "x", Some(pod(namespace, "x", "web")));
    }
    let list = store.list(PODS, "a", &ListOptions::default()).unwrap();
    assert_eq!(list.items.len(), 1);
    assert_eq!(list.items[0].namespace(), "a");
    let all = store.list(PODS, "", &ListOptions::default()).unwrap();
    let order: Vec<&str> = all.items.iter().map(|object| object.namespace()).collect();
    assert_eq!(order, ["a-b", "a", "a0", "b"], "bytewise by namespace/name");
}

#[test]
fn pages_show_one_revision() {
    let store = store(10);
    for name in ["p1", "p3", "p5"] {
        put(&store, name, "web");
    }
    let first = store.list(PODS, "a", &ListOptions { limit: 1, ..ListOptions::default() }).unwrap();
    assert_eq!((names(&first), first.remaining), (vec!["p1".to_owned()], Some(2)));
    put(&store, "p2", "web");
    remove(&store, "p3");
    put(&store, "p5", "db");
    let next = ListOptions { limit: 5, continue_token: first.continue_token, ..ListOptions::default() };
    let second = store.list(PODS, "a", &next).unwrap();
    assert_eq!(names(&second), ["p3", "p5"]);
    assert_eq!(second.items[1].label("app"), Some("web"));
    assert_eq!((second.revision, second.continue_token), (first.revision, None));
}

#[test]
fn expired_page_offers_inconsistent_continuation() {
    let store = store(2);
    for name in ["p1", "p2", "p3"] {
        put(&store, name, "web");
    }
    let first = store.list(PODS, "a", &ListOptions { limit: 1, ..ListOptions::default() }).unwrap();
    for _ in 0..3 {
        put(&store, "p3", "db");
    }
    let next = ListOptions { continue_token: first.continue_token, ..ListOptions::default() };
    let error = store.list(PODS, "a", &next).unwrap_err();
    assert!(error.is_expired());
    let rest = ListOptions { continue_token: error.continue_token, ..ListOptions::default() };
    let rest = store.list(PODS, "a", &rest).unwrap();
    assert_eq!(names(&rest), ["p2", "p3"]);
    assert_eq!(rest.revision, store.revision());
}

#[test]
fn future_revisions_and_invalid_tokens_fail() {
    let store = store(2);
    let future = ListOptions { resource_version: Some(99), ..ListOptions::default() };
    assert_eq!(store.list(PODS, "", &future).unwrap_err().code(), 504);
    for token in ["x", "e30", "!!!", "eyJ2IjoieCIsInJ2IjoxLCJzdGFydCI6ImEifQ"] {
        let options = ListOptions { continue_token: Some(token.to_owned()), ..ListOptions::default() };
        assert_eq!(store.list(PODS, "", &options).unwrap_err().code(), 400, "{token}");
    }
}

#[test]
fn watcher_with_selector_reports_matching_changes() {
    let store = store(10);
    put(&store, "x", "db");
    let mut watcher = store.watch(Some(PODS), "", label("web"), WatchStart::Now);
    put(&store, "x", "web");
    put(&store, "x", "web");
    let left = put(&store, "x", "db");
    assert!(matches!(watcher.try_next().unwrap(), Some(WatchEvent::Added(_))));
    assert!(matches!(watcher.try_next().unwrap(), Some(WatchEvent::Modified(_))));
    let Some(WatchEvent::Deleted(last)) = watcher.try_next().unwrap() else { panic!("not deleted") };
    assert_eq!(last.label("app"), Some("web"), "the state that matched");
    assert_eq!((last.revision(), last.value()["metadata"]["resourceVersion"].as_str()), (left, Some("5")));
    assert_eq!(watcher.try_next().unwrap(), None);
    assert_eq!(watcher.revision(), store.revision());
}

#[test]
fn removal_has_its_own_revision() {
    let store = store(10);
    let written = put(&store, "x", "web");
    let mut watcher = store.watch(Some(PODS), "", Selection::default(), WatchStart::After(written));
    remove(&store, "x");
    let Some(WatchEvent::Deleted(last)) = watcher.try_next().unwrap() else { panic!("not deleted") };
    assert_eq!(last.revision(), written + 1);
    assert_eq!(last.label("app"), Some("web"));
}

#[test]
fn watcher_of_quiet_resource_does_not_expire() {
    let store = store(4);
    let mut nodes = store.watch(Some(Resource::NODES), "", Selection::default(), WatchStart::Now);
    let mut pods = store.watch(Some(PODS), "", Selection::default(), WatchStart::Now);
    for _ in 0..20 {
        put(&store, "x", "web");
    }
    assert_eq!(nodes.try_next().unwrap(), None);
    assert!(pods.try_next().unwrap_err().is_expired());
    assert!(pods.try_next().unwrap_err().is_expired(), "for good");
}

#[tokio::test]
async fn watcher_is_woken_by_write() {
    let store = store(10);
    let mut watcher = store.watch(Some(PODS), "", Selection::default(), WatchStart::Initial);
    assert!(matches!(watcher.next().await.unwrap(), WatchEvent::InitialEventsEnd(1)));
    let waiting = tokio::spawn(async move { watcher.next().await });
    tokio::task::yield_now().await;
    put(&store, "x", "web");
    assert!(matches!(waiting.await.unwrap().unwrap(), WatchEvent::Added(_)));
}

/// State of a client that lists, watches and relists after 410.
struct Replica {
    watcher: Watcher,
    selection: Selection,
    namespace: &'static str,
    objects: BTreeMap<String, Arc<Object>>,
    revision: u64,
}

impl Replica {
    fn new(store: &Store, namespace: &'static str, selection: Selection) -> Self {
        let watcher = store.watch(Some(PODS), namespace, selection.clone(), WatchStart::Initial);
        Self { watcher, selection, namespace, objects: BTreeMap::new(), revision: 0 }
    }

    /// Reads up to `count` events.
    fn catch_up(&mut self, store: &Store, count: usize) {
        for _ in 0..count {
            match self.watcher.try_next() {
                Ok(None) => break,
                Ok(Some(event)) => self.apply(event),
                Err(error) => {
                    assert!(error.is_expired(), "{error}");
                    self.relist(store);
                }
            }
        }
    }

    fn apply(&mut self, event: WatchEvent) {
        let key = |object: &Object| format!("{}/{}", object.namespace(), object.name());
        if self.watcher.revision() > 0 && !matches!(event, WatchEvent::InitialEventsEnd(_)) {
            assert!(event.revision() > self.revision, "revisions go up");
            self.revision = event.revision();
        }
        match event {
            WatchEvent::Added(object) => {
                assert!(self.objects.insert(key(&object), object).is_none(), "added once");
            }
            WatchEvent::Modified(object) => {
                assert!(self.objects.insert(key(&object), object).is_some(), "added before");
            }
            WatchEvent::Deleted(object) => {
                assert!(self.objects.remove(&key(&object)).is_some(), "added before");
            }
            WatchEvent::InitialEventsEnd(revision) => self.revision = revision,
        }
    }

    fn relist(&mut self, store: &Store) {
        let list = self.list(store);
        self.revision = list.revision;
        self.objects = list
            .items
            .into_iter()
            .map(|object| (format!("{}/{}", object.namespace(), object.name()), object))
            .collect();
        let start = WatchStart::After(list.revision);
        self.watcher = store.watch(Some(PODS), self.namespace, self.selection.clone(), start);
    }

    fn list(&self, store: &Store) -> ObjectList {
        let options = ListOptions { selection: self.selection.clone(), ..ListOptions::default() };
        store.list(PODS, self.namespace, &options).unwrap()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put { namespace: usize, name: usize, app: usize },
    Remove { namespace: usize, name: usize },
    Read { replica: usize, count: usize },
    Cut { replica: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..2_usize, 0..5_usize, 0..3_usize).prop_map(|(namespace, name, app)| Step::Put { namespace, name, app }),
        2 => (0..2_usize, 0..5_usize).prop_map(|(namespace, name)| Step::Remove { namespace, name }),
        4 => (0..4_usize, 1..20_usize).prop_map(|(replica, count)| Step::Read { replica, count }),
        1 => (0..4_usize).prop_map(|replica| Step::Cut { replica }),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// A replayed watch equals a list, despite reconnects and 410.
    #[test]
    fn replayed_watch_equals_the_list(steps in steps(), history in 1..40_usize) {
        let store = store(history);
        let mut replicas = [
            Replica::new(&store, "", Selection::default()),
            Replica::new(&store, "a", Selection::default()),
            Replica::new(&store, "", label("web")),
            Replica::new(&store, "b", Selection { labels: LabelSelector::parse("app in (web,db)").unwrap(), ..Selection::default() }),
        ];
        for step in steps {
            match step {
                Step::Put { namespace, name, app } => {
                    let (namespace, name, app) = (["a", "b"][namespace], format!("p{name}"), ["web", "db", "x"][app]);
                    write(&store, namespace, &name, Some(pod(namespace, &name, app)));
                }
                Step::Remove { namespace, name } => {
                    write(&store, ["a", "b"][namespace], &format!("p{name}"), None);
                }
                Step::Read { replica, count } => replicas[replica].catch_up(&store, count),
                Step::Cut { replica } => {
                    // Reconnect: the client resumes after the last event.
                    let replica = &mut replicas[replica];
                    if replica.watcher.revision() > 0 {
                        let start = WatchStart::After(replica.revision);
                        replica.watcher = store.watch(Some(PODS), replica.namespace, replica.selection.clone(), start);
                    }
                }
            }
        }
        for replica in &mut replicas {
            replica.catch_up(&store, usize::MAX);
            let listed = replica.list(&store);
            prop_assert_eq!(&listed.items, &replica.objects.values().cloned().collect::<Vec<_>>());
            prop_assert_eq!(replica.watcher.revision(), listed.revision);
        }
    }

    /// A list of an earlier revision shows that revision, with any page size.
    #[test]
    fn earlier_revision_is_listed_in_pages(steps in steps(), limit in 1..4_usize) {
        let store = store(1000);
        let mut states: BTreeMap<u64, Vec<Arc<Object>>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put { name, app, .. } => {
                    put(&store, &format!("p{name}"), ["web", "db", "x"][app]);
                }
                Step::Remove { name, .. } => {
                    write(&store, "a", &format!("p{name}"), None);
                }
                _ => {}
            }
            let list = store.list(PODS, "a", &ListOptions::default()).unwrap();
            states.insert(list.revision, list.items);
        }
        for (revision, expected) in states {
            let mut options = ListOptions {
                limit,
                resource_version: Some(revision),
                version_match: Some(ResourceVersionMatch::Exact),
                ..ListOptions::default()
            };
            let mut found = Vec::new();
            loop {
                let page = store.list(PODS, "a", &options).unwrap();
                prop_assert_eq!(page.revision, revision);
                found.extend(page.items);
                let Some(token) = page.continue_token else { break };
                options = ListOptions { limit, continue_token: Some(token), ..ListOptions::default() };
            }
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
fn restored_backup_has_lower_revisions_and_ends_watches() {
    let store = store(100);
    put(&store, "kept", "web");
    put(&store, "changed", "web");
    let backup = store.back_up();
    let mut watcher = store.watch(Some(PODS), "", Selection::default(), WatchStart::Now);
    put(&store, "changed", "api");
    put(&store, "new", "web");
    remove(&store, "kept");
    let before = store.revision();
    store.restore_backup(&backup);

    assert!(store.revision() < before);
    let list = store.list(PODS, "", &ListOptions::default()).unwrap();
    assert_eq!(names(&list), ["changed", "kept"]);
    assert_eq!(list.items[0].value()["metadata"]["labels"]["app"], "web");
    assert!(watcher.try_next().unwrap_err().is_expired());
    // A client that continues where it was.
    let mut watcher = store.watch(Some(PODS), "", Selection::default(), WatchStart::After(before));
    assert!(watcher.try_next().unwrap_err().is_expired());
    let mut watcher = store.watch(Some(PODS), "", Selection::default(), WatchStart::Now);
    assert_eq!(put(&store, "later", "web"), store.revision());
    assert!(matches!(watcher.try_next(), Ok(Some(WatchEvent::Added(_)))));
}
