//! Clients of a fake API server.

use kcm_client::{ApiClient, ClientFactory, ClientOptions, RateLimit, UserAgent};
use kcm_testkit::{FakeApiServer, FakeResponse};
use serde_json::Value;

/// Server that sends `objects` in their order.
pub(super) fn scripted<'a>(objects: impl IntoIterator<Item = &'a Value>) -> FakeApiServer {
    let responses: Vec<_> =
        objects.into_iter().map(|object| FakeResponse::ok(format!("{object}\n"))).collect();
    FakeApiServer::scripted(responses)
}

pub(super) fn client(server: &FakeApiServer) -> ApiClient {
    let options = ClientOptions::new(UserAgent::new("test", "v1", ""), server.clock());
    ClientFactory::in_process(server.service(), options).client("test", RateLimit::UNLIMITED)
}
