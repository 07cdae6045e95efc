//! Tokens of the rate limit that are taken before the request is made.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use crate::ApiClient;

/// Token of a client's rate limit for one request, see [`ApiClient::with_permit`].
///
/// It is for a request whose content depends on the time at which it is sent. If it is dropped unused, the token returns to
/// the rate limit.
pub struct Permit {
    client: ApiClient,
    waited: Duration,
    used: AtomicBool,
}

impl Permit {
    pub(crate) fn new(client: &ApiClient, waited: Duration) -> Self {
        Self { client: client.clone(), waited, used: AtomicBool::new(false) }
    }

    /// Takes the token. Returns the time that its caller waited for it; `None` if it was taken before.
    pub(crate) fn take(&self) -> Option<Duration> {
        (!self.used.swap(true, Ordering::Relaxed)).then_some(self.waited)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !*self.used.get_mut() {
            self.client.rate_limiter().give_back();
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("waited", &self.waited).finish_non_exhaustive()
    }
}
