use super::*;
use crate::test_object::{OWNER, TAGS, TestObject, indexers, key, object};

fn writer() -> StoreWriter<TestObject> {
    StoreWriter::new(indexers())
}

fn names(objects: &[Arc<TestObject>]) -> Vec<&str> {
    objects.iter().map(|object| &*object.key.name).collect()
}

/// Returns the number of objects with `value` in `index`.
fn count(store: &Store<TestObject>, index: IndexName, value: &str) -> usize {
    store.by_index(index, value).len()
}

fn apply(writer: &mut StoreWriter<TestObject>, object: TestObject) -> Option<Arc<TestObject>> {
    writer.apply(Arc::new(object))
}

mod objects {
    use super::*;

    #[test]
    fn apply_stores_and_replaces() {
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
        assert_eq!(store.get(&ObjectKey::new("other", "a")), None);
    }

    #[test]
    fn contains_compares_uids() {
        let mut writer = writer();
        let store = writer.reader();
        let uid = object("a").uid_str().to_owned();
        assert!(!store.contains(&key("a"), &uid));
        apply(&mut writer, object("a"));
        assert!(store.contains(&key("a"), &uid));
        assert!(!store.contains(&key("a"), "former"));
    }

    #[test]
    fn remove_frees_the_slot() {
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
    fn sample_is_evenly_spaced_and_limited() {
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
}

mod index {
    use super::*;

    #[test]
    fn follows_changed_values() {
        let mut writer = writer();
        let store = writer.reader();
        apply(&mut writer, object("a").owned_by("x"));
        apply(&mut writer, object("b").owned_by("x"));
        apply(&mut writer, object("a").owned_by("y"));
        assert_eq!(names(&store.by_index(OWNER, "x")), ["b"]);
        assert_eq!(names(&store.by_index(OWNER, "y")), ["a"]);
        apply(&mut writer, object("a"));
        assert_eq!(count(&store, OWNER, "y"), 0);
        assert_eq!(store.get(&key("a")).unwrap().owner, None);
    }

    #[test]
    fn returns_the_current_state_if_the_value_is_unchanged() {
        let mut writer = writer();
        apply(&mut writer, object("a").owned_by("x").at("1"));
        apply(&mut writer, object("a").owned_by("x").at("2"));
        let found = writer.reader().by_index(OWNER, "x");
        assert_eq!(found.iter().map(|object| &*object.version).collect::<Vec<_>>(), ["2"]);
    }

    #[test]
    fn drops_values_without_objects() {
        let mut writer = writer();
        let store = writer.reader();
        apply(&mut writer, object("a").owned_by("x").tagged(&["t", "u"]));
        apply(&mut writer, object("b").owned_by("x").tagged(&["t"]));
        writer.remove(&key("a"), None);
        let values = |index| store.state.read().table.index_values(index);
        assert_eq!(values(TAGS), [Arc::from("t")]);
        assert_eq!(values(OWNER), [Arc::from("x")]);
        apply(&mut writer, object("b"));
        assert!(values(TAGS).is_empty());
        assert!(values(OWNER).is_empty());
    }

    #[test]
    fn contains_an_object_once_per_value() {
        let mut writer = writer();
        let store = writer.reader();
        apply(&mut writer, object("a").tagged(&["t", "u", "t"]));
        assert_eq!(count(&store, TAGS, "t"), 1);
        apply(&mut writer, object("a").tagged(&["u", "v"]));
        assert_eq!(["t", "u", "v"].map(|tag| count(&store, TAGS, tag)), [0, 1, 1]);
    }

    #[test]
    fn replaces_one_of_the_same_name() {
        let indexers = indexers().with(OWNER, |object: &TestObject| Some(Arc::clone(&object.uid)));
        let mut writer = StoreWriter::new(indexers);
        apply(&mut writer, object("a").owned_by("x"));
        assert_eq!(count(&writer.reader(), OWNER, "x"), 0);
        assert_eq!(count(&writer.reader(), OWNER, "a"), 1);
    }

    #[test]
    #[should_panic(expected = "no index named \"unknown\"")]
    fn unknown_panics() {
        writer().reader().by_index(IndexName("unknown"), "x");
    }
}

#[test]
fn version_is_the_last_of_objects_bookmarks_deletions_and_lists() {
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
    assert_eq!(version().as_deref(), Some("12"), "an empty version is ignored");
}

mod commit {
    use super::*;

    #[test]
    fn indexes_objects_by_indexes_added_since_the_snapshot() {
        let mut writer = StoreWriter::new(Indexers::new());
        let mut snapshot = writer.snapshot();
        snapshot.insert(object("a").at("1").owned_by("x"));
        writer.add_indexers(indexers());
        writer.commit(snapshot, "1");
        assert_eq!(count(&writer.reader(), OWNER, "x"), 1);
    }

    #[test]
    fn lower_version_is_a_restore() {
        let mut writer = writer();
        for (version, is_restore) in [("9", false), ("10", false), ("10", false), ("9", true), ("x", false)] {
            let snapshot = writer.snapshot();
            assert_eq!(writer.commit(snapshot, version).is_restore, is_restore, "{version}");
        }
        let mut writer = StoreWriter::for_namespaces(indexers(), ["a".into(), "b".into()]);
        for (namespace, version, is_restore) in [("a", "9", false), ("b", "5", false), ("a", "8", true)] {
            let snapshot = writer.snapshot_of(Some(namespace.into()));
            assert_eq!(writer.commit(snapshot, version).is_restore, is_restore, "{namespace} {version}");
        }
    }

    #[test]
    fn replaces_the_state_and_returns_the_changes() {
        let mut writer = writer();
        let store = writer.reader();
        for name in ["same", "deleted", "changed", "recreated"] {
            apply(&mut writer, object(name).at("1").owned_by(name));
        }
        assert!(!store.is_synced());
        let same = store.get(&key("same")).unwrap();
        let mut snapshot = writer.snapshot();
        snapshot.insert(object("new").at("5").owned_by("new"));
        snapshot.insert(object("same").at("1").owned_by("same"));
        snapshot.insert(object("changed").at("6").owned_by("x"));
        snapshot.insert(object("recreated").at("1").uid("2").owned_by("recreated"));
        assert_eq!(store.len(), 4, "unchanged before the commit");
        let replaced = writer.commit(snapshot, "7");

        assert_eq!(names(&replaced.deleted), ["deleted"]);
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
                (Some("1"), "recreated", "1"),
            ]
        );
        assert_eq!(names(&store.list()), ["new", "same", "changed", "recreated"]);
        assert_eq!(&*store.get(&key("recreated")).unwrap().uid, "2");
        assert_eq!(names(&store.by_index(OWNER, "x")), ["changed"]);
        for stale in ["deleted", "changed"] {
            assert_eq!(count(&store, OWNER, stale), 0, "{stale}");
        }
        assert!(Arc::ptr_eq(&same, &store.get(&key("same")).unwrap()), "unchanged objects are not copied");
        assert!(store.is_synced());
    }

