//! Lists.

use std::{convert::Infallible, sync::Arc, vec};

use futures_util::stream;
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::{
    response::{self, ApiResponse},
    view::View,
};
use crate::{Object, ObjectList};

/// Approximate maximum size of a chunk in bytes. Smaller chunks cost more system calls.
const CHUNK: usize = 256 << 10;
/// Maximum number of items in a chunk. Rows of a table are short, and each requires decoding of an object.
const CHUNK_ITEMS: usize = 256;

/// Items of a list that are not serialized yet.
struct Rest {
    view: View,
    items: vec::IntoIter<Arc<Object>>,
    is_first: bool,
    /// Text after the last item. `None` once it is serialized.
    end: Option<Vec<u8>>,
}

/// Responds with a list.
///
/// A list that exceeds a chunk is a stream: a chunk is serialized when the client has read the one before. So a list takes
/// little memory whatever its length, and other requests are served between two chunks.
///
/// Upstream counterpart: the feature `StreamingCollectionEncodingToJSON`.
pub(super) fn respond(view: View, list: ObjectList) -> ApiResponse {
    let mut text = Vec::new();
    let end = Some(view.list_start(&list, &mut text));
    let mut rest = Rest { view, items: list.items.into_iter(), is_first: true, end };
    rest.write_chunk(&mut text);
    if rest.end.is_none() {
        return response::json_text(StatusCode::OK, text.into());
    }
    let chunks = stream::unfold((Some(text), rest), async |(first, mut rest)| {
        let text = match first {
            Some(text) => text,
            None if rest.end.is_none() => return None,
            None => {
                tokio::task::yield_now().await;
                let mut text = Vec::with_capacity(CHUNK + CHUNK / 8);
                rest.write_chunk(&mut text);
                text
            }
        };
        Some((Ok::<_, Infallible>(Frame::data(text.into())), (None, rest)))
    });
    response::stream(StreamBody::new(chunks).boxed_unsync())
}

impl Rest {
    /// Appends items until the chunk is full, and the end of the list after the last one.
    fn write_chunk(&mut self, text: &mut Vec<u8>) {
        for _ in 0..CHUNK_ITEMS {
            if text.len() >= CHUNK {
                return;
            }
            let Some(object) = self.items.next() else {
                text.extend(self.end.take().into_iter().flatten());
                return;
            };
            if !self.is_first {
                text.push(b',');
            }
            self.is_first = false;
            self.view.list_item(&object, text);
        }
    }
}
