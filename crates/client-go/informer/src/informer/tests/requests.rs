//! Tests of the requests to the source.

use super::*;
use crate::{
    ListOptions, ListSink, ListWatch, WatchEvent, WatchOptions, WatchStream,
    testing::{ExpiredAs, FakeRequest},
};

fn timeouts(requests: &[FakeRequest]) -> Vec<Duration> {
    let timeout = |request: &FakeRequest| match request {
        FakeRequest::Watch(options) => Some(options.timeout),
        FakeRequest::List(_) => None,
    };
    requests.iter().filter_map(timeout).collect()
}

/// Returns the time until the next request.
async fn until_request(env: &TestEnv) -> Duration {
    let start = env.clock.monotonic();
    env.source.take_requests();
    loop {
        pass(Duration::from_millis(10)).await;
        let elapsed = env.clock.monotonic() - start;
        if !env.source.take_requests().is_empty() || elapsed > 10 * MINUTE {
            return elapsed;
        }
    }
}

fn bookmark(version: &str, initial_events_end: bool) -> WatchEvent<TestObject> {
    WatchEvent::Bookmark { resource_version: version.to_owned(), initial_events_end }
}

/// Source whose first watch sends these events and remains open. Lists fail.
struct Events(Mutex<Vec<WatchEvent<TestObject>>>);

#[async_trait::async_trait]
impl ListWatch<TestObject> for Events {
    async fn list_into(
        &self,
        _: &ListOptions,
        _: &mut dyn ListSink<TestObject>,
    ) -> Result<String, ListWatchError> {
        Err(connection_refused())
    }

    async fn watch(&self, _: &WatchOptions) -> Result<WatchStream<TestObject>, ListWatchError> {
        use futures_util::{StreamExt as _, stream};
        let events = std::mem::take(&mut *self.0.lock().unwrap());
        Ok(Box::pin(stream::iter(events.into_iter().map(Ok)).chain(stream::pending())))
    }
}

fn env_with_events(events: Vec<WatchEvent<TestObject>>) -> TestEnv {
    TestEnv::with(|config| config.sources = Sources::One(Arc::new(Events(Mutex::new(events)))))
}

