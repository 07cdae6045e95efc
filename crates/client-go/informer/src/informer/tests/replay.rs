//! Whatever happens, in the end the store equals the source, and so does what each handler was told.

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
    BreakWatches(Fault),
    ForgetHistory,
    FailWatches(Fault, usize),
    FailLists(Fault, usize),
    Delay(u16),
    Streaming(bool),
    Timeouts(bool),
    ExpiredAs(ExpiredAs),
    Join,
    Restart,
    Pass(u16),
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Lost,
    TooMany,
    Internal,
    Expired,
    Forbidden,
    Garbage,
}

impl Fault {
    fn error(self) -> ListWatchError {
        match self {
            Self::Lost => refused(),
            Self::TooMany => ListWatchError::new(ListWatchErrorKind::TooManyRequests, "slow down"),
            Self::Internal => ListWatchError::new(ListWatchErrorKind::Other, "oops"),
            Self::Expired => ListWatchError::new(ListWatchErrorKind::Expired, "too old resource version"),
            Self::Forbidden => ListWatchError::new(ListWatchErrorKind::Other, "no"),
            Self::Garbage => ListWatchError::new(ListWatchErrorKind::Other, "expected value at line 1"),
        }
    }
}

fn fault() -> impl Strategy<Value = Fault> {
    use Fault::{Expired, Forbidden, Garbage, Internal, Lost, TooMany};
    proptest::sample::select(vec![Lost, TooMany, Internal, Expired, Forbidden, Garbage])
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
        3 => Just(Step::ForgetHistory),
        2 => (fault(), 1..4_usize).prop_map(|(fault, times)| Step::FailWatches(fault, times)),
        1 => (fault(), 1..4_usize).prop_map(|(fault, times)| Step::FailLists(fault, times)),
        1 => (0..3000_u16).prop_map(Step::Delay),
        1 => any::<bool>().prop_map(Step::Streaming),
        1 => any::<bool>().prop_map(Step::Timeouts),
        1 => proptest::sample::select(vec![ExpiredAs::Event, ExpiredAs::Response]).prop_map(Step::ExpiredAs),
        1 => Just(Step::Join),
        1 => Just(Step::Restart),
        8 => (0..2000_u16).prop_map(Step::Pass),
    ]
}

async fn play(steps: Vec<Step>, seed: u64) -> Result<(), TestCaseError> {
    let world = World::with(|config| {
        config.random = Arc::new(SeededRandom::new(seed));
        config.resync = Some(7 * MINUTE);
    });
    let source = &world.source;
    let mut handlers = vec![world.handler.clone()];
    let mut running = world.start();
    let mut made = 0;
    let mut make = |name: u8| {
        made += 1;
        let name = name.to_string();
        // An object keeps its UID for as long as it is there.
        let there = source.get(&key(&name));
        let uid = there.map_or_else(|| made.to_string(), |there| there.uid.to_string());
        object(&name).uid(&uid).owned_by(&(made % 3).to_string())
    };
    for step in steps {
        match step {
            Step::Apply(name) => drop(source.apply(make(name))),
            Step::ApplyUndecodable(name) => drop(source.apply_undecodable(make(name))),
            Step::Recreate(name) => {
                source.delete(&key(&name.to_string()));
                source.apply(make(name));
            }
            Step::Delete(name) => drop(source.delete(&key(&name.to_string()))),
            Step::Advance => drop(source.advance()),
            Step::Bookmark => source.bookmark(),
            Step::EndWatches => source.end_watches(),
            Step::BreakWatches(fault) => source.break_watches(&fault.error()),
            Step::ForgetHistory => source.compact(),
            Step::FailWatches(fault, times) => source.fail_watches(&fault.error(), times),
            Step::FailLists(fault, times) => source.fail_lists(&fault.error(), times),
            Step::Delay(millis) => source.set_delay(Duration::from_millis(millis.into())),
            Step::Streaming(offered) => source.set_streaming_lists(offered),
            Step::Timeouts(kept) => source.set_timeouts(kept),
            Step::ExpiredAs(gone) => source.set_expired_as(gone),
            Step::Join => {
                let handler = Arc::new(RecordingHandler::new());
                world.informer.add_handler(handler.clone());
                handlers.push(handler);
            }
            Step::Restart => {
                running.stop().await;
                running = world.start();
            }
            Step::Pass(millis) => pass(Duration::from_millis(millis.into())).await,
        }
    }
    // Objects that nobody can read have no place in the comparison.
    let readable: Vec<_> = source.objects().into_iter().map(|thing| thing.key).collect();
    for name in 0..8 {
        let key = key(&name.to_string());
        if source.get(&key).is_some() && !readable.contains(&key) {
            source.apply(make(name));
        }
    }
    source.recover();
    pass(20 * MINUTE).await;

    let whole =
        |things: Vec<TestObject>| things.into_iter().map(|thing| (thing.key.clone(), thing)).collect();
    let plain = |things: Vec<Arc<TestObject>>| whole(things.iter().map(|thing| (**thing).clone()).collect());
    let expected: BTreeMap<_, _> = whole(source.objects());
    prop_assert!(world.informer.has_synced());
    let store = world.informer.store();
    prop_assert_eq!(plain(store.list()), expected.clone());
    for owner in ["0", "1", "2"] {
        let mut owned = source.objects();
        owned.retain(|thing| thing.owner.as_deref() == Some(owner));
        prop_assert_eq!(plain(store.by_index(OWNER, owner)), whole(owned));
    }
    for handler in handlers {
        let told = handler.replay().map_err(TestCaseError::fail)?;
        prop_assert_eq!(plain(told.into_values().collect()), expected.clone());
    }
    prop_assert_eq!(source.watchers(), 1, "at rest, one watch is open");
    running.stop().await;
    prop_assert_eq!(source.watchers(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn informer_through_random_trouble_ends_equal_to_its_source(
        steps in proptest::collection::vec(step(), 1..120),
        seed in any::<u64>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(play(steps, seed))?;
    }
}
