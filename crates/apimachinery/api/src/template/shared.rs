//! Encoded pod templates, in pieces that revisions share.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use crate::intern::Interner;

/// JSON text or protobuf message of a pod template. Equal pieces of different templates are stored once.
///
/// Revisions of a Deployment usually differ by the label `pod-template-hash` and by images, which are separate pieces.
#[derive(PartialEq)]
pub(super) struct Shared(Box<[Arc<Box<[u8]>>]>);

impl Shared {
    /// Cuts `content` at the offsets `cuts`.
    pub(super) fn new(content: &[u8], cuts: Vec<usize>) -> Self {
        static PIECES: LazyLock<Interner<Box<[u8]>>> = LazyLock::new(Interner::default);
        let pieces = pieces(content, cuts)
            .map(|piece| PIECES.intern(piece, |found| **found == *piece, || Arc::new(piece.into())));
        Self(pieces.collect())
    }

    /// Returns the content.
    pub(super) fn bytes(&self) -> Cow<'_, [u8]> {
        match &*self.0 {
            [piece] => Cow::Borrowed(piece),
            pieces => {
                let mut content = Vec::with_capacity(pieces.iter().map(|piece| piece.len()).sum());
                pieces.iter().for_each(|piece| content.extend_from_slice(piece));
                Cow::Owned(content)
            }
        }
    }

    /// Returns the content, which was a text.
    pub(super) fn text(&self) -> Cow<'_, str> {
        match self.bytes() {
            Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8(bytes).unwrap_or_default()),
        }
    }

    /// `true` if `content` is the content.
    pub(super) fn is(&self, content: &[u8]) -> bool {
        let rest = self.0.iter().try_fold(content, |rest, piece| rest.strip_prefix(&***piece));
        rest.is_some_and(<[u8]>::is_empty)
    }

    /// Returns the number of bytes on the heap. A piece that `n` templates share counts `1/n`.
    pub(super) fn size(&self) -> usize {
        let pieces = self.0.iter();
        pieces.map(|piece| size_of_val(piece) + piece.len() / Arc::strong_count(piece)).sum()
    }
}

/// Pieces of `content` that are not empty.
fn pieces(content: &[u8], mut cuts: Vec<usize>) -> impl Iterator<Item = &[u8]> {
    cuts.retain(|cut| *cut < content.len());
    cuts.sort_unstable();
    cuts.push(content.len());
    let mut start = 0;
    cuts.into_iter().filter_map(move |cut| {
        let piece = content.get(start..cut).filter(|piece| !piece.is_empty());
        start = cut;
        piece
    })
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::{super::cuts, *};
    use crate::protobuf::MessageBuilder;

    fn container(name: &str, image: &str) -> MessageBuilder {
        let mut container = MessageBuilder::default();
        container.bytes(1, name).bytes(2, image).bytes(7, "settings that seldom change");
        container
    }

    fn message(hash: &str, image: &str) -> Vec<u8> {
        let mut spec = MessageBuilder::default();
        spec.bytes(1, "volume").bytes(2, container("web", image)).bytes(2, container("log", "log:1"));
        spec.bytes(3, "Always").bytes(20, container("init", "init:1"));
        let mut template = MessageBuilder::default();
        template.bytes(1, hash).bytes(2, spec);
        template.into_vec()
    }

    fn text(hash: &str, image: &str) -> String {
        format!(
            r#"{{"metadata": {{"labels": {{"pod-template-hash": "{hash}"}}}}, "spec": {{"volumes": [],
            "initContainers": [{{"name": "init", "image": "init:1", "x": "größer"}}], "containers": [
            {{"image": "{image}", "name": "web"}}, {{"name": "log", "image": "log:1", "x": 1}}]}}}}"#
        )
    }

    fn of_message(message: &[u8]) -> Shared {
        Shared::new(message, cuts::of_message(message))
    }

    fn of_json(json: &str) -> Shared {
        Shared::new(json.as_bytes(), cuts::of_json(json))
    }

    fn same(one: &Shared, other: &Shared) -> Vec<bool> {
        iter::zip(&one.0, &other.0).map(|(one, other)| Arc::ptr_eq(one, other)).collect()
    }

    #[test]
    fn content_is_kept() {
        let check = |shared: Shared, content: &[u8]| {
            assert_eq!(&*shared.bytes(), content);
            assert!(shared.is(content));
            assert!(!shared.is(&[content, b"x"].concat()));
            assert!(content.is_empty() || !shared.is(&content[1..]));
        };
        for content in [message("a", "web:1"), Vec::new(), b"\x12\x05abc".to_vec(), vec![0xff; 40]] {
            check(of_message(&content), &content);
        }
        let shortest = r#"{"spec":{"containers":[{"image":"ö"}]}}"#;
        let malformed =
            [r#"{"spec": 5}"#, r#"{"spec": {"containers": [5]}}"#, r#"{"spec": {"containers": {}}}"#];
        for content in
            [&*text("a", "web:1"), shortest, "null", "{}", "", r#"{"spec""#].into_iter().chain(malformed)
        {
            check(of_json(content), content.as_bytes());
            assert_eq!(of_json(content).text(), content);
        }
    }

    #[test]
    fn content_can_be_cut_anywhere() {
        for cuts in [vec![], vec![0], vec![3], vec![9], vec![2, 2], vec![2, 1, 4, 0, 3]] {
            assert_eq!(&*Shared::new(b"abc", cuts).bytes(), b"abc");
        }
    }

    #[test]
    fn revisions_differ_in_two_pieces() {
        let (one, other) = (of_message(&message("a", "web:1")), of_message(&message("b", "web:2.0")));
        // Metadata, volumes, web, its settings, log, its settings, init, its settings.
        assert_eq!(same(&one, &other), [false, true, false, true, true, true, true, true]);
        assert!(one != other);
        assert!(one == of_message(&message("a", "web:1")));

        let (one, other) = (of_json(&text("a", "web:1")), of_json(&text("b", "web:2.0")));
        // The image of init and that of log are in pieces 3 and 7.
        assert_eq!(same(&one, &other), [true, false, true, true, true, false, true, true, true]);
        assert!(one != other);
        assert!(one == of_json(&text("a", "web:1")));
    }
}
