//! Splits the stream of a watch into events.

use bytes::{Buf, Bytes, BytesMut};

/// Separation of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Lines. Empty ones are skipped.
    Lines,
    /// Each event follows its length, which has four bytes.
    ///
    /// Upstream counterpart: `protobuf.LengthDelimitedFramer`.
    Lengths,
}

/// Events of a stream that arrives in pieces of any size.
#[derive(Debug)]
pub(crate) struct Frames {
    framing: Framing,
    buffer: BytesMut,
    /// Length of the prefix of the buffer without a line end.
    searched: usize,
    limit: usize,
}

/// Error: an event is longer than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Frames {
    /// Creates a splitter for events of at most `limit` bytes.
    pub(crate) fn new(framing: Framing, limit: usize) -> Self {
        Self { framing, buffer: BytesMut::new(), searched: 0, limit }
    }

    pub(crate) fn framing(&self) -> Framing {
        self.framing
    }

    /// Adds a piece.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// Returns the next complete event, without its line end or its length.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        match self.framing {
            Framing::Lines => self.line(),
            Framing::Lengths => self.message(),
        }
    }

    /// `true` if there is an incomplete event.
    pub(crate) fn has_rest(&self) -> bool {
        match self.framing {
            Framing::Lines => !self.buffer.trim_ascii().is_empty(),
            Framing::Lengths => !self.buffer.is_empty(),
        }
    }

    fn line(&mut self) -> Result<Option<Bytes>, TooLong> {
        loop {
            let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                return if self.searched > self.limit { Err(TooLong) } else { Ok(None) };
            };
            let mut line = self.buffer.split_to(self.searched + at + 1);
            self.searched = 0;
            line.truncate(line.len() - 1);
            if line.len() > self.limit {
                return Err(TooLong);
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line.freeze()));
            }
        }
    }

    fn message(&mut self) -> Result<Option<Bytes>, TooLong> {
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
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(framing: Framing, content: &str) -> Vec<u8> {
        match framing {
            Framing::Lines => format!("{content}\n").into_bytes(),
            Framing::Lengths => {
                let length = u32::try_from(content.len()).unwrap().to_be_bytes();
                [&length, content.as_bytes()].concat()
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_of_any_size(
            contents in proptest::collection::vec("[a-z]{1,20}", 0..20),
            size in 1_usize..30,
        ) {
            for framing in [Framing::Lines, Framing::Lengths] {
                let stream: Vec<u8> = contents.iter().flat_map(|content| frame(framing, content)).collect();
                let mut frames = Frames::new(framing, 64);
                let mut got = Vec::new();
                for piece in stream.chunks(size) {
                    frames.push(piece);
                    got.extend(std::iter::from_fn(|| frames.next().unwrap()));
                }
                prop_assert_eq!(&got, &contents);
                prop_assert!(!frames.has_rest());
            }
        }
    }

    #[test]
    fn limit_applies_to_incomplete_events() {
        for (framing, stream) in
            [(Framing::Lines, &b"abcd\nabcde"[..]), (Framing::Lengths, b"\0\0\0\x04abcd\0\0\0\x05")]
        {
            let mut frames = Frames::new(framing, 4);
            frames.push(stream);
            assert_eq!(frames.next(), Ok(Some(Bytes::from_static(b"abcd"))));
            assert_eq!(frames.next(), Err(TooLong));
        }
    }

    #[test]
    fn incomplete_event_is_a_rest() {
        let cases = [
            (Framing::Lines, &b"\n\nab"[..]),
            (Framing::Lengths, b"\0\0"),
            (Framing::Lengths, b"\0\0\0\x04"),
            (Framing::Lengths, b"\0\0\0\x04abc"),
        ];
        for (framing, piece) in cases {
            let mut frames = Frames::new(framing, 64);
            frames.push(piece);
            assert_eq!(frames.next(), Ok(None));
            assert!(frames.has_rest(), "{piece:?}");
        }
    }
}
