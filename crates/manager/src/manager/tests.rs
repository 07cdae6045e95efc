use kcm_api::{Lease, Pod};
use kcm_client::{ClientFactory, ClientOptions, RateLimit, UserAgent};
use kcm_clock::{Random, RealClock, SeededRandom};
use kcm_informer::IndexName;
use kcm_testkit::{FakeApiServer, FakeResponse};
use serde_json::json;

use super::*;

#[tokio::test]
async fn informers_are_shared_with_the_indexes_of_all_requests() {
    let api = FakeApiServer::scripted([]);
    let clock = api.clock();
    let clients = ClientFactory::in_process(
        api.service(),
        ClientOptions::new(UserAgent::new("test", "v1", ""), Arc::clone(&clock)),
    );
    let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
    let dependencies = Dependencies::new(&clients, &clock, &random);
    let manager = Manager::without_election(Settings::new("test"), dependencies);

    let first = manager.informer::<Pod>(ListParams::default());
    let options = InformerOptions::new("pods");
    let second =
        manager.informer_of::<Pod>(&options, Indexers::new().with_namespace(), || panic!("on purpose"));
    for store in [first.store(), second.store()] {
        // A store without the index panics.
        assert!(store.by_index(IndexName::NAMESPACE, "shop").is_empty());
    }
    let metadata = manager.informer::<Pod>(ListParams { metadata_only: true, ..ListParams::default() });
    assert_eq!(metadata.name(), "pods/metadata");
    let leases = manager.informer::<Lease>(ListParams::default());
    assert_eq!(leases.name(), "leases.v1.coordination.k8s.io");
    assert_eq!(manager.informers.informers().len(), 3);
}

/// Clients of a `kube::Client` have a real clock.
#[tokio::test(start_paused = true)]
async fn rate_limits_have_the_clock_of_the_manager() {
    let lease = json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": {}});
    let api = FakeApiServer::scripted([FakeResponse::ok(lease.clone()), FakeResponse::ok(lease)]);
    let clock = api.clock();
    let options = ClientOptions::new(UserAgent::new("test", "v1", ""), Arc::new(RealClock::new()));
    let clients = ClientFactory::in_process(api.service(), options);
    let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
    let dependencies = Dependencies::new(&clients, &clock, &random);
    let leases = dependencies.clients.client("test", RateLimit { qps: 0.1, burst: 1 }).api::<Lease>();
    let start = clock.monotonic();
    for _ in 0..2 {
        leases.namespaced("shop").get("web").await.unwrap();
    }
    assert_eq!(clock.monotonic() - start, Duration::from_secs(10));
}
