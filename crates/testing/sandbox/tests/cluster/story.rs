//! The demo's story in simulated time: server, stand-ins and both controllers in one process, with no socket.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kcm_client::RateLimit;
use kcm_controller_manager::{Controllers, ManagerConfig, Selection};
use kcm_sandbox::demo::{self, Frame, Show};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt as _};

use crate::world::World;

struct Quiet;

impl Show for Quiet {
    fn chapter(&mut self, title: &str) {
        if std::env::var_os("SHOW").is_some() {
            println!("== {title}");
        }
    }

    fn frame(&mut self, frame: &Frame) {
        if std::env::var_os("SHOW").is_some() {
            println!("{}", frame.line());
        }
    }

    fn frame_interval(&self) -> Duration {
        Duration::from_millis(10)
    }
}

/// Counts what somebody would worry about in a log.
struct Complaints(Arc<AtomicUsize>);

impl<S: Subscriber> Layer<S> for Complaints {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() <= Level::WARN {
            println!("{event:?}");
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn start_controllers(world: &World) -> Controllers {
    let config = ManagerConfig {
        controllers: Selection::all(),
        rate_limit: RateLimit::UNLIMITED,
        ..ManagerConfig::default()
    };
    Controllers::in_process(&config, world.server.service(), &world.clock, &world.random)
}

#[tokio::test(start_paused = true)]
async fn story_in_simulated_time_comes_to_its_end_within_the_bounds_and_without_a_complaint() {
    let complaints = Arc::new(AtomicUsize::new(0));
    let log = tracing_subscriber::registry().with(Complaints(Arc::clone(&complaints)));
    let _guard = tracing::subscriber::set_default(log);
    // Nobody else creates what the controllers create, so a name that is taken is taken by themselves.
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let world = World::with(kcm_apiserver::Config {
        audit: Some(Arc::new(move |event: &kcm_apiserver::AuditEvent| {
            if event.code == 409 && event.verb == "create" {
                println!("{event:?}");
                counted.fetch_add(1, Ordering::Relaxed);
            }
        })),
        ..kcm_apiserver::Config::default()
    });
    let _sandbox = world.run_sandbox(2);
    let controllers = start_controllers(&world);

    let summary = demo::play(world.server, world.clock, &mut Quiet).await.unwrap();
    println!("{summary}");
    assert_eq!((summary.tally.over, summary.tally.under), (0, 0), "{summary}");
    // Each rollout makes one set of pods: 6, 6, the 3 that never start, and what the last two still lack.
    let pods = summary.tally.pods_created;
    assert!(pods <= 6 + 6 + 3 + 2 + 6 + 9, "{pods} pods were created");
    assert_eq!(taken.load(Ordering::Relaxed), 0, "something was created twice");
    assert_eq!(complaints.load(Ordering::Relaxed), 0, "warnings or errors were logged");
    controllers.stop().await.unwrap();
}
