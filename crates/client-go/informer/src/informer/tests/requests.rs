//! What is asked of the source, and when.

use super::{undecodable::Log, *};
use crate::{
    List, ListOptions, ListWatch, WatchEvent, WatchOptions, WatchStream,
    testing::{ExpiredAs, FakeRequest},
};

fn timeouts(requests: &[FakeRequest]) -> Vec<Duration> {
    let timeout = |request: &FakeRequest| match request {
        FakeRequest::Watch(options) => Some(options.timeout),
        FakeRequest::List(_) => None,
    };
    requests.iter().filter_map(timeout).collect()
}

/// How long it takes until the next request comes.
async fn until_asked(world: &World) -> Duration {
    let start = world.clock.monotonic();
    world.source.take_requests();
    loop {
        pass(Duration::from_millis(10)).await;
        let waited = world.clock.monotonic() - start;
        if !world.source.take_requests().is_empty() || waited > 10 * MINUTE {
            return waited;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn streaming_list_ended_by_its_bookmark_goes_on_as_the_watch() {
    let world = World::new();
    world.source.apply(object("a"));
    world.source.apply(object("b"));
    world.start();
    settle().await;
    assert!(world.informer.has_synced());
    assert_eq!(world.asked(), ["stream newest"]);
    assert_eq!(world.handler.take_texts(), ["add ns/a@2 (initial)", "add ns/b@3 (initial)"]);
    world.source.apply(object("c"));
    world.source.apply(object("a"));
    world.source.delete(&key("b"));
    settle().await;
    assert_eq!(world.handler.take_texts(), ["add ns/c@4", "update ns/a@2->5", "delete ns/b@6"]);
    assert_eq!(world.names(), ["a@5", "c@4"]);
    assert!(world.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn streaming_list_before_its_bookmark_shows_nothing() {
    let world = World::new();
    world.source.set_initial_bookmarks(false);
    world.source.apply(object("a"));
    world.start();
    pass(MINUTE).await;
    assert!(!world.informer.has_synced() && !world.informer.store().is_synced());
    assert!(world.names().is_empty());
    assert_eq!(world.version(), None);
    assert!(world.handler.take_texts().is_empty());
}

/// A source with one story to tell, and nothing after it.
struct Story(Mutex<Vec<WatchEvent<TestObject>>>);

#[async_trait::async_trait]
impl ListWatch<TestObject> for Story {
    async fn list(&self, _: &ListOptions) -> Result<List<TestObject>, ListWatchError> {
        Err(refused())
    }

    async fn watch(&self, _: &WatchOptions) -> Result<WatchStream<TestObject>, ListWatchError> {
        use futures_util::{StreamExt as _, stream};
        let events = std::mem::take(&mut *self.0.lock().unwrap());
        Ok(Box::pin(stream::iter(events.into_iter().map(Ok)).chain(stream::pending())))
    }
}

fn bookmark(version: &str, initial_events_end: bool) -> WatchEvent<TestObject> {
    WatchEvent::Bookmark { resource_version: version.to_owned(), initial_events_end }
}

#[tokio::test(start_paused = true)]
async fn streaming_list_told_of_changes_before_its_bookmark_shows_the_outcome() {
    let story = vec![
        WatchEvent::Added(object("a").at("1")),
        WatchEvent::Added(object("b").at("2")),
        bookmark("3", false),
        WatchEvent::Modified(object("a").at("4")),
        WatchEvent::Deleted(object("b").at("5")),
        bookmark("6", true),
        WatchEvent::Modified(object("a").at("7")),
    ];
    let world = World::with(|config| config.list_watch = Arc::new(Story(Mutex::new(story))));
    world.start();
    settle().await;
    assert_eq!(world.handler.take_texts(), ["add ns/a@4 (initial)", "update ns/a@4->7"]);
}

#[tokio::test(start_paused = true)]
async fn deletion_of_what_is_not_known_is_not_told() {
    let story = vec![bookmark("1", true), WatchEvent::Deleted(object("a").at("2"))];
    let world = World::with(|config| config.list_watch = Arc::new(Story(Mutex::new(story))));
    world.start();
    settle().await;
    assert!(world.handler.take_texts().is_empty());
    assert_eq!(world.version().as_deref(), Some("2"), "but it has happened");
}

#[tokio::test(start_paused = true)]
async fn streaming_list_that_never_completes_gives_way_to_a_plain_list_this_once() {
    let world = World::new();
    world.source.set_initial_bookmarks(false);
    world.source.apply(object("a"));
    world.start();
    // The server ends the watch after ten minutes at the latest.
    pass(10 * MINUTE).await;
    assert_eq!(world.asked(), ["stream newest", "list 0", "watch 2"]);
    assert_eq!(world.handler.take_texts(), ["add ns/a@2 (initial)"]);
    world.source.set_initial_bookmarks(true);
    world.source.break_watches(&ListWatchError::new(ListWatchErrorKind::Other, "oops"));
    pass(MINUTE).await;
    assert_eq!(world.asked(), ["stream 2"]);
}

#[tokio::test(start_paused = true)]
async fn streaming_list_not_offered_gives_way_to_plain_lists_for_good() {
    let world = World::new();
    world.source.set_streaming_lists(false);
    world.source.apply(object("a"));
    world.start();
    settle().await;
    assert_eq!(world.asked(), ["stream newest", "list 0", "watch 2"]);
    assert_eq!(world.handler.take_texts(), ["add ns/a@2 (initial)"]);
    pass(SECOND).await;
    world.source.compact();
    world.source.end_watches();
    pass(MINUTE).await;
    assert_eq!(world.asked(), ["watch 2", "list newest", "watch 3"]);
    world.source.break_watches(&ListWatchError::new(ListWatchErrorKind::Other, "oops"));
    pass(MINUTE).await;
    assert_eq!(world.asked(), ["list 3", "watch 3"]);
}

#[tokio::test(start_paused = true)]
async fn streaming_lists_switched_off_are_never_requested() {
    let world = World::with(|config| config.streaming_lists = false);
    world.source.apply(object("a"));
    world.start();
    settle().await;
    assert_eq!(world.asked(), ["list 0", "watch 2"]);
    assert_eq!(world.handler.take_texts(), ["add ns/a@2 (initial)"]);
    pass(SECOND).await;
    world.source.compact();
    world.source.end_watches();
    pass(MINUTE).await;
    assert_eq!(world.asked(), ["watch 2", "list newest", "watch 3"]);
}

#[tokio::test(start_paused = true)]
async fn list_failed_is_tried_again_after_back_off() {
    let world = World::new();
    world.source.set_streaming_lists(false);
    world.source.fail_lists(&ListWatchError::new(ListWatchErrorKind::Other, "things is forbidden"), 2);
    world.source.apply(object("a"));
    world.start();
    settle().await;
    assert_eq!(world.asked(), ["stream newest", "list 0"]);
    pass(MINUTE).await;
    assert_eq!(world.asked(), ["list 0", "list 0", "watch 2"]);
    assert!(world.informer.has_synced());
}

#[tokio::test(start_paused = true)]
async fn version_gone_relists_the_newest_whichever_way_it_is_said() {
    for gone in [ExpiredAs::Event, ExpiredAs::Response] {
        let world = World::new();
        world.source.set_expired_as(gone);
        world.source.apply(object("a"));
        world.synced().await;
        world.source.compact();
        world.source.apply(object("b"));
        world.source.compact();
        world.source.end_watches();
        world.source.apply(object("c"));
        pass(MINUTE).await;
        assert_eq!(world.asked(), ["watch 4", "stream newest"], "{gone:?}");
        assert_eq!(world.names(), ["a@2", "b@4", "c@6"], "{gone:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn version_gone_relists_only_after_back_off() {
    let world = World::new();
    world.synced().await;
    world.source.compact();
    world.source.end_watches();
    settle().await;
    assert_eq!(world.asked(), ["watch 1"]);
    let waited = until_asked(&world).await;
    assert!((0.79..1.62).contains(&waited.as_secs_f64()), "{waited:?}");
}

/// Now one source, now another.
struct Switch(Mutex<FakeSource<TestObject>>);

#[async_trait::async_trait]
impl ListWatch<TestObject> for Switch {
    async fn list(&self, options: &ListOptions) -> Result<List<TestObject>, ListWatchError> {
        let now = self.0.lock().unwrap().clone();
        now.list(options).await
    }

    async fn watch(&self, options: &WatchOptions) -> Result<WatchStream<TestObject>, ListWatchError> {
        let now = self.0.lock().unwrap().clone();
        now.watch(options).await
    }
}

#[tokio::test(start_paused = true)]
async fn version_from_the_future_relists_the_newest() {
    let before = FakeSource::new(Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH)));
    for _ in 0..5 {
        before.apply(object("a"));
    }
    let switch = Arc::new(Switch(Mutex::new(before.clone())));
    let world = World::with(|config| config.list_watch = switch.clone());
    world.start();
    settle().await;
    assert_eq!(world.names(), ["a@6"]);
    // The server is restored from a backup: it has seen less than the informer.
    world.source.apply(object("b"));
    *switch.0.lock().unwrap() = world.source.clone();
    before.end_watches();
    pass(MINUTE).await;
    assert_eq!(world.asked(), ["watch 6", "stream newest"]);
    assert_eq!(world.names(), ["b@2"]);
    assert_eq!(world.version().as_deref(), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn connection_refused_at_the_start_is_tried_again_with_growing_waits() {
    let world = World::new();
    world.source.fail_watches(&refused(), 7);
    world.start();
    settle().await;
    let mut waits = Vec::new();
    for _ in 0..7 {
        waits.push(until_asked(&world).await.as_secs_f64());
    }
    for (wait, least) in waits.iter().zip([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]) {
        assert!((least - 0.02..least * 2.0 + 0.02).contains(wait), "{waits:?}");
    }
    assert!(world.informer.has_synced());
}

#[tokio::test(start_paused = true)]
async fn connection_refused_resumes_the_watch_where_it_was() {
    let world = World::new();
    world.source.apply(object("a"));
    world.synced().await;
    world.source.fail_watches(&refused(), 3);
    world.source.end_watches();
    world.source.apply(object("b"));
    pass(MINUTE).await;
    assert_eq!(world.asked(), ["watch 2"; 4]);
    assert_eq!(world.handler.take_texts(), ["add ns/b@3"]);
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_resumes_the_watch_not_sooner_than_asked() {
    let world = World::new();
    world.synced().await;
    let error = ListWatchError::new(ListWatchErrorKind::TooManyRequests, "too many requests")
        .with_retry_after(45 * SECOND);
    world.source.fail_watches(&error, 1);
    world.source.end_watches();
    settle().await;
    assert_eq!(world.asked(), ["watch 1"]);
    pass(44 * SECOND).await;
    assert!(world.asked().is_empty());
    pass(SECOND).await;
    assert_eq!(world.asked(), ["watch 1"]);
}

#[tokio::test(start_paused = true)]
async fn watch_ended_is_resumed_at_once_from_the_last_bookmark() {
    let world = World::new();
    world.source.apply(object("a"));
    world.synced().await;
    world.source.advance();
    world.source.advance();
    world.source.bookmark();
    settle().await;
    assert_eq!(world.version().as_deref(), Some("4"));
    world.source.end_watches();
    settle().await;
    assert_eq!(world.asked(), ["watch 4"]);
    assert!(world.handler.take_texts().is_empty(), "no relist");
}

#[tokio::test(start_paused = true)]
async fn watch_broken_on_the_way_is_resumed_at_once() {
    let world = World::new();
    world.source.apply(object("a"));
    world.synced().await;
    pass(MINUTE).await;
    world.source.break_watches(&ListWatchError::new(ListWatchErrorKind::Connection, "connection reset"));
    settle().await;
    assert_eq!(world.asked(), ["watch 2"]);
}

#[tokio::test(start_paused = true)]
async fn watch_broken_by_the_server_relists_from_what_is_known() {
    let world = World::new();
    world.source.apply(object("a"));
    world.synced().await;
    world.source.break_watches(&ListWatchError::new(ListWatchErrorKind::Other, "oops"));
    settle().await;
    assert!(world.asked().is_empty(), "not before back-off");
    pass(MINUTE).await;
    assert_eq!(world.asked(), ["stream 2"]);
}

#[tokio::test(start_paused = true)]
async fn watch_that_ends_within_a_second_without_an_event_is_an_error() {
    let world = World::new();
    world.synced().await;
    pass(MINUTE).await;
    world.source.end_watches();
    settle().await;
    assert_eq!(world.asked(), ["watch 1"], "the first had lasted a minute");
    world.source.end_watches();
    settle().await;
    assert!(world.asked().is_empty(), "not before back-off");
    pass(MINUTE).await;
    assert_eq!(world.asked(), ["stream 1"]);
    // After a second, or with an event, it is an end like any other.
    world.source.end_watches();
    pass(SECOND).await;
    world.source.end_watches();
    settle().await;
    world.source.bookmark();
    settle().await;
    world.source.end_watches();
    settle().await;
    assert_eq!(world.asked(), ["watch 1"; 3]);
}

#[tokio::test(start_paused = true)]
async fn watches_over_a_day_last_five_to_ten_minutes_each_and_relist_nothing() {
    let world = World::new();
    world.source.apply(object("a"));
    let running = world.start();
    pass(24 * 60 * MINUTE).await;
    running.stop().await;
    let requests = world.source.take_requests();
    let timeouts = timeouts(&requests);
    assert_eq!(timeouts.len(), requests.len(), "no plain list");
    assert!((145..=289).contains(&requests.len()), "{}", requests.len());
    let (least, most) = (timeouts.iter().min().unwrap(), timeouts.iter().max().unwrap());
    assert!(*least >= 5 * MINUTE && *most < 10 * MINUTE);
    assert!(*most - *least > 4 * MINUTE, "drawn from the whole range");
    assert_eq!(world.metrics.get("lists") + world.metrics.get("relists"), 1);
    assert_eq!(world.metrics.get("failures"), 0);
}

#[tokio::test(start_paused = true)]
async fn watch_that_the_server_does_not_end_is_ended_here() {
    let world = World::new();
    world.source.set_timeouts(false);
    world.start();
    settle().await;
    let timeout = timeouts(&world.source.take_requests())[0];
    pass(timeout + 29 * SECOND).await;
    assert!(world.asked().is_empty());
    pass(2 * SECOND).await;
    assert_eq!(world.asked(), ["watch 1"]);
    assert_eq!(world.source.watchers(), 1);
}

#[tokio::test(start_paused = true)]
async fn watch_that_is_never_answered_is_given_up() {
    let world = World::new();
    world.synced().await;
    world.source.set_delay(24 * 60 * MINUTE);
    world.source.end_watches();
    settle().await;
    assert_eq!(world.asked(), ["watch 1"]);
    world.source.set_delay(Duration::ZERO);
    pass(11 * MINUTE).await;
    assert_eq!(world.source.watchers(), 1);
    assert_eq!(world.asked(), ["watch 1"]);
    assert_eq!(world.metrics.get("failures"), 1);
}

#[tokio::test(start_paused = true)]
async fn failure_is_told_once_with_its_cause_and_when_it_is_tried_again() {
    let (log, _guard) = Log::collect();
    let world = World::new();
    let forbidden = ListWatchError::new(ListWatchErrorKind::Other, "things is forbidden");
    // The streaming list first, then the plain one, and nobody wants to read both.
    world.source.fail_watches(&forbidden, 1);
    world.source.fail_lists(&forbidden, 1);
    world.start();
    settle().await;
    assert_eq!(world.asked(), ["stream newest", "list 0"]);
    let text = log.text();
    let [line] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert!(line.contains("WARN") && line.contains("Failed to list; retrying"), "{line}");
    assert!(line.contains("err=things is forbidden"), "{line}");
    let (_, delay) = line.split_once(" delay=").unwrap();
    assert!(delay.ends_with('s') && delay[..1].parse::<u8>().is_ok(), "{line}");
}
