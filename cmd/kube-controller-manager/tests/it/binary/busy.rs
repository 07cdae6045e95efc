//! Manager with busy controllers and a busy secure port.

use std::{
    collections::BTreeMap,
    net::TcpStream,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use kcm_apiserver::{ListOptions, Resource};
use kcm_clock::{Clock, RealClock, SeededRandom, Sleep, Timestamp};
use kcm_controller_manager::{Command, Placement, Runtime, StartError};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::binary::cluster::{Cluster, Entry};

/// Name of the thread that the controllers run on.
const CONTROLLERS: &str = "controllers";

/// Time for which each thread is busy: three durations of the Lease.
const BUSY: Duration = Duration::from_secs(12);

/// Clock that keeps the threads of the controllers and of the secure port busy when they read it.
#[derive(Debug, Default)]
struct BusyClock {
    real: RealClock,
    /// End of the busy time. `None` before it starts.
    until: Mutex<Option<Duration>>,
    /// Time for which each thread was busy.
    busy: Mutex<BTreeMap<String, Duration>>,
}

impl BusyClock {
    fn start(&self) {
        *self.until.lock() = Some(self.real.monotonic() + BUSY);
    }

    fn spin(&self) {
        let until = *self.until.lock();
        let (thread, now) = (thread::current(), self.real.monotonic());
        let name = thread.name().filter(|name| [CONTROLLERS, "secure-port"].contains(name));
        let (Some(name), Some(until)) = (name, until.filter(|until| now < *until)) else { return };
        while self.real.monotonic() < until {
            std::hint::spin_loop();
        }
        self.busy.lock().insert(name.to_owned(), until - now);
    }
}

impl Clock for BusyClock {
    fn now(&self) -> Timestamp {
        self.spin();
        self.real.now()
    }

    fn monotonic(&self) -> Duration {
        self.spin();
        self.real.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.real.sleep(duration)
    }
}

/// Manager in this process, with the threads of the program.
struct Manager {
    thread: JoinHandle<Result<(), StartError>>,
    shutdown: CancellationToken,
    port: u16,
}

impl Manager {
    fn start(cluster: &Cluster, clock: Arc<dyn Clock>) -> Self {
        let port = kcm_testkit::unused_address().port();
        let arguments = [
            format!("--kubeconfig={}", cluster.path("a").display()),
            format!("--cert-dir={}", cluster.path("certificates").display()),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--controllers=deployment,replicaset".to_owned(),
            "--leader-elect-resource-name=kube-controller-manager".to_owned(),
            "--leader-elect-lease-duration=4s".to_owned(),
            "--leader-elect-renew-deadline=3s".to_owned(),
            "--leader-elect-retry-period=1s".to_owned(),
        ];
        let shutdown = CancellationToken::new();
        let runtime = Runtime {
            clock,
            random: Arc::new(SeededRandom::new(1)),
            host: "test".to_owned(),
            proxy: Default::default(),
            shutdown: shutdown.clone(),
            log: None,
            placement: Placement::OwnThreads,
        };
        let run = move || {
            let Command::Run(options) = Command::parse(arguments.map(Into::into)).unwrap() else {
                unreachable!()
            };
            let controllers = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            controllers.block_on(kcm_controller_manager::run(&options, runtime))
        };
        let thread = thread::Builder::new().name(CONTROLLERS.to_owned()).spawn(run).unwrap();
        Self { thread, shutdown, port }
    }
}

#[test]
fn lease_is_renewed_while_controllers_and_port_are_busy() {
    let mut cluster = Cluster::start();
    let clock = Arc::new(BusyClock::default());
    let manager = Manager::start(&cluster, Arc::clone(&clock) as _);
    cluster.wait_for_leader("a");
    cluster.deploy("web", 1);
    cluster.wait_for_pod_of("a");
    let certificate = cluster.path("certificates/kube-controller-manager.crt");
    assert_eq!(cluster.get(manager.port, &certificate, "/healthz").unwrap(), "ok");

    let start = cluster.now();
    clock.start();
    cluster.deploy("api", 1);
    let _connection = TcpStream::connect(("127.0.0.1", manager.port)).unwrap();
    let is_renewal = |entry: &Entry| entry.resource == "leases" && entry.is_write();
    let (mut last, mut longest) = (start, Duration::ZERO);
    while last < start + BUSY {
        let renewed = cluster.wait_for("a renewal", is_renewal);
        longest = longest.max(renewed.saturating_sub(last));
        last = renewed;
    }
    println!("longest time between renewals: {longest:?}");
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    cluster.until("the Deployment has its pod", || {
        let pods = cluster.server.list(Resource::PODS, Some("default"), &ListOptions::default()).unwrap();
        pods.items.len() == 2
    });
    assert_eq!(cluster.get(manager.port, &certificate, "/healthz").unwrap(), "ok");
    let busy = clock.busy.lock().clone();
    assert_eq!(busy.keys().collect::<Vec<_>>(), [CONTROLLERS, "secure-port"]);
    assert!(busy.values().all(|busy| *busy > BUSY - Duration::from_secs(1)), "{busy:?}");
    cluster.assert_leads_when_writing("a");
    manager.shutdown.cancel();
    manager.thread.join().unwrap().unwrap();
}
