use serde::{Deserialize, de::Error};

use super::meta::{ListError, ListMeta};

/// List in JSON.
///
/// The objects are cut out of the text. The rest, in which each object is replaced by `0`, is parsed at the end. The
/// members of the list can therefore have any order.
#[derive(Debug, Default)]
pub(super) struct JsonList {
    outline: Vec<u8>,
    /// Number of objects that were cut out.
    items: usize,
    place: Place,
    /// Nesting in the outline, or in the present object.
    nesting: Nesting,
    /// Start of the present object, if it began in an earlier piece.
    partial: Vec<u8>,
    /// Last object that was completed from two pieces.
    complete: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy)]
enum Place {
    /// Outside of the array of the objects.
    #[default]
    Outline,
    /// Between two objects.
    Items,
    /// In an object. `is_scalar` for a number, `null` or the like, which has no closing character.
    Item { is_scalar: bool },
}

/// Brackets and quotes that are open.
#[derive(Debug, Default)]
struct Nesting {
    depth: usize,
    in_string: bool,
    /// `true` after a backslash in a string.
    is_escaped: bool,
}

#[derive(Deserialize)]
struct Outline {
    #[serde(default)]
    metadata: ListMeta,
    items: Option<Vec<serde::de::IgnoredAny>>,
}

impl JsonList {
    /// Same as [`ListSplitter::next`](super::ListSplitter::next).
    pub(super) fn next<'s, 'p: 's>(&'s mut self, piece: &mut &'p [u8]) -> Option<&'s [u8]> {
        while let Some(&first) = piece.first() {
            match self.place {
                Place::Outline => self.outline(piece),
                Place::Items => match first {
                    b' ' | b'\n' | b'\r' | b'\t' => *piece = &piece[1..],
                    b',' | b']' => {
                        self.outline.push(first);
                        *piece = &piece[1..];
                        if first == b']' {
                            (self.place, self.nesting.depth) = (Place::Outline, 1);
                        }
                    }
                    _ => {
                        self.outline.push(b'0');
                        self.items += 1;
                        self.nesting.depth = 0;
                        self.place = Place::Item { is_scalar: !matches!(first, b'{' | b'[' | b'"') };
                    }
                },
                Place::Item { is_scalar } => {
                    let is_end = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | b',' | b']');
                    let end = if is_scalar {
                        piece.iter().position(is_end)
                    } else {
                        self.nesting.end_of_value(piece)
                    };
                    let Some(end) = end else {
                        self.partial.extend_from_slice(piece);
                        *piece = &[];
                        return None;
                    };
                    let (rest_of_item, rest) = piece.split_at(end);
                    (*piece, self.place) = (rest, Place::Items);
                    if self.partial.is_empty() {
                        return Some(rest_of_item);
                    }
                    self.partial.extend_from_slice(rest_of_item);
                    std::mem::swap(&mut self.partial, &mut self.complete);
                    self.partial.clear();
                    return Some(&self.complete);
                }
            }
        }
        None
    }

    /// Reads the outline up to the array of the objects.
    fn outline<'a>(&mut self, piece: &mut &'a [u8]) {
        let text: &'a [u8] = piece;
        let mut start = 0;
        while let Some(end) = self.nesting.skip_token(text, start) {
            self.outline.extend_from_slice(&text[start..end]);
            start = end;
            if self.nesting.depth == 2 && is_start_of_items(&self.outline) {
                self.place = Place::Items;
                *piece = &text[start..];
                return;
            }
        }
        self.outline.extend_from_slice(&text[start..]);
        *piece = &[];
    }

    /// Same as [`ListSplitter::finish`](super::ListSplitter::finish).
    pub(super) fn finish(self) -> Result<ListMeta, ListError> {
        // Within the objects, the array has no end, so the outline is incomplete.
        let Outline { metadata, items } = serde_json::from_str(std::str::from_utf8(&self.outline)?)?;
        if items.map_or(0, |items| items.len()) != self.items {
            // The name of the member has escapes. Servers do not write them.
            return Err(serde_json::Error::custom("cannot find the items").into());
        }
        Ok(metadata)
    }
}

/// `true` if `outline` ends with the start of the member `items`, which is an array.
fn is_start_of_items(outline: &[u8]) -> bool {
    let without = |text: &'_ [u8], end: &[u8]| text.trim_ascii_end().strip_suffix(end).map(<[u8]>::len);
    let key = without(outline, b"[").and_then(|at| without(&outline[..at], b":"));
    let before = key.and_then(|at| without(&outline[..at], b"\"items\""));
    // A key that only ends with these characters has a backslash before the quote.
    before.is_some_and(|at| matches!(outline[..at].trim_ascii_end().last(), Some(b'{' | b',')))
}

impl Nesting {
    /// Returns the position after the next bracket or string in `text` from `at` on. `None` if it is not complete.
    fn skip_token(&mut self, text: &[u8], mut at: usize) -> Option<usize> {
        loop {
            if self.is_escaped {
                text.get(at)?;
                (at, self.is_escaped) = (at + 1, false);
            }
            let is_token = |byte: &u8| match self.in_string {
                true => matches!(byte, b'"' | b'\\'),
                false => matches!(byte, b'"' | b'{' | b'}' | b'[' | b']'),
            };
            at += text[at..].iter().position(is_token)?;
            match text[at] {
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' => self.depth += 1,
                _ => self.depth = self.depth.saturating_sub(1),
            }
            at += 1;
            if !self.in_string {
                return Some(at);
            }
        }
    }

    /// Returns the end in `text` of an object, an array or a string that starts with `text` or before it.
    fn end_of_value(&mut self, text: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            at = self.skip_token(text, at)?;
            if self.depth == 0 {
                return Some(at);
            }
        }
    }
}
