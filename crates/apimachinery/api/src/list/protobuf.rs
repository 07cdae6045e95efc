use buffa::{
    DecodeError,
    encoding::{Tag, WireType, decode_varint},
};

use super::meta::ListMeta;
use crate::{
    ProtobufError,
    protobuf::{Message, PREFIX, malformed, open_envelope},
};

/// Number of the object in its envelope, and of the objects in a list.
const CONTENT: u32 = 2;

/// Maximum length of a tag and a number after it.
const MAX_HEADER: usize = 20;

/// List in protobuf, in its envelope.
///
/// The objects are cut out of the list, and the list out of the envelope. The rest of both is read at the end.
#[derive(Debug, Default)]
pub(super) struct ProtobufList {
    envelope: Vec<u8>,
    outline: Vec<u8>,
    /// Length of the list that is left. `None` outside of the list.
    left: Option<usize>,
    /// `true` once the list has started.
    has_list: bool,
    /// Start of the present field, if it began in an earlier piece.
    partial: Vec<u8>,
    /// Last field that was completed from two pieces.
    complete: Vec<u8>,
}

/// Tag of a field, and its length if it has one.
struct Header {
    number: u32,
    is_bytes: bool,
    /// Length of the header itself.
    len: usize,
    /// Length of the rest of the field.
    content: usize,
}

impl ProtobufList {
    /// Same as [`ListSplitter::next`](super::ListSplitter::next).
    pub(super) fn next<'s, 'p: 's>(
        &'s mut self,
        piece: &mut &'p [u8],
    ) -> Result<Option<&'s [u8]>, ProtobufError> {
        self.prefix(piece)?;
        loop {
            let Some(Header { number, is_bytes, len, content }) = self.header(piece)? else {
                return Ok(None);
            };
            let is_content = number == CONTENT && is_bytes;
            if self.left.is_none() && is_content {
                if std::mem::replace(&mut self.has_list, true) {
                    return Err(ProtobufError::Value("the envelope: it has two objects".into()));
                }
                self.drop_header(piece, len);
                self.left = Some(content).filter(|left| *left > 0);
                continue;
            }
            let eof = || malformed(DecodeError::UnexpectedEof);
            let len_of_field = len.checked_add(content).ok_or_else(eof)?;
            // Checked before the field is complete, which it may never be.
            let left = self.left.map(|left| left.checked_sub(len_of_field).ok_or_else(eof)).transpose()?;
            let missing = len_of_field.saturating_sub(self.partial.len());
            let Some((rest_of_field, rest)) = piece.split_at_checked(missing) else {
                self.partial.extend_from_slice(piece);
                *piece = &[];
                return Ok(None);
            };
            *piece = rest;
            let is_in_list = self.left.is_some();
            self.left = left.filter(|left| *left > 0);
            let is_whole = self.partial.is_empty();
            if !is_whole {
                self.partial.extend_from_slice(rest_of_field);
                std::mem::swap(&mut self.partial, &mut self.complete);
                self.partial.clear();
            }
            if is_in_list && is_content {
                return Ok(Some(if is_whole { &rest_of_field[len..] } else { &self.complete[len..] }));
            }
            let outline = if is_in_list { &mut self.outline } else { &mut self.envelope };
            outline.extend_from_slice(if is_whole { rest_of_field } else { &self.complete });
        }
    }

    /// Reads the magic number.
    fn prefix(&mut self, piece: &mut &[u8]) -> Result<(), ProtobufError> {
        while let Some(expected) = PREFIX.get(self.envelope.len())
            && let Some((byte, rest)) = piece.split_first()
        {
            if byte != expected {
                return Err(ProtobufError::Prefix);
            }
            self.envelope.push(*byte);
            *piece = rest;
        }
        Ok(())
    }

    /// Returns the header of the next field once it is complete. It remains in the input.
    fn header(&mut self, piece: &mut &[u8]) -> Result<Option<Header>, ProtobufError> {
        loop {
            let start = if self.partial.is_empty() { *piece } else { &self.partial };
            match Header::read(start) {
                Err(DecodeError::UnexpectedEof) if start.len() < MAX_HEADER => {}
                header => return header.map(Some).map_err(malformed),
            }
            let Some((byte, rest)) = piece.split_first() else { return Ok(None) };
            self.partial.push(*byte);
            *piece = rest;
        }
    }

    fn drop_header(&mut self, piece: &mut &[u8], len: usize) {
        if self.partial.is_empty() {
            *piece = &piece[len..];
        } else {
            // It contains the header only, see `header`.
            self.partial.clear();
        }
    }

    /// Same as [`ListSplitter::finish`](super::ListSplitter::finish).
    pub(super) fn finish(self) -> Result<ListMeta, ProtobufError> {
        open_envelope(&self.envelope)?;
        if !self.has_list || self.left.is_some() || !self.partial.is_empty() {
            return Err(malformed(DecodeError::UnexpectedEof));
        }
        let mut meta = ListMeta::default();
        for field in Message::new(&self.outline) {
            match field? {
                (1, value) => {
                    for field in value.message()? {
                        match field? {
                            (2, value) => value.text()?.clone_into(&mut meta.resource_version),
                            (3, value) => meta.continue_token = Some(value.text()?.to_owned()),
                            (4, value) => meta.remaining_item_count = value.int64()?.try_into().ok(),
                            _ => {}
                        }
                    }
                }
                // An object of another wire type.
                (CONTENT, value) => drop(value.bytes()?),
                _ => {}
            }
        }
        Ok(meta)
    }
}

impl Header {
    fn read(mut field: &[u8]) -> Result<Self, DecodeError> {
        let available = field.len();
        let tag = Tag::decode(&mut field)?;
        let content = match tag.wire_type() {
            WireType::Varint => decode_varint(&mut field).map(|_| 0)?,
            WireType::LengthDelimited => {
                decode_varint(&mut field)?.try_into().map_err(|_| DecodeError::MessageTooLarge)?
            }
            WireType::Fixed32 => 4,
            WireType::Fixed64 => 8,
            // No Kubernetes type has groups.
            group => return Err(DecodeError::InvalidWireType(group as u32)),
        };
        let (number, is_bytes) = (tag.field_number(), tag.wire_type() == WireType::LengthDelimited);
        Ok(Self { number, is_bytes, len: available - field.len(), content })
    }
}
