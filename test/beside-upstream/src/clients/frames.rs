//! HTTP/2 frames, written without the limits of a library.

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// Largest payload without a setting of the server.
const MAX_PAYLOAD: usize = 16 << 10;

/// Code CANCEL.
pub(super) const CANCEL: [u8; 4] = [0, 0, 0, 8];
/// Setting that sets the window of each stream to 0.
pub(super) const NO_WINDOW: [u8; 6] = [0, 4, 0, 0, 0, 0];

/// Appends a frame.
pub(super) fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends a block of headers, the last frame of a stream. If `ends` is `false`, the block has no end.
pub(super) fn headers(out: &mut Vec<u8>, stream: u32, block: &[u8], ends: bool) {
    let count = block.chunks(MAX_PAYLOAD).count();
    for (index, part) in block.chunks(MAX_PAYLOAD).enumerate() {
        let (kind, mut flags) = if index == 0 { (HEADERS, END_STREAM) } else { (CONTINUATION, 0) };
        if ends && index + 1 == count {
            flags |= END_HEADERS;
        }
        frame(out, kind, flags, stream, part);
    }
}

/// Appends the end of a block of headers.
pub(super) fn end_of_headers(out: &mut Vec<u8>, stream: u32) {
    frame(out, CONTINUATION, END_HEADERS, stream, &[]);
}

/// Headers of a GET request.
pub(super) fn get(path: &str) -> Vec<u8> {
    // `:method: GET` and `:scheme: https` of the static table.
    let mut block = vec![0x82, 0x87];
    // Names `:path` and `:authority` of the static table.
    for (name, value) in [(4, path), (1, "localhost")] {
        block.push(name);
        string(&mut block, value.as_bytes());
    }
    block
}

/// Appends a header that is not added to the table.
pub(super) fn header(block: &mut Vec<u8>, name: &str, value: &[u8]) {
    block.push(0);
    string(block, name.as_bytes());
    string(block, value);
}

/// Appends headers of 4 KB up to a number of bytes.
pub(super) fn pad(block: &mut Vec<u8>, bytes: usize) {
    const SIZE: usize = 4000;
    let value = [b'x'; SIZE];
    for number in 0..bytes / SIZE {
        header(block, &format!("x-{number}"), &value);
    }
}

/// Appends a string with its length, an integer with a prefix of 7 bits.
fn string(block: &mut Vec<u8>, text: &[u8]) {
    const PREFIX: usize = 127;
    if text.len() < PREFIX {
        block.push(text.len() as u8);
    } else {
        block.push(PREFIX as u8);
        let mut rest = text.len() - PREFIX;
        while rest >= 128 {
            block.push((rest % 128) as u8 | 128);
            rest /= 128;
        }
        block.push(rest as u8);
    }
    block.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_has_a_length_with_a_prefix_of_seven_bits() {
        let encode = |length| {
            let mut block = Vec::new();
            string(&mut block, &vec![b'x'; length]);
            block.truncate(block.len() - length);
            block
        };
        assert_eq!(encode(126), [126]);
        assert_eq!(encode(127), [127, 0]);
        // RFC 7541, C.1.2: 1337 with a prefix of five bits is 31, 154, 10.
        assert_eq!(encode(127 + 1306), [127, 154, 10]);
    }

    #[test]
    fn headers_are_split_at_the_largest_payload() {
        let mut out = Vec::new();
        headers(&mut out, 1, &[0; MAX_PAYLOAD + 1], true);
        assert_eq!(out[..9], [0, 0x40, 0, HEADERS, END_STREAM, 0, 0, 0, 1]);
        assert_eq!(out[9 + MAX_PAYLOAD..][..9], [0, 0, 1, CONTINUATION, END_HEADERS, 0, 0, 0, 1]);
    }
}