    #[test]
    fn last_of_two_objects_with_one_key_is_stored() {
        let mut writer = writer();
        let mut snapshot = writer.snapshot();
        snapshot.insert(object("a").at("1"));
        snapshot.insert(object("a").at("2"));
        let replaced = writer.commit(snapshot, "2");
        assert_eq!(replaced.present.len(), 1);
        assert_eq!(writer.reader().get(&key("a")).unwrap().version, "2");
    }

    #[test]
    fn objects_without_versions_are_replaced() {
        let mut writer = writer();
        apply(&mut writer, object("a").owned_by("x"));
        let mut snapshot = writer.snapshot();
        snapshot.insert(object("a").owned_by("y"));
        writer.commit(snapshot, "");
        assert_eq!(count(&writer.reader(), OWNER, "y"), 1);
    }

    #[test]
    fn kept_keys_keep_their_stored_objects() {
        let mut writer = writer();
        let store = writer.reader();
        apply(&mut writer, object("stored").at("1").owned_by("o"));
        apply(&mut writer, object("decoded").at("1"));
        apply(&mut writer, object("deleted").at("1"));
        let mut snapshot = writer.snapshot();
        for name in ["stored", "unknown", "decoded", "deleted"] {
            snapshot.keep(key(name));
        }
        snapshot.insert(object("decoded").at("2"));
        snapshot.remove(&key("deleted"));
        let replaced = writer.commit(snapshot, "3");
        assert_eq!(names(&replaced.deleted), ["deleted"]);
        assert_eq!(store.get(&key("stored")).unwrap().version, "1");
        assert_eq!(count(&store, OWNER, "o"), 1);
        assert_eq!(store.get(&key("decoded")).unwrap().version, "2");
        assert_eq!(store.get(&key("unknown")), None);
        assert_eq!(store.len(), 2);
    }
}

