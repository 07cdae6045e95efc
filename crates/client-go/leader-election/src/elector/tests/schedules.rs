//! Many candidates with random failures: there are never two leaders, and there is one again after the failures.

use kcm_clock::Random;

use super::{
    go_candidate::GoCandidate,
    network::{Ending, Network, Trip},
    *,
};

/// Maximum clock rate error. Real clocks are much better; the rules tolerate a factor of 1.5.
const WRONG_BY: f64 = 0.15;

/// Duration of a run.
const TIME: Duration = Duration::from_secs(900);
const TICK: Duration = Duration::from_millis(250);

/// Random fate of each request.
fn misfortune(seed: u64, slowest: Duration) -> impl FnMut() -> Trip + Send + 'static {
    let random = SeededRandom::new(seed);
    let mut bad = false;
    move || {
        let unit = || random.unit();
        // Good and bad periods alternate.
        bad = if bad { unit() > 0.15 } else { unit() < 0.03 };
        let luck = if bad { unit() } else { unit() * 20.0 };
        let ending = match luck {
            _ if luck < 0.2 => Ending::Silence,
            _ if luck < 0.5 => Ending::Break,
            _ if luck < 0.6 => Ending::Refusal,
            _ => Ending::Answer,
        };
        let slow = |share: f64| if share < 0.92 { Duration::from_millis(5) } else { slowest.mul_f64(share) };
        Trip { out: slow(unit()), arrives: unit() < 0.7 || luck > 0.6, back: slow(unit()), ending }
    }
}

/// Counts leaders and records if there are two.
#[derive(Default)]
struct Referee {
    gates: Mutex<Vec<(String, LeaderGate)>>,
    go: Arc<GoCandidate>,
    foul: Mutex<Option<String>>,
}

impl Referee {
    /// Returns the number of leaders.
    fn look(&self) -> usize {
        let gates = self.gates.lock();
        let mut leaders: Vec<_> =
            gates.iter().filter(|(_, gate)| gate.is_leader()).map(|(name, _)| &**name).collect();
        leaders.extend(self.go.is_leading().then_some("go"));
        if leaders.len() > 1 {
            *self.foul.lock() = Some(format!("{leaders:?} lead at {:?}", tokio::time::Instant::now()));
        }
        leaders.len()
    }

    fn admit(&self, name: &str, gate: LeaderGate) {
        let mut gates = self.gates.lock();
        gates.push((name.to_owned(), gate));
        // Gates of former processes.
        let surplus = gates.len().saturating_sub(16);
        gates.drain(..surplus);
    }
}

/// Runs a candidate that is restarted with a new name whenever it ends, with random failures. Returns the number of
/// its leaderships.
async fn live(
    name: String,
    network: Arc<Network>,
    seed: u64,
    referee: Arc<Referee>,
    end: CancellationToken,
) -> usize {
    let random = SeededRandom::new(seed);
    let mut terms = 0;
    for process in 0.. {
        let name = format!("{name}_{process}");
        let rate = 1.0 + WRONG_BY * (random.unit() * 2.0 - 1.0);
        let clock = Arc::new(MachineClock::wrong(rate, random.next_u64()));
        let release_on_cancel = random.unit() < 0.5;
        let config = LeaderElectionConfig { release_on_cancel, ..config(&name, &network, clock) };
        let elected: Box<dyn Fn() + Send + Sync> = Box::new({
            let referee = Arc::clone(&referee);
            move || _ = referee.look()
        });
        let told = Told { elected: Some(elected), ..Told::default() };
        let candidate = Running::start_watched(config, told);
        referee.admit(&name, candidate.gate.clone());
        let dies = tokio::time::Instant::now() + Duration::from_millis(20_000 + random.next_u64() % 200_000);
        while !candidate.task.is_finished() {
            sleep(Duration::from_millis(random.next_u64() % 5_000)).await;
            match random.next_u64() % 40 {
                0 => {
                    candidate.paused.stop();
                    sleep(Duration::from_millis(random.next_u64() % 40_000)).await;
                    candidate.paused.go_on();
                }
                1..=5 => candidate.acquire_trigger.trigger(),
                _ => {}
            }
            if tokio::time::Instant::now() > dies || end.is_cancelled() {
                if random.unit() < 0.5 {
                    candidate.stop.cancel();
                } else {
                    candidate.task.abort();
                }
            }
        }
        terms += usize::from(candidate.lost.is_cancelled());
        if end.is_cancelled() {
            break;
        }
    }
    terms
}

#[derive(Default)]
struct Story {
    ours: usize,
    theirs: u64,
    leaderless: Duration,
}

/// Runs `ours` candidates of this crate and perhaps one of the other kind, looking on all the while.
async fn play(seed: u64, ours: u64, with_go: bool, slowest: Duration) -> Story {
    let root = Network::good();
    let referee = Arc::new(Referee::default());
    let end = CancellationToken::new();
    let way = |seed| Network::beside_with(&root, misfortune(seed, slowest));
    let candidates: Vec<_> = (0..ours)
        .map(|number| {
            let seed = seed * 1000 + number;
            tokio::spawn(live(format!("ours-{number}"), way(seed), seed, Arc::clone(&referee), end.clone()))
        })
        .collect();
    let go = with_go.then(|| {
        let seed = seed * 1000 + 500;
        let elected = {
            let referee = Arc::clone(&referee);
            move || _ = referee.look()
        };
        let go = Arc::clone(&referee.go);
        tokio::spawn(go.run("go", way(seed), seed, end.clone(), seed % 2000 == 500, elected))
    });
    let started = tokio::time::Instant::now();
    let mut story = Story::default();
    while started.elapsed() < TIME {
        sleep(TICK).await;
        if referee.look() == 0 {
            story.leaderless += TICK;
        }
        let foul = referee.foul.lock();
        assert!(foul.is_none(), "seed {seed}: {}: {:?}", foul.as_deref().unwrap_or_default(), root.lease());
    }
    end.cancel();
    for candidate in candidates {
        story.ours += candidate.await.unwrap();
    }
    if let Some(go) = go {
        go.await.unwrap();
    }
    story.theirs = referee.go.terms();
    story
}

#[tokio::test(start_paused = true)]
async fn at_most_one_leader() {
    let (mut terms, mut leaderless) = (0, Duration::ZERO);
    let seeds = 40;
    for seed in 0..seeds {
        // Slower than the request timeout and the leadership: writes arrive after their futures were dropped.
        let story = play(u64::from(seed), 2 + u64::from(seed) % 3, false, Duration::from_secs(12)).await;
        terms += story.ours;
        leaderless += story.leaderless;
    }
    // Or the test would be of nothing.
    assert!(terms > 200, "{terms}");
    assert!(leaderless < TIME * seeds / 2, "{leaderless:?}");
}

#[tokio::test(start_paused = true)]
async fn at_most_one_leader_with_client_go() {
    let (mut ours, mut theirs) = (0, 0);
    for seed in 100..120 {
        // Answers come soon: client-go counts from when they come, and leads too long when that is late.
        let story = play(seed, 2, true, Duration::from_millis(400)).await;
        ours += story.ours;
        theirs += story.theirs;
    }
    assert!(ours > 30 && theirs > 30, "{ours} {theirs}");
}
