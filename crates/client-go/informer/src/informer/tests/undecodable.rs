//! Objects that cannot be decoded: the others go on.

use std::io;

use tracing_subscriber::fmt::MakeWriter;

use super::*;

/// Collects what is logged on this thread.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// What is said on this thread from now on, until the guard is dropped; nothing of what is for debugging.
    pub(super) fn collect() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn undecodable_change_is_logged_by_name_and_counted_and_the_rest_goes_on() {
    let (log, _guard) = Log::collect();
    let world = World::new();
    world.source.apply(object("a"));
    world.synced().await;
    world.source.apply_undecodable(object("a"));
    world.source.apply_undecodable(object("b"));
    settle().await;
    assert_eq!(world.names(), ["a@2"], "as it was last known");
    assert_eq!(world.version().as_deref(), Some("4"), "the watch is that far all the same");
    world.source.apply(object("c"));
    world.source.apply(object("a"));
    settle().await;
    assert_eq!(world.handler.take_texts(), ["add ns/c@5", "update ns/a@2->6"]);
    assert_eq!(world.metrics.get("undecodable"), 2);
    assert!(world.asked().is_empty());
    for name in ["ns/a", "ns/b"] {
        let line =
            |line: &&str| line.contains("ERROR") && line.contains(name) && line.contains("invalid type");
        assert_eq!(log.text().lines().filter(line).count(), 1, "{}", log.text());
    }
}

#[tokio::test(start_paused = true)]
async fn undecodable_deletion_lets_go_of_the_object() {
    let world = World::new();
    world.source.apply(object("a"));
    world.synced().await;
    world.source.apply_undecodable(object("a"));
    world.source.delete(&key("a"));
    settle().await;
    assert_eq!(world.handler.take_texts(), ["delete ns/a@2 (final state unknown)"]);
    assert!(world.names().is_empty());
    assert_eq!(world.version().as_deref(), Some("4"));
}

#[tokio::test(start_paused = true)]
async fn undecodable_in_a_relist_stays_as_it_was_known() {
    for streaming_lists in [true, false] {
        let world = World::new();
        world.source.set_streaming_lists(streaming_lists);
        for name in ["broken", "gone", "whole"] {
            world.source.apply(object(name));
        }
        world.synced().await;
        pass(SECOND).await;
        world.source.end_watches();
        world.source.apply_undecodable(object("broken"));
        world.source.apply_undecodable(object("unknown"));
        world.source.delete(&key("gone"));
        world.source.compact();
        pass(MINUTE).await;
        let mut told = world.handler.take_texts();
        told.sort();
        assert_eq!(
            told,
            ["delete ns/gone@3 (final state unknown)", "update ns/broken@2->2", "update ns/whole@4->4"],
            "streaming: {streaming_lists}"
        );
        assert_eq!(world.names(), ["broken@2", "whole@4"]);
        assert_eq!(world.metrics.get("undecodable"), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn undecodable_from_the_start_does_not_keep_the_rest_from_syncing() {
    for streaming_lists in [true, false] {
        let world = World::new();
        world.source.set_streaming_lists(streaming_lists);
        world.source.apply_undecodable(object("a"));
        world.source.apply(object("b"));
        world.start();
        settle().await;
        assert!(world.informer.has_synced());
        assert_eq!(world.names(), ["b@3"]);
        // Mended, it comes.
        world.source.apply(object("a"));
        settle().await;
        assert_eq!(world.names(), ["a@4", "b@3"]);
    }
}
