//! Channels over a WebSocket.
//!
//! Upstream counterpart: `streaming/pkg/httpstream/wsstream`. Each message begins with the number of its channel.

use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kcm_apiserver::http::response::ApiResponse;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message as Frame, Utf8Bytes,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

use crate::executor::end_turn;

/// Maximum size of a message. Clients forward as much as they have read from a socket, up to 1 MiB.
const MAX_MESSAGE: usize = (1 << 20) + 1;

/// Size of a message in addition to its data.
const OVERHEAD: usize = 64;

/// Prefix of a protocol that contains a token. kube-apiserver authenticates by it.
const TOKEN_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Maximum size of a buffer that is allocated before data arrives.
const READ_BUFFER: usize = 8 << 10;

/// First byte of a message that closes the channel of the second byte.
const CLOSE: u8 = 255;

/// Protocol whose clients close single channels.
const WITH_CLOSE: &str = "v5.channel.k8s.io";

/// Message of a client.
pub(super) enum Message {
    /// Data for a channel.
    Data(u8, Bytes),
    /// End of a channel.
    Close(u8),
}

impl Message {
    /// Size of the message in memory.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Data(_, data) => OVERHEAD + data.len(),
            Self::Close(_) => OVERHEAD,
        }
    }
}

/// Connection with channels.
pub(super) struct Channels {
    socket: WebSocketStream<TokioIo<Upgraded>>,
    with_close: bool,
}

/// Returns the response to a handshake, and the first protocol of the client that is supported.
///
/// # Errors
///
/// Code and message of the response: 400 if the request is not a handshake, 403 if no protocol is supported.
pub(super) fn accept(
    headers: &HeaderMap,
    supported: &[&'static str],
) -> Result<(ApiResponse, &'static str), (StatusCode, String)> {
    let bad = || (StatusCode::BAD_REQUEST, "unable to upgrade: not a WebSocket handshake".to_owned());
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let is_websocket = text(header::UPGRADE).is_some_and(|upgrade| upgrade.eq_ignore_ascii_case("websocket"));
    let key = text(header::SEC_WEBSOCKET_KEY).filter(|_| is_websocket).ok_or_else(bad)?;
    if text(header::SEC_WEBSOCKET_VERSION) != Some("13") {
        return Err(bad());
    }
    let requested = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let requested = requested.flat_map(|value| value.to_str().unwrap_or("?").split(',')).map(str::trim);
    let requested: Vec<&str> = requested.collect();
    let requested = if requested.is_empty() { vec![""] } else { requested };
    let find = |name: &&str| supported.iter().find(|known| **known == *name);
    let unsupported = || {
        let (accepted, mut requested) = (supported.join(", "), requested.clone());
        requested.retain(|name| !name.starts_with(TOKEN_PREFIX));
        let message = format!(
            "unable to upgrade: unable to negotiate protocol: client supports {requested:?}, server accepts [{accepted}]"
        );
        (StatusCode::FORBIDDEN, message)
    };
    let protocol = *requested.iter().find_map(find).ok_or_else(unsupported)?;
    let mut response = Response::new(Empty::new().boxed_unsync());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes()));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept.map_err(|_| bad())?);
    if !protocol.is_empty() {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    Ok((response, protocol))
}

impl Channels {
    pub(super) async fn new(upgraded: Upgraded, protocol: &str) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(0)
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        let stream = TokioIo::new(upgraded);
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
        Self { socket, with_close: protocol == WITH_CLOSE }
    }

    /// Returns the next message. `None` if the client has closed the connection or does not follow the protocol.
    ///
    /// # Cancel safety
    ///
    /// No message is lost.
    pub(super) async fn receive(&mut self) -> Option<Message> {
        loop {
            let mut data: Bytes = match self.socket.next().await?.ok()? {
                Frame::Binary(data) => data,
                Frame::Text(text) => text.into(),
                Frame::Close(_) => return None,
                _ => Bytes::new(),
            };
            let Some(channel) = data.first().copied() else {
                // The client may send empty messages without a pause.
                end_turn().await;
                continue;
            };
            data = data.slice(1..);
            if channel != CLOSE || !self.with_close {
                return Some(Message::Data(channel, data));
            }
            match *data {
                [channel] => return Some(Message::Close(channel)),
                _ => return None,
            }
        }
    }

    /// Sends data on a channel. `None` if the connection is closed.
    pub(super) async fn send(&mut self, channel: u8, data: &[u8]) -> Option<()> {
        let mut message = BytesMut::with_capacity(data.len() + 1);
        message.extend_from_slice(&[channel]);
        message.extend_from_slice(data);
        self.socket.send(Frame::Binary(message.freeze())).await.ok()
    }

    /// Closes the connection and waits until the client has done so. Otherwise the client could lose the last messages.
    pub(super) async fn close(mut self) {
        let normal = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
        if self.socket.close(Some(normal)).await.is_ok() {
            while let Some(Ok(_)) = self.socket.next().await {}
        }
    }
}
