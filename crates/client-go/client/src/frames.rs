//! Splits a stream into frames.

use bytes::{Buf, Bytes, BytesMut};

use crate::lines::TooLong;

/// Frames of a stream that arrives in pieces of any size. A frame follows its length, which has four bytes.
///
/// Upstream counterpart: `protobuf.LengthDelimitedFramer`.
#[derive(Debug)]
pub(crate) struct Frames {
    buffer: BytesMut,
    limit: usize,
}

impl Frames {
    /// Creates a splitter for frames of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), limit }
    }

    /// Adds a piece.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// Returns the next complete frame without its length.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        let Some((length, rest)) = self.buffer.split_first_chunk() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > self.limit {
            return Err(TooLong);
        }
        if rest.len() < length {
            return Ok(None);
        }
        self.buffer.advance(size_of::<u32>());
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// `true` if there is an incomplete frame.
    pub(crate) fn has_rest(&self) -> bool {
        !self.buffer.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_of_any_size(
            contents in proptest::collection::vec("[a-z]{0,20}", 0..20),
            size in 1_usize..30,
        ) {
            let mut stream = Vec::new();
            for content in &contents {
                stream.extend_from_slice(&u32::try_from(content.len()).unwrap().to_be_bytes());
                stream.extend_from_slice(content.as_bytes());
            }
            let mut frames = Frames::new(64);
            let mut got = Vec::new();
            for piece in stream.chunks(size) {
                frames.push(piece);
                got.extend(std::iter::from_fn(|| frames.next().unwrap()));
            }
            prop_assert_eq!(got, contents);
            prop_assert!(!frames.has_rest());
        }
    }

    #[test]
    fn limit_applies_to_incomplete_frames() {
        let mut frames = Frames::new(4);
        frames.push(b"\0\0\0\x04abcd\0\0\0\x05");
        assert_eq!(frames.next(), Ok(Some(Bytes::from_static(b"abcd"))));
        assert_eq!(frames.next(), Err(TooLong));
    }

    #[test]
    fn incomplete_frame_is_a_rest() {
        for piece in [&b"\0\0"[..], b"\0\0\0\x04", b"\0\0\0\x04abc"] {
            let mut frames = Frames::new(64);
            frames.push(piece);
            assert_eq!(frames.next(), Ok(None));
            assert!(frames.has_rest(), "{piece:?}");
        }
    }
}
