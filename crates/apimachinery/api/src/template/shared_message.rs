//! Protobuf messages of pod templates, in pieces that revisions share.

use std::{
    iter,
    ops::Range,
    sync::{Arc, LazyLock},
};

use crate::{
    intern::Interner,
    protobuf::{Message, pod_template::SPEC},
};

/// Field numbers of `PodSpec` and `Container`.
const CONTAINERS: u32 = 2;
const INIT_CONTAINERS: u32 = 20;
const IMAGE: u32 = 2;

/// Message of a pod template. Equal pieces of different templates are stored once.
///
/// Revisions of a Deployment usually differ by the label `pod-template-hash` and by images, which have pieces of their own.
#[derive(PartialEq)]
pub(super) struct SharedMessage(Box<[Arc<Box<[u8]>>]>);

impl SharedMessage {
    pub(super) fn new(message: &[u8]) -> Self {
        static PIECES: LazyLock<Interner<Box<[u8]>>> = LazyLock::new(Interner::default);
        let pieces = pieces(message)
            .map(|piece| PIECES.intern(piece, |found| **found == *piece, || Arc::new(piece.into())));
        Self(pieces.collect())
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut message = Vec::with_capacity(self.0.iter().map(|piece| piece.len()).sum());
        self.0.iter().for_each(|piece| message.extend_from_slice(piece));
        message
    }

    /// `true` if the content is `message`.
    pub(super) fn is(&self, message: &[u8]) -> bool {
        let rest = self.0.iter().try_fold(message, |rest, piece| rest.strip_prefix(&***piece));
        rest.is_some_and(<[u8]>::is_empty)
    }

    /// Returns the number of bytes on the heap. A piece that `n` templates share counts `1/n`.
    pub(super) fn size(&self) -> usize {
        let pieces = self.0.iter();
        pieces.map(|piece| size_of_val(piece) + piece.len() / Arc::strong_count(piece)).sum()
    }
}

/// Cuts `message` at [`cuts`].
fn pieces(message: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    cuts(message).into_iter().chain([message.len()]).filter_map(move |cut| {
        let piece = message.get(start..cut);
        start = cut;
        piece
    })
}

/// Offsets of the first field of the spec, of each container, and of the end of each image, in ascending order.
fn cuts(message: &[u8]) -> Vec<usize> {
    let mut cuts = Vec::new();
    for (_, spec) in fields(message, 0..message.len()).filter(|(field, _)| field.number == SPEC) {
        cuts.push(spec.start);
        for (field, container) in fields(message, spec) {
            if matches!(field.number, CONTAINERS | INIT_CONTAINERS) {
                cuts.push(field.start);
                let images = fields(message, container).filter(|(field, _)| field.number == IMAGE);
                cuts.extend(images.map(|(_, image)| image.end));
            }
        }
    }
    cuts
}

/// Position of a field.
struct Field {
    number: u32,
    start: usize,
}

/// Fields of the message at `place` with the positions of their contents, up to the first that is malformed.
fn fields(message: &[u8], place: Range<usize>) -> impl Iterator<Item = (Field, Range<usize>)> {
    let mut fields = Message::new(message.get(place.clone()).unwrap_or_default());
    let mut start = place.start;
    iter::from_fn(move || {
        let (number, value) = fields.next()?.ok()?;
        let field = Field { number, start };
        start = place.end - fields.rest().len();
        Some((field, start - value.bytes().unwrap_or_default().len()..start))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::MessageBuilder;

    fn container(name: &str, image: &str) -> MessageBuilder {
        let mut container = MessageBuilder::default();
        container.bytes(1, name).bytes(2, image).bytes(7, "settings that seldom change");
        container
    }

    fn template(hash: &str, image: &str) -> Vec<u8> {
        let mut spec = MessageBuilder::default();
        spec.bytes(1, "volume").bytes(2, container("web", image)).bytes(2, container("log", "log:1"));
        spec.bytes(3, "Always").bytes(20, container("init", "init:1"));
        let mut template = MessageBuilder::default();
        template.bytes(1, hash).bytes(2, spec);
        template.into_vec()
    }

    #[test]
    fn content_is_kept() {
        for message in [template("a", "web:1"), Vec::new(), b"\x12\x05abc".to_vec(), vec![0xff; 40]] {
            let shared = SharedMessage::new(&message);
            assert_eq!(shared.to_vec(), message);
            assert!(shared.is(&message));
            assert!(!shared.is(&[&message[..], b"x"].concat()));
            assert!(message.is_empty() || !shared.is(&message[1..]));
        }
    }

    #[test]
    fn revisions_differ_in_two_pieces() {
        let (one, other) = (template("a", "web:1"), template("b", "web:2.0"));
        let (one, other) = (SharedMessage::new(&one), SharedMessage::new(&other));
        let same: Vec<bool> =
            iter::zip(&one.0, &other.0).map(|(one, other)| Arc::ptr_eq(one, other)).collect();
        // Metadata, volumes, web, its settings, log, its settings, init, its settings.
        assert_eq!(same, [false, true, false, true, true, true, true, true]);
        assert!(one != other);
        assert!(one == SharedMessage::new(&template("a", "web:1")));
    }
}
