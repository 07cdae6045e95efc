//! Secure port of a Kubernetes component: TLS, delegated authentication and authorization, health checks.
//!
//! Upstream counterpart: `k8s.io/apiserver/pkg/server` (secure serving, healthz, delegated authentication and
//! authorization), and `configz`, `flagz` and `statusz` of `k8s.io/component-base`.
//!
//! A [`SecureServer`] serves [`Routes`] to the users that [`Access`] authorizes:
//!
//! ```no_run
//! # use std::{error::Error, sync::Arc};
//! # use kcm_client::{ClientOptions, UserAgent};
//! # use kcm_clock::{Clock, RealClock};
//! # use kcm_serving::*;
//! # use tokio_util::sync::CancellationToken;
//! # async fn serve(shutdown: CancellationToken) -> Result<(), Box<dyn Error>> {
//! let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
//! let health = HealthChecks::new();
//! let routes = Routes::new()
//!     .health("/healthz", &health)
//!     .exact("/metrics", handler(|_| Response::text("up 1\n")));
//! let client = ClientOptions::new(UserAgent::new("my-operator", "v1.0.0", "unknown"), Arc::clone(&clock));
//! let access =
//!     Access::connect(&AuthenticationOptions::default(), &AuthorizationOptions::default(), &client).await?;
//! let server = SecureServer::bind(&ServingOptions::default(), "my-operator", access, routes, clock).await?;
//! server.run(shutdown).await;
//! # Ok(())
//! # }
//! ```
//!
//! Not part of this crate: flags, the contents of metrics, controllers.

#![warn(missing_debug_implementations)]

mod access;
mod error;
mod files;
mod handler;
mod health;
mod options;
mod pages;
mod refusal;
mod routes;
mod server;
mod tls;

pub use access::{Access, User};
pub use error::ServingError;
pub use handler::{Handler, Request, Response, handler};
pub use health::{HealthCheck, HealthChecks, HealthMetrics};
/// Parameter types of [`Response::with`] and [`Routes::exact_with_body`].
pub use http::{HeaderName, HeaderValue, Method, StatusCode};
pub use options::{
    AuthenticationOptions, AuthorizationOptions, RequestHeaderOptions, ServingOptions, SniCertKey, TlsVersion,
};
pub use pages::{StatuszInfo, configz, debug_flags, flagz, profiling, statusz};
pub use routes::Routes;
pub use server::SecureServer;
pub use tls::SelfSigned;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
