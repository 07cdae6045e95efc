//! Splits a stream into lines.

use bytes::{Bytes, BytesMut};

/// Lines of a stream that arrives in pieces of any size.
#[derive(Debug)]
pub(crate) struct Lines {
    buffer: BytesMut,
    /// Length of the prefix of the buffer without a line end.
    searched: usize,
    limit: usize,
}

/// Error: a line is longer than the limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Lines {
    /// Creates a splitter for lines of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), searched: 0, limit }
    }

    /// Adds a piece.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// Returns the next complete line without its end. Skips empty lines.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
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

    /// `true` if there is an incomplete line.
    pub(crate) fn has_rest(&self) -> bool {
        !self.buffer.trim_ascii().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(lines: &mut Lines) -> Vec<Bytes> {
        std::iter::from_fn(|| lines.next().unwrap()).collect()
    }

    proptest! {
        #[test]
        fn pieces_of_any_size(
            texts in proptest::collection::vec("[a-z]{1,20}", 0..20),
            size in 1_usize..30,
        ) {
            let stream: String = texts.iter().map(|text| format!("{text}\n")).collect();
            let mut lines = Lines::new(64);
            let mut got = Vec::new();
            for piece in stream.as_bytes().chunks(size) {
                lines.push(piece);
                got.extend(all(&mut lines));
            }
            prop_assert_eq!(got, texts);
            prop_assert!(!lines.has_rest());
        }
    }

    #[test]
    fn limit_applies_to_incomplete_lines() {
        let mut lines = Lines::new(4);
        lines.push(b"abcd\nabcde");
        assert_eq!(lines.next(), Ok(Some(Bytes::from_static(b"abcd"))));
        assert_eq!(lines.next(), Err(TooLong));
    }

    #[test]
    fn incomplete_line_is_a_rest() {
        let mut lines = Lines::new(64);
        lines.push(b"\n\nab");
        assert_eq!(lines.next(), Ok(None));
        assert!(lines.has_rest());
    }
}
