//! A world in this process: the embedded server, and the controllers as a library.

use std::{
    fmt,
    sync::{Arc, OnceLock, Weak},
};

use async_trait::async_trait;
use jiff::Timestamp;
use kcm_apiserver::{ApiServer, ApiServerConfig, AuditEvent, Faults};
use kcm_client::{ClientFactory, ClientOptions, RateLimit, UserAgent};
use kcm_clock::{Clock, Random, SeededRandom, SimulatedClock};
use kcm_controller_manager::{Controllers, Dependencies, KUBERNETES_VERSION, ManagerConfig, Selection};
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    guard::Guard,
    story::{Cluster, Story},
    trail::{Entry, Trail, TrailSender},
    world::{Manager, World, WorldError},
};

/// The story's own requests go by this name.
pub(crate) const STORY: &str = "kcm-stories";

/// Told of every write of the manager when it has taken effect, before the manager learns of it: with the server as
/// it is then, and with the manager, which may be [killed](ManagerHandle::kill) there and then.
pub type AfterWrite = Arc<dyn Fn(&Entry, &ApiServer, &ManagerHandle) + Send + Sync>;

/// What an [`InProcess`] world is made from.
pub struct InProcessConfig {
    /// Decides all chance: uids, names, jitter.
    pub seed: u64,
    /// What time it is at the beginning.
    pub start: Timestamp,
    /// Who is told of every write.
    pub after_write: Vec<AfterWrite>,
    /// The simulated nodes, if there are any.
    pub cluster: Option<Cluster>,
    /// How requests are harmed.
    pub faults: Faults,
}

impl InProcessConfig {
    /// A world with this seed, which nobody is told about.
    pub fn new(seed: u64) -> Self {
        // Any time will do; every run should have the same.
        Self {
            seed,
            start: Timestamp::UNIX_EPOCH.saturating_add(YEARS).unwrap_or_default(),
            after_write: Vec::new(),
            cluster: None,
            faults: Faults::default(),
        }
    }

    /// A world with this seed and with what the story needs.
    pub fn for_story(story: &Story, seed: u64) -> Self {
        Self { cluster: story.cluster, faults: story.faults(), ..Self::new(seed) }
    }
}

/// From 1970 into 2026.
const YEARS: jiff::SignedDuration = jiff::SignedDuration::from_hours(24 * 365 * 56 + 24 * 14);

impl fmt::Debug for InProcessConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessConfig").field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// A world in this process and in simulated time: it runs under tokio's paused clock, on one thread.
///
/// The same seed gives the same story, write by write.
#[derive(Debug)]
pub struct InProcess {
    /// The world.
    pub world: World,
    /// Its server, for looking at it.
    pub server: Arc<ApiServer>,
    /// Its manager.
    pub manager: ManagerHandle,
    /// Who holds the invariants.
    pub guard: Arc<Guard>,
    /// Ends the simulated nodes.
    _stop: DropGuard,
}

/// The manager of a world in this process, shared between the world and those who watch it.
#[derive(Clone)]
pub struct ManagerHandle(Arc<Shared>);

#[derive(Default)]
struct Shared {
    running: Mutex<Option<Controllers>>,
    /// Must know who is new.
    guard: Arc<Guard>,
    /// How it was started last.
    start: Mutex<Option<Arc<dyn Fn() -> Controllers + Send + Sync>>>,
}

impl ManagerHandle {
    /// Ends the manager where it is, as a crash would. Whether it was running.
    pub fn kill(&self) -> bool {
        self.0.running.lock().take().is_some()
    }

    /// Ends the manager where it is and starts another in its place, if it was running.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn restart(&self) {
        let start = self.0.start.lock().clone();
        if let Some(start) = start
            && self.kill()
        {
            self.0.guard.restarted();
            *self.0.running.lock() = Some(start());
        }
    }

    /// Whether it is running.
    pub fn is_running(&self) -> bool {
        self.0.running.lock().is_some()
    }
}

impl fmt::Debug for ManagerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerHandle").field("running", &self.is_running()).finish()
    }
}

