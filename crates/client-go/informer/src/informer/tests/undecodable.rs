use super::*;

#[tokio::test(start_paused = true)]
async fn modified_object_keeps_its_stored_state() {
    let (log, _guard) = CapturedLog::of_this_thread(LevelFilter::INFO);
    let env = TestEnv::new();
    env.source.apply(object("a"));
    env.start_synced().await;
    env.source.apply_undecodable(object("a"));
    env.source.apply_undecodable(object("b"));
    settle().await;
    assert_eq!(env.stored(), ["a@2"]);
    assert_eq!(env.version().as_deref(), Some("4"));
    env.source.apply(object("c"));
    env.source.apply(object("a"));
    settle().await;
    assert_eq!(env.handler.take_texts(), ["add ns/c@5", "update ns/a@2->6"]);
    assert_eq!(env.metrics.get("undecodable"), 2);
    assert!(env.take_requests().is_empty());
    for name in ["ns/a", "ns/b"] {
        let line =
            |line: &&str| line.contains("ERROR") && line.contains(name) && line.contains("invalid type");
        assert_eq!(log.text().lines().filter(line).count(), 1, "{}", log.text());
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_object_is_removed() {
    let env = TestEnv::new();
    env.source.apply(object("a"));
    env.start_synced().await;
    env.source.apply_undecodable(object("a"));
    env.source.delete(&key("a"));
    settle().await;
    assert_eq!(env.handler.take_texts(), ["delete ns/a@2 (final state unknown)"]);
    assert!(env.stored().is_empty());
    assert_eq!(env.version().as_deref(), Some("4"));
}

#[tokio::test(start_paused = true)]
async fn relisted_object_keeps_its_stored_state() {
    for streaming_lists in [true, false] {
        let env = TestEnv::new();
        env.source.set_streaming_lists(streaming_lists);
        for name in ["broken", "deleted", "valid"] {
            env.source.apply(object(name));
        }
        env.start_synced().await;
        pass(SECOND).await;
        env.source.end_watches();
        env.source.apply_undecodable(object("broken"));
        env.source.apply_undecodable(object("unknown"));
        env.source.delete(&key("deleted"));
        env.source.compact();
        pass(MINUTE).await;
        let mut calls = env.handler.take_texts();
        calls.sort();
        assert_eq!(
            calls,
            ["delete ns/deleted@3 (final state unknown)", "update ns/broken@2->2", "update ns/valid@4->4"],
            "streaming: {streaming_lists}"
        );
        assert_eq!(env.stored(), ["broken@2", "valid@4"]);
        assert_eq!(env.metrics.get("undecodable"), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn initial_object_does_not_prevent_the_sync() {
    for streaming_lists in [true, false] {
        let env = TestEnv::new();
        env.source.set_streaming_lists(streaming_lists);
        env.source.apply_undecodable(object("a"));
        env.source.apply(object("b"));
        env.start();
        settle().await;
        assert!(env.informer.has_synced());
        assert_eq!(env.stored(), ["b@3"]);
        env.source.apply(object("a"));
        settle().await;
        assert_eq!(env.stored(), ["a@4", "b@3"]);
    }
}
