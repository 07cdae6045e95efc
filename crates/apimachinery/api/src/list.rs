//! Lists of any kind, split into their objects while they arrive.
//!
//! Upstream counterparts: the list types, such as `v1.PodList`, and `metav1.ListMeta`.

mod json;
mod meta;
mod protobuf;
#[cfg(test)]
mod tests;

pub use self::meta::{ListError, ListMeta};
use self::{json::JsonList, protobuf::ProtobufList};

/// Splits the body of a list into its objects. The body arrives in pieces of any size, in JSON or in protobuf.
///
/// It keeps an incomplete object, and the list without its objects.
///
/// ```
/// use kcm_api::list::{ListItem, ListSplitter};
///
/// # fn main() -> Result<(), kcm_api::list::ListError> {
/// let mut splitter = ListSplitter::new();
/// let mut names = Vec::new();
/// for piece in [r#"{"items":[{"na"#, r#"me":"a"},{"name":"b"}],"metadata":{"resourceVersion":"7"}}"#] {
///     let mut piece = piece.as_bytes();
///     while let Some(item) = splitter.next(&mut piece)? {
///         let ListItem::Json(item) = item else { continue };
///         names.push(item.to_owned());
///     }
/// }
/// assert_eq!(names, [r#"{"name":"a"}"#, r#"{"name":"b"}"#]);
/// assert_eq!(splitter.finish()?.resource_version, "7");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct ListSplitter(Encoding);

#[derive(Debug, Default)]
enum Encoding {
    /// No byte has arrived.
    #[default]
    Unknown,
    Json(JsonList),
    Protobuf(ProtobufList),
}

/// Object of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListItem<'a> {
    /// JSON text. Its brackets and quotes are balanced; its syntax is not checked otherwise.
    Json(&'a str),
    /// Protobuf message without envelope. It is not checked.
    Protobuf(&'a [u8]),
}

impl ListSplitter {
    /// Creates a splitter for one body.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads `piece` up to the end of the next object, and returns that object. Returns `None` at the end of the piece.
    ///
    /// # Errors
    ///
    /// If the body is not a list. Other errors are found at the [end](Self::finish) only, so the objects are valid if
    /// that succeeds.
    pub fn next<'s, 'p: 's>(&'s mut self, piece: &mut &'p [u8]) -> Result<Option<ListItem<'s>>, ListError> {
        if let (Encoding::Unknown, Some(first)) = (&self.0, piece.first()) {
            // No JSON text starts with the magic number of protobuf.
            self.0 = if *first == crate::protobuf::PREFIX[0] {
                Encoding::Protobuf(ProtobufList::default())
            } else {
                Encoding::Json(JsonList::default())
            };
        }
        match &mut self.0 {
            Encoding::Unknown => Ok(None),
            Encoding::Json(list) => match list.next(piece) {
                Some(item) => Ok(Some(ListItem::Json(std::str::from_utf8(item)?))),
                None => Ok(None),
            },
            Encoding::Protobuf(list) => Ok(list.next(piece)?.map(ListItem::Protobuf)),
        }
    }

    /// Returns the metadata of the list after the last piece.
    ///
    /// # Errors
    ///
    /// If the body is not a list, or is incomplete.
    pub fn finish(self) -> Result<ListMeta, ListError> {
        match self.0 {
            Encoding::Unknown => JsonList::default().finish(),
            Encoding::Json(list) => list.finish(),
            Encoding::Protobuf(list) => Ok(list.finish()?),
        }
    }
}
