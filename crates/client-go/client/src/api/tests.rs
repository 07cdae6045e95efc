use kcm_testkit::{FakeApiServer, FakeResponse};

use std::time::Duration;

use kcm_api::{Lease, ObjectKey};

use crate::{ClientFactory, ClientOptions, RateLimit, UserAgent};

#[tokio::test(start_paused = true)]
async fn watch_reports_each_state_and_is_opened_again() {
    let event = |type_: &str, holder: &str| {
        let mut lease = Lease::new(&ObjectKey::new("kube-system", "kcm"));
        lease.spec.holder_identity = Some(holder.to_owned());
        format!("{{\"type\":\"{type_}\",\"object\":{}}}\n", serde_json::to_string(&lease).unwrap())
    };
    let first = event("ADDED", "a") + &event("MODIFIED", "");
    let watches = [first, event("DELETED", ""), "garbage\n".to_owned()].map(FakeResponse::ok);
    let refused = std::iter::repeat_n(FakeResponse::failure(403, "Forbidden", ""), 9);
    let server = FakeApiServer::scripted(watches.into_iter().chain(refused));
    let options = ClientOptions::new(UserAgent::new("test", "v1", "abcdef0"), server.clock());
    let client =
        ClientFactory::in_process(server.service(), options).client("leader-election", RateLimit::UNLIMITED);

    let mut states = Vec::new();
    let key = ObjectKey::new("kube-system", "kcm");
    let leases = client.api::<Lease>();
    let watch = leases.watch_object(&key, |lease| {
        states.push(lease.map(|lease| lease.holder().unwrap_or_default().to_owned()));
    });
    tokio::time::timeout(Duration::from_secs(120), watch).await.unwrap_err();
    assert_eq!(states, [Some("a".to_owned()), Some(String::new()), None]);
    let request = "GET /apis/coordination.k8s.io/v1/namespaces/kube-system/leases\
                   ?watch=true&fieldSelector=metadata.name%3Dkcm&timeoutSeconds=300";
    // Three watches end at once, the others are refused. The delays are 1, 2, 4, 8, 16, 30 and 30 seconds.
    assert_eq!(server.request_lines(), [request; 8]);
}
