use super::*;
use crate::test_object::{OWNER, TAGS, TestObject, indexers, key, object};

fn writer() -> StoreWriter<TestObject> {
    StoreWriter::new(indexers())
}

fn names(objects: &[Arc<TestObject>]) -> Vec<&str> {
    objects.iter().map(|object| &*object.key.name).collect()
}

fn apply(writer: &mut StoreWriter<TestObject>, thing: TestObject) -> Option<Arc<TestObject>> {
    writer.apply(Arc::new(thing))
}

#[test]
fn store_applied_to_has_the_newest_of_each_object() {
    let mut writer = writer();
    let store = writer.reader();
    assert_eq!(apply(&mut writer, object("a").at("1")), None);
    assert_eq!(apply(&mut writer, object("b").at("2")), None);
    let old = apply(&mut writer, object("a").at("3")).unwrap();
    assert_eq!(old.version, "1");
    assert_eq!(store.get(&key("a")).unwrap().version, "3");
    assert_eq!(names(&store.list()), ["a", "b"]);
    assert_eq!(store.len(), 2);
    assert_eq!(store.get(&key("c")), None);
    assert_eq!(store.get(&ObjectKey::new("elsewhere", "a")), None);
}

#[test]
fn sample_of_a_store_is_from_all_over_it_and_no_larger_than_asked_for() {
    let mut writer = writer();
    let store = writer.reader();
    assert!(store.sample(3).is_empty());
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        apply(&mut writer, object(name));
    }
    assert_eq!(names(&store.sample(3)), ["a", "d", "g"]);
    assert_eq!(store.sample(100).len(), 7);
    assert!(store.sample(0).is_empty());
}

#[test]
fn store_removed_from_no_longer_has_the_object_and_takes_its_place_again() {
    let mut writer = writer();
    let store = writer.reader();
    for name in ["a", "b", "c"] {
        apply(&mut writer, object(name).owned_by("o"));
    }
    assert_eq!(writer.remove(&key("b"), Some("9")).unwrap().key, key("b"));
    assert_eq!(writer.remove(&key("b"), None), None);
    assert_eq!(names(&store.by_index(OWNER, "o")), ["a", "c"]);
    apply(&mut writer, object("d").owned_by("o"));
    assert_eq!(names(&store.list()), ["a", "d", "c"]);
    assert_eq!(names(&store.by_index(OWNER, "o")), ["a", "d", "c"]);
}

#[test]
fn index_of_an_object_that_changes_owner_follows() {
    let mut writer = writer();
    let store = writer.reader();
    apply(&mut writer, object("a").owned_by("x"));
    apply(&mut writer, object("b").owned_by("x"));
    apply(&mut writer, object("a").owned_by("y"));
    assert_eq!(names(&store.by_index(OWNER, "x")), ["b"]);
    assert_eq!(names(&store.by_index(OWNER, "y")), ["a"]);
    apply(&mut writer, object("a"));
    assert_eq!(store.index_len(OWNER, "y"), 0);
    assert_eq!(store.get(&key("a")).unwrap().owner, None);
}

#[test]
fn index_gives_the_current_state_when_the_value_stays() {
    let mut writer = writer();
    apply(&mut writer, object("a").owned_by("x").at("1"));
    apply(&mut writer, object("a").owned_by("x").at("2"));
    let found = writer.reader().by_index(OWNER, "x");
    assert_eq!(found.iter().map(|thing| &*thing.version).collect::<Vec<_>>(), ["2"]);
}

#[test]
fn index_left_by_its_last_object_keeps_nothing() {
    let mut writer = writer();
    let store = writer.reader();
    apply(&mut writer, object("a").owned_by("x").tagged(&["t", "u"]));
    apply(&mut writer, object("b").owned_by("x").tagged(&["t"]));
    writer.remove(&key("a"), None);
    assert_eq!(store.index_values(TAGS), [Arc::from("t")]);
    assert_eq!(store.index_values(OWNER), [Arc::from("x")]);
    apply(&mut writer, object("b"));
    assert!(store.index_values(TAGS).is_empty());
    assert!(store.index_values(OWNER).is_empty());
}

#[test]
fn index_with_several_values_finds_the_object_once_under_each() {
    let mut writer = writer();
    let store = writer.reader();
    apply(&mut writer, object("a").tagged(&["t", "u", "t"]));
    assert_eq!(store.index_len(TAGS, "t"), 1);
    apply(&mut writer, object("a").tagged(&["u", "v"]));
    let found = ["t", "u", "v"].map(|tag| store.index_len(TAGS, tag));
    assert_eq!(found, [0, 1, 1]);
}

