//! Places at which encoded pod templates are cut into pieces that revisions share.

use std::{iter, ops::Range};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::protobuf::{Message, pod_template::SPEC};

/// Field numbers of `PodSpec` and `Container`.
const CONTAINERS: u32 = 2;
const INIT_CONTAINERS: u32 = 20;
const IMAGE: u32 = 2;

/// Template with the parts that differ between revisions.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Template<'a> {
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    spec: Option<Spec<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    containers: Option<Vec<Container<'a>>>,
    #[serde(borrow)]
    init_containers: Option<Vec<Container<'a>>>,
}

#[derive(Deserialize)]
struct Container<'a> {
    #[serde(borrow)]
    image: Option<&'a RawValue>,
}

/// Offsets of the start and the end of the metadata and of each image in a JSON text. None if a type is wrong.
pub(super) fn of_json(text: &str) -> Vec<usize> {
    let Template { metadata, spec } = serde_json::from_str(text).unwrap_or_default();
    let Spec { containers, init_containers } = spec.unwrap_or_default();
    let images = [containers, init_containers].into_iter().flatten().flatten().filter_map(|it| it.image);
    let parts = metadata.into_iter().chain(images);
    parts.filter_map(|part| place(text, part.get())).flat_map(|place| [place.start, place.end]).collect()
}

/// Position of `part`, which was borrowed from `text`.
fn place(text: &str, part: &str) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    Some(start..start.checked_add(part.len())?)
}

/// Offsets of the first field of the spec, of each container, and of the end of each image in a protobuf message.
pub(super) fn of_message(message: &[u8]) -> Vec<usize> {
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
