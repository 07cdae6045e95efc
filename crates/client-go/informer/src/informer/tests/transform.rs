use super::*;

/// Informer whose transform removes the tags, and stores the owner as the only tag.
fn informer() -> TestEnv {
    TestEnv::with(|config| {
        config.transform = Some(Arc::new(|object: &mut TestObject| {
            object.tags = object.owner.take().into_iter().collect();
        }));
    })
}

#[tokio::test(start_paused = true)]
async fn changes_objects_before_they_are_stored_and_indexed() {
    for streaming_lists in [true, false] {
        let env = informer();
        env.source.set_streaming_lists(streaming_lists);
        let tags = |index: &str| env.informer.store().by_index(crate::test_object::TAGS, index).len();
        env.source.apply(object("listed").tagged(&["x"]).owned_by("owner"));
        let _running = env.start();
        settle().await;
        env.source.apply(object("watched").tagged(&["x"]).owned_by("owner"));
        settle().await;
        assert_eq!((tags("x"), tags("owner")), (0, 2), "streaming: {streaming_lists}");
        env.source.apply(object("watched").tagged(&["x"]).owned_by("other"));
        env.force_relist();
        pass(MINUTE).await;
        assert_eq!((tags("x"), tags("owner"), tags("other")), (0, 1, 1));
        for stored in env.informer.store().list() {
            assert_eq!((stored.owner.as_deref(), stored.tags.len()), (None, 1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn changes_the_final_state_of_a_deleted_object() {
    let env = informer();
    env.source.apply(object("a").owned_by("owner"));
    env.start_synced().await;
    env.source.delete(&key("a"));
    settle().await;
    let calls = env.handler.take();
    let [crate::testing::Recorded::Deleted(deleted)] = calls.as_slice() else { panic!("{calls:?}") };
    assert_eq!(deleted.object().owner, None);
}
