//! Indexes that are added to an informer.

use super::*;
use crate::{IndexName, Indexers};

const VERSION: IndexName = IndexName("version");

fn by_version() -> Indexers<TestObject> {
    Indexers::new().with(VERSION, |object: &TestObject| Some(object.version.as_str().into()))
}

#[tokio::test(start_paused = true)]
async fn added_index_contains_the_objects_of_the_store() {
    let env = TestEnv::new();
    env.source.apply(object("a").owned_by("x"));
    env.start_synced().await;
    env.informer.add_indexers(by_version());
    let count = |version: &str| env.informer.store().by_index(VERSION, version).len();
    assert_eq!((count("2"), count("3")), (1, 0));
    env.source.apply(object("a"));
    settle().await;
    assert_eq!((count("2"), count("3")), (0, 1));
    env.force_relist();
    pass(MINUTE).await;
    assert_eq!((count("2"), count("3")), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn index_in_use_is_kept() {
    let env = TestEnv::new();
    env.source.apply(object("a").owned_by("x"));
    env.start_synced().await;
    env.informer.add_indexers(Indexers::new().with(crate::test_object::OWNER, |_| Some("other".into())));
    let count = |owner: &str| env.informer.store().by_index(crate::test_object::OWNER, owner).len();
    assert_eq!((count("x"), count("other")), (1, 0));
}
