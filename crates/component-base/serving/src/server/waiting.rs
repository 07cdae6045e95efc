//! Limits of memory: of requests that wait for a review of their user or for their body, and of responses that wait for
//! their client.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum memory of all waiting requests, in bytes.
const MAX_REQUESTS: usize = 32 * 1024 * 1024;
/// Maximum memory of all large responses that are not sent yet, in bytes. `/metrics` has some hundred KB.
const MAX_RESPONSES: usize = 16 * 1024 * 1024;
/// Size of a response that is small, in bytes: 10 MB if every stream of every connection has one. Those of probes are.
const SMALL_RESPONSE: usize = 4 * 1024;

/// Memory of a request without headers, in bytes: its task, its stream, and the buffer of the connection that its path and
/// its headers refer to, of which they may be a small part.
const REQUEST: usize = 24 * 1024;
/// Memory of a slot of a `HeaderMap`: the entry with name and value, and two indices.
const SLOT: usize = 112;
/// Memory of a further value of a name in a `HeaderMap`. The vector of these grows by doubling.
const FURTHER_VALUE: usize = 2 * 72;

/// Memory of requests and responses that wait.
pub(super) struct Waiting {
    requests: Arc<Semaphore>,
    responses: Arc<Semaphore>,
}

/// Body of a response that takes a part of the memory until it is dropped.
struct LargeBody {
    body: Bytes,
    _reserved: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for LargeBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Waiting {
    pub(super) fn new() -> Self {
        let limit = |bytes| Arc::new(Semaphore::new(bytes));
        Self { requests: limit(MAX_REQUESTS), responses: limit(MAX_RESPONSES) }
    }

    /// Reserves `memory` bytes for a request. `None` if the other requests leave fewer.
    pub(super) fn reserve(&self, memory: usize) -> Option<OwnedSemaphorePermit> {
        try_acquire(&self.requests, memory)
    }

    /// Body of a response that reserves its memory until it has been sent. `None` if the other responses leave too little.
    pub(super) fn keep(&self, body: Bytes) -> Option<Bytes> {
        if body.len() <= SMALL_RESPONSE {
            return Some(body);
        }
        let reserved = try_acquire(&self.responses, body.len().min(MAX_RESPONSES))?;
        Some(Bytes::from_owner(LargeBody { body, _reserved: reserved }))
    }
}

fn try_acquire(limit: &Arc<Semaphore>, bytes: usize) -> Option<OwnedSemaphorePermit> {
    Arc::clone(limit).try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
}

/// Upper bound of the memory of `request` without its body, in bytes.
pub(super) fn memory<B>(request: &Request<B>) -> usize {
    let headers = request.headers();
    let further = headers.len() - headers.keys_len();
    let text: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    REQUEST + headers.capacity() * SLOT + further * FURTHER_VALUE + text + path
}
