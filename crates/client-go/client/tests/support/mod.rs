//! Clients of a fake API server, and an API server on [`socket`]s.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod files;
pub mod proxy;
pub mod socket;

use std::sync::Arc;

use kcm_api::{Deployment, Pod};
use kcm_client::{ApiClient, ClientFactory, ClientOptions, ListParams, ListWatch, RateLimit, UserAgent};
use kcm_clock::Clock;
use kcm_testkit::FakeApiServer;

/// Clients of a server.
pub trait Clients {
    fn factory_with(&self, options: ClientOptions) -> ClientFactory;

    fn factory(&self) -> ClientFactory;

    fn client(&self) -> ApiClient {
        self.factory().client("test", RateLimit::UNLIMITED)
    }
}

impl Clients for FakeApiServer {
    fn factory_with(&self, options: ClientOptions) -> ClientFactory {
        ClientFactory::in_process(self.service(), options)
    }

    fn factory(&self) -> ClientFactory {
        self.factory_with(options(self.clock()))
    }
}

/// Sources of informers.
pub trait Sources {
    fn pods(&self) -> Arc<dyn ListWatch<Pod>>;

    fn deployments(&self) -> Arc<dyn ListWatch<Deployment>>;
}

impl Sources for ApiClient {
    fn pods(&self) -> Arc<dyn ListWatch<Pod>> {
        self.api().list_watch(ListParams::default())
    }

    fn deployments(&self) -> Arc<dyn ListWatch<Deployment>> {
        self.api().list_watch(ListParams::default())
    }
}

pub fn options(clock: Arc<dyn Clock>) -> ClientOptions {
    ClientOptions::new(UserAgent::new("test-binary", "v1.2.3", "abcdef0123"), clock)
}