#[test]
fn indexers_with_the_same_name_twice_keep_the_second() {
    let indexers = indexers().with(OWNER, |thing: &TestObject| Some(Arc::clone(&thing.uid)));
    let mut writer = StoreWriter::new(indexers);
    apply(&mut writer, object("a").owned_by("x"));
    assert_eq!(writer.reader().index_len(OWNER, "x"), 0);
    assert_eq!(writer.reader().index_len(OWNER, "a"), 1);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "no index named \"nonsense\"")]
fn index_that_does_not_exist_is_noticed_in_debug_builds() {
    writer().reader().by_index(IndexName("nonsense"), "x");
}

#[test]
fn namespace_is_listed_with_and_without_its_index() {
    for indexers in [Indexers::new(), Indexers::new().with_namespace()] {
        let mut writer = StoreWriter::new(indexers);
        let elsewhere = TestObject { key: ObjectKey::new("elsewhere", "c"), ..object("c") };
        for thing in [object("a"), elsewhere, object("b")] {
            apply(&mut writer, thing);
        }
        let store = writer.reader();
        assert_eq!(names(&store.list_namespace("ns")), ["a", "b"]);
        assert_eq!(names(&store.list_namespace("elsewhere")), ["c"]);
        assert!(store.list_namespace("nowhere").is_empty());
    }
}

#[test]
fn version_is_the_newest_of_objects_bookmarks_deletions_and_lists() {
    let mut writer = writer();
    let store = writer.reader();
    let version = || store.last_sync_resource_version();
    assert_eq!(version(), None);
    apply(&mut writer, object("a").at("3"));
    assert_eq!(version().as_deref(), Some("3"));
    writer.bookmark("10");
    assert_eq!(version().as_deref(), Some("10"));
    writer.remove(&key("a"), Some("11"));
    assert_eq!(version().as_deref(), Some("11"));
    let snapshot = writer.snapshot();
    writer.commit(snapshot, "12");
    assert_eq!(version().as_deref(), Some("12"));
    writer.bookmark("");
    assert_eq!(version().as_deref(), Some("12"), "no version is no news");
}

#[test]
fn commit_replaces_the_whole_and_tells_what_changed() {
    let mut writer = writer();
    let store = writer.reader();
    for name in ["same", "gone", "changed", "another"] {
        apply(&mut writer, object(name).at("1").owned_by(name));
    }
    assert!(!store.is_synced());
    let same = store.get(&key("same")).unwrap();
    let mut snapshot = writer.snapshot();
    snapshot.insert(object("new").at("5").owned_by("new"));
    snapshot.insert(object("same").at("1").owned_by("same"));
    snapshot.insert(object("changed").at("6").owned_by("x"));
    snapshot.insert(object("another").at("1").uid("2").owned_by("another"));
    assert_eq!(store.len(), 4, "nothing changes before the commit");
    let replaced = writer.commit(snapshot, "7");

    assert_eq!(names(&replaced.deleted), ["gone"]);
    let present: Vec<_> = replaced
        .present
        .iter()
        .map(|(old, new)| (old.as_ref().map(|old| &*old.version), &*new.key.name, &*new.version))
        .collect();
    assert_eq!(
        present,
        [
            (None, "new", "5"),
            (Some("1"), "same", "1"),
            (Some("1"), "changed", "6"),
            (Some("1"), "another", "1"),
        ]
    );
    assert_eq!(names(&store.list()), ["new", "same", "changed", "another"]);
    assert_eq!(&*store.get(&key("another")).unwrap().uid, "2");
    assert_eq!(names(&store.by_index(OWNER, "x")), ["changed"]);
    for stale in ["gone", "changed"] {
        assert_eq!(store.index_len(OWNER, stale), 0, "{stale}");
    }
    assert!(Arc::ptr_eq(&same, &store.get(&key("same")).unwrap()), "no second copy of what is unchanged");
    assert!(store.is_synced());
}

#[test]
fn commit_with_an_object_twice_takes_the_last() {
    let mut writer = writer();
    let mut snapshot = writer.snapshot();
    snapshot.insert(object("a").at("1"));
    snapshot.insert(object("a").at("2"));
    let replaced = writer.commit(snapshot, "2");
    assert_eq!(replaced.present.len(), 1);
    assert_eq!(writer.reader().get(&key("a")).unwrap().version, "2");
}

#[test]
fn commit_of_objects_without_versions_takes_the_new_ones() {
    let mut writer = writer();
    apply(&mut writer, object("a").owned_by("x"));
    let mut snapshot = writer.snapshot();
    snapshot.insert(object("a").owned_by("y"));
    writer.commit(snapshot, "");
    assert_eq!(writer.reader().index_len(OWNER, "y"), 1);
}

