//! Clients of the secure port.

use super::{Bounds, Effect, Fault, Lasts};

/// Client of the secure port. The functions are in the module `clients`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    ChainOfNames,
    DeepChain,
    Handshakes,
    Bytes,
    LargeHeaders,
    LargeStreams,
    RandomTokens,
    RapidReset,
    Continuation,
    Settings,
    Ping,
    ZeroWindows,
    UnreadScrapes,
}

const NONE: Fault = Fault {
    name: "",
    what: "",
    effect: Effect::Client(Client::Ping),
    lasts: Lasts::Seconds(30),
    reached: "TLS handshakes",
    bounds: Bounds::UNHARMED,
    rule: None,
};

/// The faults.
pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "client-chain-of-names",
        what: "10 `GET /healthz` a second, each with 280 certificates (63 KB) whose names form 8 × 8 × 8 × 8 × 8 × 6 \
               paths",
        effect: Effect::Client(Client::ChainOfNames),
        ..NONE
    },
    Fault {
        name: "client-deep-chain",
        what: "10 `GET /healthz` a second, each with 100 certificates, of which each signs the one before",
        effect: Effect::Client(Client::DeepChain),
        ..NONE
    },
    Fault {
        name: "client-handshakes",
        what: "1,000 full TLS handshakes a second, at most 200 at once",
        effect: Effect::Client(Client::Handshakes),
        ..NONE
    },
    Fault {
        name: "client-bytes",
        what: "800 connections that send a byte a second, one half in the TLS handshake, the other half in a header",
        effect: Effect::Client(Client::Bytes),
        ..NONE
    },
    Fault {
        name: "client-large-headers",
        what: "20 requests a second with headers of 1 MB, HTTP/1.1 and HTTP/2 in turns, that end after 5 s",
        effect: Effect::Client(Client::LargeHeaders),
        ..NONE
    },
    Fault {
        name: "client-large-streams",
        what: "50 connections with 100 streams each, with 60 KB of headers and a random token, every 5 s",
        effect: Effect::Client(Client::LargeStreams),
        ..NONE
    },
    Fault {
        name: "client-random-tokens",
        what: "200 connections with 10 requests for `/metrics` with a random token each, every 2 s",
        effect: Effect::Client(Client::RandomTokens),
        ..NONE
    },
    Fault {
        name: "client-rapid-reset",
        what: "10 connections with 2,000 HTTP/2 streams a second each that are reset at once",
        effect: Effect::Client(Client::RapidReset),
        ..NONE
    },
    Fault {
        name: "client-continuation",
        what: "10 connections with 2,000 CONTINUATION frames a second each, every second one empty, in headers without \
               an end",
        effect: Effect::Client(Client::Continuation),
        ..NONE
    },
    Fault {
        name: "client-settings",
        what: "10 connections with 20,000 SETTINGS frames a second each, whose acknowledgements are not read",
        effect: Effect::Client(Client::Settings),
        ..NONE
    },
    Fault {
        name: "client-ping",
        what: "10 connections with 20,000 PING frames a second each, whose acknowledgements are not read",
        effect: Effect::Client(Client::Ping),
        ..NONE
    },
    Fault {
        name: "client-zero-windows",
        what: "50 HTTP/2 connections with windows of 0 and 100 requests for `/healthz?verbose` each",
        effect: Effect::Client(Client::ZeroWindows),
        ..NONE
    },
    Fault {
        name: "client-unread-scrapes",
        what: "50 connections with 100 authenticated scrapes of `/metrics` each that are not read, one half HTTP/1.1, the \
               other half HTTP/2 with windows of 0",
        effect: Effect::Client(Client::UnreadScrapes),
        ..NONE
    },
];
