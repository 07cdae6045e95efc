//! After any faults the store equals the source, and so do the objects that each handler has received.

use proptest::prelude::*;

use super::*;
use crate::{test_object::OWNER, testing::ExpiredAs};

#[derive(Debug, Clone)]
enum Step {
    Apply(u8),
    Recreate(u8),
    ApplyUndecodable(u8),
    Delete(u8),
    Advance,
    Bookmark,
    EndWatches,
    BreakWatches(ListWatchErrorKind),
    Compact,
    FailWatches(ListWatchErrorKind, usize),
    FailLists(ListWatchErrorKind, usize),
    Delay(u16),
    Streaming(bool),
    Timeouts(bool),
    ExpiredAs(ExpiredAs),
    AddHandler,
    Restart,
    Pass(u16),
}

fn fault() -> impl Strategy<Value = ListWatchErrorKind> {
    use ListWatchErrorKind::{
        Connection, Expired, Other, ResourceVersionTooLarge, Timeout, TooManyRequests, Unsupported,
    };
    let kinds = [Expired, ResourceVersionTooLarge, TooManyRequests, Unsupported, Timeout, Connection, Other];
    proptest::sample::select(kinds.to_vec())
}

fn error(kind: ListWatchErrorKind) -> ListWatchError {
    ListWatchError::new(kind, "fault")
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..8_u8;
    prop_oneof![
        10 => name().prop_map(Step::Apply),
        2 => name().prop_map(Step::Recreate),
        2 => name().prop_map(Step::ApplyUndecodable),
        4 => name().prop_map(Step::Delete),
        1 => Just(Step::Advance),
        1 => Just(Step::Bookmark),
        3 => Just(Step::EndWatches),
        2 => fault().prop_map(Step::BreakWatches),
        3 => Just(Step::Compact),
        2 => (fault(), 1..4_usize).prop_map(|(fault, times)| Step::FailWatches(fault, times)),
        1 => (fault(), 1..4_usize).prop_map(|(fault, times)| Step::FailLists(fault, times)),
        1 => (0..3000_u16).prop_map(Step::Delay),
        1 => any::<bool>().prop_map(Step::Streaming),
        1 => any::<bool>().prop_map(Step::Timeouts),
        1 => proptest::sample::select(vec![ExpiredAs::Event, ExpiredAs::Response]).prop_map(Step::ExpiredAs),
        1 => Just(Step::AddHandler),
        1 => Just(Step::Restart),
        8 => (0..2000_u16).prop_map(Step::Pass),
    ]
}

async fn play(steps: Vec<Step>, seed: u64) -> Result<(), TestCaseError> {
    let env = TestEnv::with(|config| {
        config.random = Arc::new(SeededRandom::new(seed));
        config.resync = Some(7 * MINUTE);
    });
    let source = &env.source;
    let mut handlers = vec![env.handler.clone()];
    let mut running = env.start();
    let mut created = 0;
    let mut create = |name: u8| {
        created += 1;
        let name = name.to_string();
        // An existing object keeps its UID.
        let existing = source.get(&key(&name));
        let uid = existing.map_or_else(|| created.to_string(), |existing| existing.uid.to_string());
        object(&name).uid(&uid).owned_by(&(created % 3).to_string())
    };
    for step in steps {
        match step {
            Step::Apply(name) => drop(source.apply(create(name))),
            Step::ApplyUndecodable(name) => drop(source.apply_undecodable(create(name))),
            Step::Recreate(name) => {
                source.delete(&key(&name.to_string()));
                source.apply(create(name));
            }
            Step::Delete(name) => drop(source.delete(&key(&name.to_string()))),
            Step::Advance => drop(source.advance()),
            Step::Bookmark => source.bookmark(),
            Step::EndWatches => source.end_watches(),
            Step::BreakWatches(fault) => source.break_watches(&error(fault)),
            Step::Compact => source.compact(),
            Step::FailWatches(fault, times) => source.fail_watches(&error(fault), times),
            Step::FailLists(fault, times) => source.fail_lists(&error(fault), times),
            Step::Delay(millis) => source.set_delay(Duration::from_millis(millis.into())),
            Step::Streaming(supported) => source.set_streaming_lists(supported),
            Step::Timeouts(enabled) => source.set_timeouts(enabled),
            Step::ExpiredAs(expired_as) => source.set_expired_as(expired_as),
            Step::AddHandler => {
                let handler = Arc::new(RecordingHandler::new());
                env.informer.add_handler(handler.clone());
                handlers.push(handler);
            }
            Step::Restart => {
                running.stop().await;
                running = env.start();
            }
            Step::Pass(millis) => pass(Duration::from_millis(millis.into())).await,
        }
    }
    // Undecodable objects are replaced, because the store does not have their state.
    let decodable: Vec<_> = source.objects().into_iter().map(|object| object.key).collect();
    for name in 0..8 {
        let key = key(&name.to_string());
        if source.get(&key).is_some() && !decodable.contains(&key) {
            source.apply(create(name));
        }
    }
    source.recover();
    pass(20 * MINUTE).await;

    let by_key =
        |objects: Vec<TestObject>| objects.into_iter().map(|object| (object.key.clone(), object)).collect();
    let shared_by_key =
        |objects: Vec<Arc<TestObject>>| by_key(objects.iter().map(|object| (**object).clone()).collect());
    let expected: BTreeMap<_, _> = by_key(source.objects());
    prop_assert!(env.informer.has_synced());
    let store = env.informer.store();
    prop_assert_eq!(shared_by_key(store.list()), expected.clone());
    for owner in ["0", "1", "2"] {
        let mut owned = source.objects();
        owned.retain(|object| object.owner.as_deref() == Some(owner));
        prop_assert_eq!(shared_by_key(store.by_index(OWNER, owner)), by_key(owned));
    }
    for handler in handlers {
        let replayed = handler.replay().map_err(TestCaseError::fail)?;
        prop_assert_eq!(shared_by_key(replayed.into_values().collect()), expected.clone());
    }
    prop_assert_eq!(source.watchers(), 1);
    running.stop().await;
    prop_assert_eq!(source.watchers(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn store_and_handlers_equal_the_source_after_any_faults(
        steps in proptest::collection::vec(step(), 1..120),
        seed in any::<u64>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(play(steps, seed))?;
    }
}