#[test]
fn commit_keeps_what_cannot_be_read_as_it_was_known() {
    let mut writer = writer();
    let store = writer.reader();
    apply(&mut writer, object("known").at("1").owned_by("o"));
    apply(&mut writer, object("read").at("1"));
    apply(&mut writer, object("gone").at("1"));
    let mut snapshot = writer.snapshot();
    for name in ["known", "unknown", "read", "gone"] {
        snapshot.keep(key(name));
    }
    snapshot.insert(object("read").at("2"));
    snapshot.remove(&key("gone"));
    let replaced = writer.commit(snapshot, "3");
    assert_eq!(names(&replaced.deleted), ["gone"]);
    assert_eq!(store.get(&key("known")).unwrap().version, "1");
    assert_eq!(store.index_len(OWNER, "o"), 1);
    assert_eq!(store.get(&key("read")).unwrap().version, "2");
    assert_eq!(store.get(&key("unknown")), None);
    assert_eq!(store.len(), 2);
}

#[test]
fn version_read_beside_a_writer_is_never_ahead_of_the_objects() {
    const WRITES: u32 = 20_000;
    let mut writer = writer();
    let store = writer.reader();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 1..=WRITES {
                let version = n.to_string();
                if n % 10 == 0 {
                    let mut snapshot = writer.snapshot();
                    snapshot.insert(object("a").at(&version).owned_by("o"));
                    writer.commit(snapshot, &version);
                } else {
                    writer.apply(Arc::new(object("a").at(&version).owned_by("o")));
                }
            }
        });
        let number = |version: &str| version.parse::<u32>().unwrap();
        loop {
            let covered = store.last_sync_resource_version().map_or(0, |version| number(&version));
            let by_key = store.get(&key("a")).map_or(0, |thing| number(&thing.version));
            let by_owner = store.by_index(OWNER, "o").first().map_or(0, |thing| number(&thing.version));
            assert!(covered <= by_key && by_key <= by_owner, "{covered} {by_key} {by_owner}");
            if covered == WRITES {
                break;
            }
        }
    });
}

/// Against a map that looks at every object: any order of writes, any index.
mod model {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Write {
        Apply(u8, Option<u8>, Vec<u8>),
        Remove(u8),
        Replace(Vec<(u8, Option<u8>)>),
    }

    fn write() -> impl Strategy<Value = Write> {
        let owner = || proptest::option::of(0..4_u8);
        prop_oneof![
            6 => (0..20_u8, owner(), proptest::collection::vec(0..3_u8, 0..3))
                .prop_map(|(name, owner, tags)| Write::Apply(name, owner, tags)),
            3 => (0..20_u8).prop_map(Write::Remove),
            1 => proptest::collection::vec((0..20_u8, owner()), 0..15).prop_map(Write::Replace),
        ]
    }

    fn make(name: u8, owner: Option<u8>, tags: &[u8]) -> TestObject {
        let tags: Vec<_> = tags.iter().map(|tag| Arc::from(tag.to_string())).collect();
        TestObject { owner: owner.map(|owner| owner.to_string().into()), tags, ..object(&name.to_string()) }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn store_written_at_random_agrees_with_a_scan(writes in proptest::collection::vec(write(), 1..80)) {
            let mut writer = writer();
            let store = writer.reader();
            let mut model = BTreeMap::<ObjectKey, TestObject>::new();
            for (version, write) in writes.into_iter().enumerate() {
                match write {
                    Write::Apply(name, owner, tags) => {
                        let thing = make(name, owner, &tags);
                        model.insert(thing.key.clone(), thing.clone());
                        apply(&mut writer, thing);
                    }
                    Write::Remove(name) => {
                        let key = key(&name.to_string());
                        let removed = writer.remove(&key, None).map(|thing| (*thing).clone());
                        prop_assert_eq!(removed, model.remove(&key));
                    }
                    Write::Replace(things) => {
                        model.clear();
                        let mut snapshot = writer.snapshot();
                        for (n, (name, owner)) in things.into_iter().enumerate() {
                            let thing = make(name, owner, &[]).at(&format!("{version}{n:02}"));
                            model.insert(thing.key.clone(), thing.clone());
                            snapshot.insert(thing);
                        }
                        writer.commit(snapshot, "");
                    }
                }
                let sorted = |mut things: Vec<Arc<TestObject>>| {
                    things.sort_by(|a, b| a.key.cmp(&b.key));
                    things.into_iter().map(|thing| (*thing).clone()).collect::<Vec<_>>()
                };
                let scan = |by: &dyn Fn(&TestObject) -> bool| model.values().filter(|t| by(t)).cloned().collect::<Vec<_>>();
                prop_assert_eq!(sorted(store.list()), scan(&|_| true));
                for value in ["0", "1", "2", "3"] {
                    let owned = scan(&|thing| thing.owner.as_deref() == Some(value));
                    prop_assert_eq!(store.index_len(OWNER, value), owned.len());
                    prop_assert_eq!(sorted(store.by_index(OWNER, value)), owned);
                    let tagged = scan(&|thing| thing.tags.iter().any(|tag| &**tag == value));
                    prop_assert_eq!(sorted(store.by_index(TAGS, value)), tagged);
                }
            }
        }
    }
}
