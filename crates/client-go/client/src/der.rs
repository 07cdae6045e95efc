//! Reading of DER, as far as certificates need it.

/// Tag of a sequence.
pub const SEQUENCE: u8 = 0x30;

/// Takes one element off the front of `rest` and returns its tag and content.
///
/// Returns `None` if there is no whole element, or its content has 64 KiB or more. Tags have one byte.
pub fn element<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, after) = rest.split_first()?;
    let (&first, after) = after.split_first()?;
    let (length, after) = match first {
        0..=0x7f => (usize::from(first), after),
        0x81 => {
            let (&low, after) = after.split_first()?;
            (usize::from(low), after)
        }
        0x82 => {
            let (bytes, after) = after.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*bytes)), after)
        }
        _ => return None,
    };
    let (content, after) = after.split_at_checked(length)?;
    *rest = after;
    Some((tag, content))
}

/// Takes one element with `tag` off the front of `rest` and returns its content.
pub fn expect<'a>(tag: u8, rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (found, content) = element(rest)?;
    (found == tag).then_some(content)
}
