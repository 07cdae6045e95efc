//! The demo scenario in simulated time, in one process and without sockets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kcm_client::RateLimit;
use kcm_controller_manager::{ControllerSelection, Controllers, ManagerConfig};
use kcm_sandbox::demo::{self, DemoOutput, Frame};
use kcm_testkit::CapturedLog;
use tracing::level_filters::LevelFilter;

use crate::test_server::TestServer;

/// Records the reasons for which the rollout waits.
#[derive(Default)]
struct SilentOutput {
    whys: Vec<String>,
}

impl DemoOutput for SilentOutput {
    fn step(&mut self, title: &str) {
        if std::env::var_os("SHOW").is_some() {
            println!("== {title}");
        }
    }

    fn frame(&mut self, frame: &Frame) {
        if std::env::var_os("SHOW").is_some() {
            println!("{}", frame.line());
        }
        self.whys.extend(frame.why());
    }

    fn frame_interval(&self) -> Duration {
        Duration::from_millis(10)
    }
}

fn start_controllers(test: &TestServer) -> Controllers {
    let config = ManagerConfig {
        controllers: ControllerSelection::all(),
        rate_limit: RateLimit::UNLIMITED,
        ..ManagerConfig::default()
    };
    kcm_controller_manager::start_in_process(&config, test.server.service(), &test.clock, &test.random)
}

#[tokio::test(start_paused = true)]
async fn demo_completes_within_bounds_and_without_warnings() {
    let (warnings, _guard) = CapturedLog::of_this_thread(LevelFilter::WARN);
    // Only the controllers create these objects, so an existing name is one that they created before.
    let conflicts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&conflicts);
    let test = TestServer::with(kcm_apiserver::ApiServerConfig {
        audit: Some(Arc::new(move |event: &kcm_apiserver::AuditEvent| {
            if event.code == 409 && event.verb == "create" {
                println!("{event:?}");
                counted.fetch_add(1, Ordering::Relaxed);
            }
        })),
        ..kcm_apiserver::ApiServerConfig::default()
    });
    let _sandbox = test.run_sandbox(2);
    let controllers = start_controllers(&test);

    let mut output = SilentOutput::default();
    let summary = demo::run(test.server, test.clock, &mut output).await.unwrap();
    println!("{summary}");
    assert_eq!((summary.stats.above_max, summary.stats.below_min), (0, 0), "{summary}");
    // Each rollout creates one set of pods: 6, 6, 3 that never start, and the remainder of the last two.
    let pods = summary.stats.pods_created;
    assert!(pods <= 6 + 6 + 3 + 2 + 6 + 9, "{pods} pods were created");
    for reason in
        ["Waiting because", "pods start", "Progress deadline exceeded because 3 pods cannot pull their image"]
    {
        let found = output.whys.iter().any(|why| why.starts_with("why: ") && why.contains(reason));
        assert!(found, "{reason}: {:#?}", output.whys);
    }
    assert_eq!(conflicts.load(Ordering::Relaxed), 0, "an object was created twice");
    assert_eq!(warnings.text(), "");
    controllers.stop().await.unwrap();
}