#[test]
fn concurrent_reader_finds_all_objects_of_a_version() {
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
            let version = store.last_sync_resource_version().map_or(0, |version| number(&version));
            let by_key = store.get(&key("a")).map_or(0, |object| number(&object.version));
            let by_owner = store.by_index(OWNER, "o").first().map_or(0, |object| number(&object.version));
            assert!(version <= by_key && by_key <= by_owner, "{version} {by_key} {by_owner}");
            if version == WRITES {
                break;
            }
        }
    });
}

/// Compares a store with a map that is searched without indexes.
mod model {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Write {
        Apply {
            name: u8,
            owner: Option<u8>,
            tags: Vec<u8>,
        },
        Remove {
            name: u8,
        },
        /// Names and owners.
        Replace(Vec<(u8, Option<u8>)>),
    }

    fn write() -> impl Strategy<Value = Write> {
        let owner = || proptest::option::of(0..4_u8);
        prop_oneof![
            6 => (0..20_u8, owner(), proptest::collection::vec(0..3_u8, 0..3))
                .prop_map(|(name, owner, tags)| Write::Apply { name, owner, tags }),
            3 => (0..20_u8).prop_map(|name| Write::Remove { name }),
            1 => proptest::collection::vec((0..20_u8, owner()), 0..15).prop_map(Write::Replace),
        ]
    }

    fn create(name: u8, owner: Option<u8>, tags: &[u8]) -> TestObject {
        let tags: Vec<_> = tags.iter().map(|tag| Arc::from(tag.to_string())).collect();
        TestObject { owner: owner.map(|owner| owner.to_string().into()), tags, ..object(&name.to_string()) }
    }

    fn sorted(mut objects: Vec<Arc<TestObject>>) -> Vec<TestObject> {
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        objects.into_iter().map(|object| (*object).clone()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn agrees_after_any_writes(writes in proptest::collection::vec(write(), 1..80)) {
            let mut writer = writer();
            let store = writer.reader();
            let mut model = BTreeMap::<ObjectKey, TestObject>::new();
            for (version, write) in writes.into_iter().enumerate() {
                match write {
                    Write::Apply { name, owner, tags } => {
                        let object = create(name, owner, &tags);
                        model.insert(object.key.clone(), object.clone());
                        apply(&mut writer, object);
                    }
                    Write::Remove { name } => {
                        let key = key(&name.to_string());
                        let removed = writer.remove(&key, None).map(|object| (*object).clone());
                        prop_assert_eq!(removed, model.remove(&key));
                    }
                    Write::Replace(objects) => {
                        model.clear();
                        let mut snapshot = writer.snapshot();
                        for (n, (name, owner)) in objects.into_iter().enumerate() {
                            let object = create(name, owner, &[]).at(&format!("{version}{n:02}"));
                            model.insert(object.key.clone(), object.clone());
                            snapshot.insert(object);
                        }
                        writer.commit(snapshot, "");
                    }
                }
                let find = |matches: &dyn Fn(&TestObject) -> bool| -> Vec<TestObject> {
                    model.values().filter(|object| matches(object)).cloned().collect()
                };
                prop_assert_eq!(sorted(store.list()), find(&|_| true));
                for value in ["0", "1", "2", "3"] {
                    let owned = find(&|object| object.owner.as_deref() == Some(value));
                    prop_assert_eq!(count(&store, OWNER, value), owned.len());
                    prop_assert_eq!(sorted(store.by_index(OWNER, value)), owned);
                    let tagged = find(&|object| object.tags.iter().any(|tag| &**tag == value));
                    prop_assert_eq!(sorted(store.by_index(TAGS, value)), tagged);
                }
            }
        }
    }
}
