//! Pages that all components serve.

mod debug;
mod negotiation;
mod statusz;

use crate::{Handler, Response, handler};

pub use debug::{debug_flags, profiling};
pub use statusz::{StatuszInfo, flagz, statusz};

/// Handler of `/configz`: the component's configuration under the name of its API group.
///
/// Upstream counterpart: `component-base/configz`.
pub fn configz(name: &str, config: &serde_json::Value) -> Handler {
    let body = bytes::Bytes::from(serde_json::json!({ name: config }).to_string());
    handler(move |_| {
        let nosniff = http::HeaderValue::from_static("nosniff");
        Response::json(body.clone()).with(http::header::X_CONTENT_TYPE_OPTIONS, nosniff)
    })
}

#[cfg(test)]
mod tests;