impl InProcess {
    /// A fresh world.
    ///
    /// # Errors
    ///
    /// When the server does not answer, which would be a defect.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn new(config: InProcessConfig) -> Result<Self, WorldError> {
        let InProcessConfig { seed, start, after_write, cluster, faults } = config;
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(start));
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(seed));
        let (sender, trail) = Trail::new(Arc::clone(&clock));
        let guard = Arc::new(Guard::default());
        let shared = Shared { guard: Arc::clone(&guard), ..Shared::default() };
        let manager = ManagerHandle(Arc::new(shared));
        let watcher = Arc::new(Watcher {
            sender,
            after_write,
            server: OnceLock::new(),
            manager: manager.clone(),
            guard: Arc::clone(&guard),
        });
        let told = Arc::clone(&watcher);
        let server = ApiServer::new(ApiServerConfig {
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            advertise_version: KUBERNETES_VERSION.to_owned(),
            audit: Some(Arc::new(move |event| told.tell(event))),
            faults,
            ..ApiServerConfig::default()
        });
        // It has not been set before.
        let _ = watcher.server.set(Arc::downgrade(&server));
        guard.watch(&server);
        let stop = CancellationToken::new();
        if let Some(Cluster { nodes, pod_ready_delay, pod_stop_delay }) = cluster {
            let sandbox = Sandbox::new(SandboxConfig {
                server: Arc::clone(&server),
                clock: Arc::clone(&clock),
                random: Arc::clone(&random),
                nodes,
                kubelet: KubeletConfig { pod_ready_delay, pod_stop_delay },
            })?;
            let stop = stop.clone();
            tokio::spawn(async move { sandbox.run(stop).await });
        }

        let options = ClientOptions::new(UserAgent::new(STORY, "v0", ""), Arc::clone(&clock));
        let clients = ClientFactory::in_process(server.service(), options);
        let api = clients.client("story", RateLimit::UNLIMITED);
        let runner = Runner {
            server: Arc::clone(&server),
            clock: Arc::clone(&clock),
            random,
            running: manager.clone(),
        };
        let world = World::new(api, clock, trail, Box::new(runner)).await?.guarded(Arc::clone(&guard));
        Ok(Self { world, server, manager, guard, _stop: stop.drop_guard() })
    }
}

/// Listens to the server's audit.
struct Watcher {
    sender: TrailSender,
    after_write: Vec<AfterWrite>,
    /// Set once there is one; weak, for the server owns the audit.
    server: OnceLock<Weak<ApiServer>>,
    manager: ManagerHandle,
    guard: Arc<Guard>,
}

impl Watcher {
    fn tell(&self, event: &AuditEvent) {
        if event.user_agent.starts_with(STORY) {
            self.guard.tell(event, None);
            return;
        }
        let entry = Entry::from(event);
        if entry.is_write() {
            self.guard.tell(event, Some(&entry));
            if let Some(server) = self.server.get().and_then(Weak::upgrade) {
                for told in &self.after_write {
                    told(&entry, &server, &self.manager);
                }
            }
        } else if entry.verb != "watch" {
            return;
        }
        self.sender.leave(entry);
    }
}

/// Runs the controllers.
#[derive(Debug)]
struct Runner {
    server: Arc<ApiServer>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    running: ManagerHandle,
}

#[async_trait]
impl Manager for Runner {
    async fn start(&mut self, controllers: &[String], _: &mut Trail) -> Result<(), WorldError> {
        let config = ManagerConfig {
            controllers: Selection::new(controllers)?,
            // As upstream was run when it was recorded.
            concurrent_deployment_syncs: 1,
            concurrent_replica_set_syncs: 1,
            rate_limit: RateLimit { qps: 1000.0, burst: 1000 },
            ..ManagerConfig::default()
        };
        let (server, clock, random) =
            (Arc::clone(&self.server), Arc::clone(&self.clock), Arc::clone(&self.random));
        let guard = Arc::clone(&self.running.0.guard);
        let start = move || {
            let options = ClientOptions::new(kcm_controller_manager::user_agent(), Arc::clone(&clock));
            let clients = ClientFactory::in_process(server.service(), options);
            let syncs = Arc::clone(&guard);
            let dependencies = Dependencies {
                syncs: Some(Arc::new(move |_| syncs.syncs())),
                ..Dependencies::new(&clients, &clock, &random)
            };
            Controllers::start_in(&config, dependencies)
        };
        *self.running.0.running.lock() = Some(start());
        *self.running.0.start.lock() = Some(Arc::new(start));
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), WorldError> {
        *self.running.0.start.lock() = None;
        let running = self.running.0.running.lock().take();
        if let Some(controllers) = running {
            controllers.stop().await?;
        }
        Ok(())
    }
}
