//! A secure port as Kubernetes' components have it: TLS, delegated authentication and authorization, health.
//!
//! *Upstream counterpart:* `k8s.io/apiserver/pkg/server` (secure serving, healthz, delegated auth) as components use
//! it, with `configz`, `flagz` and `statusz` of `k8s.io/component-base`.
//!
//! A component says what it serves with [`Routes`], whom it lets in with [`Access`], and gives both to a
//! [`SecureServer`]:
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
//!     .exact("/metrics", handler(|_| Answer::text("up 1\n")));
//! let client = ClientOptions::new(UserAgent::new("my-operator", "v1.0.0", "unknown"), Arc::clone(&clock));
//! let access =
//!     Access::connect(&AuthenticationOptions::default(), &AuthorizationOptions::default(), &client).await?;
//! let server = SecureServer::bind(&ServingOptions::default(), "my-operator", access, routes, clock).await?;
//! server.run(shutdown).await;
//! # Ok(())
//! # }
//! ```
//!
//! *What must not live here:* flags, metrics' contents, anything of a controller.

mod access;
mod error;
mod exchange;
mod files;
mod health;
mod options;
mod pages;
mod refusal;
mod routes;
mod server;
mod tls;

pub use access::{Access, User};
pub use error::ServingError;
pub use exchange::{Answer, Asked, Handler, handler};
pub use health::{HealthCheck, HealthChecks, HealthMetrics};
/// Types of parameters of [`Answer::with`] and [`Routes::exact_with_body`].
pub use http::{HeaderName, HeaderValue, Method};
pub use options::{
    AuthenticationOptions, AuthorizationOptions, RequestHeaderOptions, ServingOptions, SniCertKey, TlsVersion,
};
pub use pages::{Status, configz, debug_flags, flagz, profiling, statusz};
pub use routes::Routes;
pub use server::SecureServer;
pub use tls::SelfSigned;
