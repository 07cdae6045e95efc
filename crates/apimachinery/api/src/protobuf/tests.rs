use proptest::prelude::*;

use super::*;
use crate::{Deployment, PodDecoder};

/// Encodes a field with bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(number < 16 && content.len() < 128, "one byte each");
    [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
}

/// Encodes a field with a number.
fn number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn enveloped(fields: &[Vec<u8>]) -> Vec<u8> {
    [PREFIX, &fields.concat()].concat()
}

mod envelopes {
    use super::*;

    #[test]
    fn content_is_returned() {
        let type_meta = field(1, &field(2, b"Pod"));
        let body = enveloped(&[type_meta, field(2, b"content"), field(3, b""), field(4, b"")]);
        assert!(is_enveloped(&body));
        assert_eq!(open_envelope(&body), Ok(&b"content"[..]));
        assert_eq!(open_envelope(PREFIX), Ok(&b""[..]));
    }

    #[test]
    fn other_content_is_an_error() {
        assert!(!is_enveloped(b"{}"));
        assert_eq!(open_envelope(b"{}"), Err(ProtobufError::Prefix));
        let json = enveloped(&[field(2, b"{}"), field(4, b"application/json")]);
        assert_eq!(open_envelope(&json), Err(ProtobufError::Encoding("application/json".to_owned())));
        let compressed = enveloped(&[field(2, b"x"), field(3, b"gzip")]);
        assert_eq!(open_envelope(&compressed), Err(ProtobufError::Encoding("gzip".to_owned())));
    }
}

#[test]
fn watch_frames() {
    let frame = [field(1, b"ADDED"), field(2, &field(1, b"object"))].concat();
    let WatchFrame { type_, object } = WatchFrame::read(&frame).unwrap();
    assert_eq!((type_, object), ("ADDED", &b"object"[..]));
}

#[test]
fn statuses() {
    let cause = [field(1, b"FieldValueInvalid"), field(2, b"no"), field(3, b"spec")].concat();
    let details = [
        field(1, b"web"),
        field(2, b"apps"),
        field(3, b"deployments"),
        field(4, &cause),
        number(5, 3),
        field(6, b"u"),
    ];
    let message = [
        field(1, b""),
        field(2, b"Failure"),
        field(3, b"m"),
        field(4, b"Invalid"),
        field(5, &details.concat()),
        vec![6 << 3, 0xa6, 0x03],
    ];
    let json = r#"{"status": "Failure", "message": "m", "reason": "Invalid", "code": 422, "details": {
        "name": "web", "group": "apps", "kind": "deployments", "uid": "u", "retryAfterSeconds": 3,
        "causes": [{"reason": "FieldValueInvalid", "message": "no", "field": "spec"}]}}"#;
    let expected: Status = serde_json::from_str(json).unwrap();
    assert_eq!(Status::decode_protobuf(&message.concat()), Ok(expected));
}

#[test]
fn names_of_malformed_objects() {
    let metadata = [field(1, b"web"), field(3, b"shop"), field(6, b"7"), vec![8 << 3]].concat();
    assert_eq!(object_name(&field(1, &metadata)), ("shop/web".to_owned(), Some("7".to_owned())));
    assert_eq!(object_name(&field(1, &field(1, b"node-1"))), ("node-1".to_owned(), None));
    assert_eq!(object_name(b"\xff"), (String::new(), None));
}

#[test]
fn wrong_wire_types_are_errors() {
    let decoder = PodDecoder::default();
    let error = |message: &[u8]| decoder.decode_protobuf(message).unwrap_err().to_string();
    assert_eq!(error(&number(1, 0)), "wire type mismatch on field 1: expected 2, got 0");
    assert_eq!(error(b"\x0a\x05ab"), "unexpected end of buffer");
}

/// As in the JSON of the same pod.
#[test]
fn invalid_utf8_of_pods_is_replaced() {
    let entry = [field(1, b"a"), field(2, b"x\xff")].concat();
    let metadata = [field(1, b"web\xff"), field(11, &entry), field(12, &entry)].concat();
    let pod = PodDecoder::default().decode_protobuf(&field(1, &metadata)).unwrap();
    assert_eq!((&*pod.key.name, &*pod.labels["a"]), ("web\u{fffd}", "x\u{fffd}"));
}

/// The JSON is requested instead.
#[test]
fn invalid_utf8_of_lossless_objects_is_an_error() {
    let error = Deployment::decode_protobuf(&field(1, &field(1, b"\xff"))).unwrap_err();
    assert_eq!(error.to_string(), "invalid UTF-8 in string field");
}

#[test]
fn times_out_of_range_are_errors() {
    let decoder = PodDecoder::default();
    let created = |seconds: &[u8]| {
        let time = [&[1 << 3], seconds].concat();
        decoder.decode_protobuf(&field(1, &field(8, &time))).map(|pod| pod.creation_timestamp)
    };
    // Go's zero time.
    assert_eq!(created(b"\0"), Ok(None));
    assert_eq!(created(b"\x05").unwrap().unwrap().unix(), 5);
    let before_1970 = created(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    assert_eq!(before_1970.unwrap().unwrap().unix(), -1);
    let error = created(b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f").unwrap_err();
    assert!(error.to_string().starts_with("time "), "{error}");
}

proptest! {
    /// Fields of unknown numbers and of all wire types are skipped.
    #[test]
    fn unknown_fields_of_pods_are_skipped(
        numbers in proptest::collection::vec(100_u32..1000, 1..4),
        content in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        use buffa::{encoding::encode_varint, types::encode_bytes};
        let mut unknown = Vec::new();
        for number in numbers {
            for wire_type in [0, 1, 2, 5] {
                Tag::new(number, WireType::from_u32(wire_type).unwrap()).encode(&mut unknown);
                match wire_type {
                    0 => encode_varint(number.into(), &mut unknown),
                    1 => unknown.extend([7; 8]),
                    2 => encode_bytes(&content, &mut unknown),
                    _ => unknown.extend([7; 4]),
                }
            }
        }
        let nest = |number: u8, known: &[u8]| {
            let mut message = vec![number << 3 | 2];
            let inner = [&unknown[..], known, &unknown].concat();
            encode_bytes(&inner, &mut message);
            message
        };
        let owner = nest(13, &[field(4, b"u"), number(6, 1)].concat());
        let metadata = nest(1, &[field(1, b"web-1"), owner].concat());
        let condition = nest(2, &[field(1, b"Ready"), field(2, b"True")].concat());
        let status = nest(3, &[field(1, b"Running"), condition].concat());
        let pod = [&unknown[..], &metadata, &nest(2, &field(10, b"node-1")), &status].concat();
        let pod = PodDecoder::default().decode_protobuf(&pod).unwrap();
        prop_assert_eq!((&*pod.key.name, pod.node_name.as_deref()), ("web-1", Some("node-1")));
        prop_assert_eq!((&*pod.controller.unwrap().uid, pod.ready.is_ready), ("u", true));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(PodDecoder::default().decode_protobuf(&bytes));
        drop(Status::decode_protobuf(&bytes));
        drop(WatchFrame::read(&bytes));
        drop(open_envelope(&enveloped(std::slice::from_ref(&bytes))));
        object_name(&bytes);
    }
}