mod streaming_list {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn continues_as_a_watch() {
        let env = TestEnv::new();
        env.source.apply(object("a"));
        env.source.apply(object("b"));
        env.start();
        settle().await;
        assert!(env.informer.has_synced());
        assert_eq!(env.take_requests(), ["stream newest"]);
        assert_eq!(env.handler.take_texts(), ["add ns/a@2 (initial)", "add ns/b@3 (initial)"]);
        env.source.apply(object("c"));
        env.source.apply(object("a"));
        env.source.delete(&key("b"));
        settle().await;
        assert_eq!(env.handler.take_texts(), ["add ns/c@4", "update ns/a@2->5", "delete ns/b@6"]);
        assert_eq!(env.stored(), ["a@5", "c@4"]);
        assert!(env.take_requests().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn without_its_bookmark_does_not_change_the_store() {
        let env = TestEnv::new();
        env.source.set_initial_bookmarks(false);
        env.source.apply(object("a"));
        env.start();
        pass(MINUTE).await;
        assert!(!env.informer.has_synced() && !env.informer.store().is_synced());
        assert!(env.stored().is_empty());
        assert_eq!(env.version(), None);
        assert!(env.handler.take_texts().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn applies_changes_before_its_bookmark() {
        let env = env_with_events(vec![
            WatchEvent::Added(object("a").at("1")),
            WatchEvent::Added(object("b").at("2")),
            bookmark("3", false),
            WatchEvent::Modified(object("a").at("4")),
            WatchEvent::Deleted(object("b").at("5")),
            bookmark("6", true),
            WatchEvent::Modified(object("a").at("7")),
        ]);
        env.start();
        settle().await;
        assert_eq!(env.handler.take_texts(), ["add ns/a@4 (initial)", "update ns/a@4->7"]);
    }

    #[tokio::test(start_paused = true)]
    async fn without_its_bookmark_is_replaced_by_a_plain_list_once() {
        let env = TestEnv::new();
        env.source.set_initial_bookmarks(false);
        env.source.apply(object("a"));
        env.start();
        // The server ends the watch after less than ten minutes.
        pass(10 * MINUTE).await;
        assert_eq!(env.take_requests(), ["stream newest", "list 0", "watch 2"]);
        assert_eq!(env.handler.take_texts(), ["add ns/a@2 (initial)"]);
        env.source.set_initial_bookmarks(true);
        env.source.break_watches(&internal_error());
        pass(MINUTE).await;
        assert_eq!(env.take_requests(), ["stream 2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn unsupported_is_replaced_by_plain_lists() {
        let env = TestEnv::new();
        env.source.set_streaming_lists(false);
        env.source.apply(object("a"));
        env.start();
        settle().await;
        assert_eq!(env.take_requests(), ["stream newest", "list 0", "watch 2"]);
        assert_eq!(env.handler.take_texts(), ["add ns/a@2 (initial)"]);
        pass(SECOND).await;
        env.force_relist();
        pass(MINUTE).await;
        assert_eq!(env.take_requests(), ["watch 2", "list newest", "watch 3"]);
        env.source.break_watches(&internal_error());
        pass(MINUTE).await;
        assert_eq!(env.take_requests(), ["list 3", "watch 3"]);
    }

    #[tokio::test(start_paused = true)]
    async fn disabled_is_not_requested() {
        let env = TestEnv::with(|config| config.streaming_lists = false);
        env.source.apply(object("a"));
        env.start();
        settle().await;
        assert_eq!(env.take_requests(), ["list 0", "watch 2"]);
        assert_eq!(env.handler.take_texts(), ["add ns/a@2 (initial)"]);
        pass(SECOND).await;
        env.force_relist();
        pass(MINUTE).await;
        assert_eq!(env.take_requests(), ["watch 2", "list newest", "watch 3"]);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_list_is_repeated_after_back_off() {
    let env = TestEnv::new();
    env.source.set_streaming_lists(false);
    env.source.fail_lists(&forbidden(), 2);
    env.source.apply(object("a"));
    env.start();
    settle().await;
    assert_eq!(env.take_requests(), ["stream newest", "list 0"]);
    pass(MINUTE).await;
    assert_eq!(env.take_requests(), ["list 0", "list 0", "watch 2"]);
    assert!(env.informer.has_synced());
}

mod resource_version {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn expired_causes_a_consistent_relist() {
        for expired_as in [ExpiredAs::Event, ExpiredAs::Response] {
            let env = TestEnv::new();
            env.source.set_expired_as(expired_as);
            env.source.apply(object("a"));
            env.start_synced().await;
            env.source.compact();
            env.source.apply(object("b"));
            env.source.compact();
            env.source.end_watches();
            env.source.apply(object("c"));
            pass(MINUTE).await;
            assert_eq!(env.take_requests(), ["watch 4", "stream newest"], "{expired_as:?}");
            assert_eq!(env.stored(), ["a@2", "b@4", "c@6"], "{expired_as:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn expired_causes_back_off() {
        let env = TestEnv::new();
        env.start_synced().await;
        env.source.compact();
        env.source.end_watches();
        settle().await;
        assert_eq!(env.take_requests(), ["watch 1"]);
        let delay = until_request(&env).await;
        assert!((0.79..1.62).contains(&delay.as_secs_f64()), "{delay:?}");
    }

    /// Source that can be replaced by another one.
    struct Replaceable(Mutex<FakeSource<TestObject>>);

    impl Replaceable {
        fn current(&self) -> FakeSource<TestObject> {
            self.0.lock().unwrap().clone()
        }
    }

    #[async_trait::async_trait]
    impl ListWatch<TestObject> for Replaceable {
        async fn list_into(
            &self,
            options: &ListOptions,
            sink: &mut dyn ListSink<TestObject>,
        ) -> Result<String, ListWatchError> {
            self.current().list_into(options, sink).await
        }

        async fn watch(&self, options: &WatchOptions) -> Result<WatchStream<TestObject>, ListWatchError> {
            self.current().watch(options).await
        }
    }

    /// The server is restored from a backup, so that its versions are smaller than that of the informer.
    #[tokio::test(start_paused = true)]
    async fn too_large_causes_a_consistent_relist() {
        let before = FakeSource::new(Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH)));
        for _ in 0..5 {
            before.apply(object("a"));
        }
        let source = Arc::new(Replaceable(Mutex::new(before.clone())));
        let env = TestEnv::with(|config| config.sources = Sources::One(source.clone()));
        env.start();
        settle().await;
        assert_eq!(env.stored(), ["a@6"]);
        env.source.apply(object("b"));
        *source.0.lock().unwrap() = env.source.clone();
        before.end_watches();
        pass(MINUTE).await;
        assert_eq!(env.take_requests(), ["watch 6", "stream newest"]);
        assert_eq!(env.stored(), ["b@2"]);
        assert_eq!(env.version().as_deref(), Some("2"));
    }
}

mod connection {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn refused_causes_growing_back_off() {
        let env = TestEnv::new();
        env.source.fail_watches(&connection_refused(), 7);
        env.start();
        settle().await;
        let mut delays = Vec::new();
        for _ in 0..7 {
            delays.push(until_request(&env).await.as_secs_f64());
        }
        for (delay, base) in delays.iter().zip([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]) {
            assert!((base - 0.02..base * 2.0 + 0.02).contains(delay), "{delays:?}");
        }
        assert!(env.informer.has_synced());
    }

    #[tokio::test(start_paused = true)]
    async fn refused_resumes_the_watch() {
        let env = TestEnv::new();
        env.source.apply(object("a"));
        env.start_synced().await;
        env.source.fail_watches(&connection_refused(), 3);
        env.source.end_watches();
        env.source.apply(object("b"));
        pass(MINUTE).await;
        assert_eq!(env.take_requests(), ["watch 2"; 4]);
        assert_eq!(env.handler.take_texts(), ["add ns/b@3"]);
    }

    #[tokio::test(start_paused = true)]
    async fn lost_resumes_the_watch_at_once() {
        let env = TestEnv::new();
        env.source.apply(object("a"));
        env.start_synced().await;
        pass(MINUTE).await;
        let reset = ListWatchError::new(ListWatchErrorKind::Connection, "connection reset");
        env.source.break_watches(&reset);
        settle().await;
        assert_eq!(env.take_requests(), ["watch 2"]);
    }
}

mod watch {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn deletion_of_an_unknown_object_is_not_reported() {
        let env = env_with_events(vec![bookmark("1", true), WatchEvent::Deleted(object("a").at("2"))]);
        env.start();
        settle().await;
        assert!(env.handler.take_texts().is_empty());
        assert_eq!(env.version().as_deref(), Some("2"));
    }

    #[tokio::test(start_paused = true)]
    async fn is_resumed_after_the_delay_that_the_server_requests() {
        let env = TestEnv::new();
        env.start_synced().await;
        env.source.fail_watches(&too_many_requests().with_retry_after(45 * SECOND), 1);
        env.source.end_watches();
        settle().await;
        assert_eq!(env.take_requests(), ["watch 1"]);
        pass(44 * SECOND).await;
        assert!(env.take_requests().is_empty());
        pass(SECOND).await;
        assert_eq!(env.take_requests(), ["watch 1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn is_resumed_from_the_last_bookmark() {
        let env = TestEnv::new();
        env.source.apply(object("a"));
        env.start_synced().await;
        env.source.advance();
        env.source.advance();
        env.source.bookmark();
        settle().await;
        assert_eq!(env.version().as_deref(), Some("4"));
        env.source.end_watches();
        settle().await;
        assert_eq!(env.take_requests(), ["watch 4"]);
        assert!(env.handler.take_texts().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn internal_error_causes_a_relist_after_back_off() {
        let env = TestEnv::new();
        env.source.apply(object("a"));
        env.start_synced().await;
        env.source.break_watches(&internal_error());
        settle().await;
        assert!(env.take_requests().is_empty());
        pass(MINUTE).await;
        assert_eq!(env.take_requests(), ["stream 2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn end_within_a_second_and_without_events_causes_a_relist() {
        let env = TestEnv::new();
        env.start_synced().await;
        pass(MINUTE).await;
        env.source.end_watches();
        settle().await;
        assert_eq!(env.take_requests(), ["watch 1"], "the first watch was open for a minute");
        env.source.end_watches();
        settle().await;
        assert!(env.take_requests().is_empty(), "back-off");
        pass(MINUTE).await;
        assert_eq!(env.take_requests(), ["stream 1"]);
        // Watches that end after a second, or with an event, are resumed.
        env.source.end_watches();
        pass(SECOND).await;
        env.source.end_watches();
        settle().await;
        env.source.bookmark();
        settle().await;
        env.source.end_watches();
        settle().await;
        assert_eq!(env.take_requests(), ["watch 1"; 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn timeout_is_random_between_five_and_ten_minutes() {
        let env = TestEnv::new();
        env.source.apply(object("a"));
        let running = env.start();
        pass(24 * 60 * MINUTE).await;
        running.stop().await;
        let requests = env.source.take_requests();
        let timeouts = timeouts(&requests);
        assert_eq!(timeouts.len(), requests.len(), "no plain list");
        assert!((145..=289).contains(&requests.len()), "{}", requests.len());
        let (min, max) = (timeouts.iter().min().unwrap(), timeouts.iter().max().unwrap());
        assert!(*min >= 5 * MINUTE && *max < 10 * MINUTE);
        assert!(*max - *min > 4 * MINUTE);
        assert_eq!(env.metrics.get("lists") + env.metrics.get("relists"), 1);
        assert_eq!(env.metrics.get("failures"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn is_dropped_if_the_server_does_not_end_it() {
        let env = TestEnv::new();
        env.source.set_timeouts(false);
        env.start();
        settle().await;
        let timeout = timeouts(&env.source.take_requests())[0];
        pass(timeout + 29 * SECOND).await;
        assert!(env.take_requests().is_empty());
        pass(2 * SECOND).await;
        assert_eq!(env.take_requests(), ["watch 1"]);
        assert_eq!(env.source.watchers(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn is_dropped_if_the_server_does_not_respond() {
        let env = TestEnv::new();
        env.start_synced().await;
        env.source.set_delay(24 * 60 * MINUTE);
        env.source.end_watches();
        settle().await;
        assert_eq!(env.take_requests(), ["watch 1"]);
        env.source.set_delay(Duration::ZERO);
        pass(11 * MINUTE).await;
        assert_eq!(env.source.watchers(), 1);
        assert_eq!(env.take_requests(), ["watch 1"]);
        assert_eq!(env.metrics.get("failures"), 1);
    }
}

/// The streaming list fails first and then the plain list: only the failure before the delay is a warning.
#[tokio::test(start_paused = true)]
async fn failure_is_logged_once_with_cause_and_delay() {
    let (log, _guard) = CapturedLog::of_this_thread(LevelFilter::INFO);
    let env = TestEnv::new();
    env.source.fail_watches(&forbidden(), 1);
    env.source.fail_lists(&forbidden(), 1);
    env.start();
    settle().await;
    assert_eq!(env.take_requests(), ["stream newest", "list 0"]);
    let text = log.text();
    let [line] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert!(line.contains("WARN") && line.contains("Failed to list; retrying"), "{line}");
    assert!(line.contains("err=tests is forbidden"), "{line}");
    let (_, delay) = line.split_once(" delay=").unwrap();
    assert!(delay.ends_with('s') && delay[..1].parse::<u8>().is_ok(), "{line}");
}
