use proptest::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::*;
use crate::protobuf::envelope;

type Split = Result<(Vec<Vec<u8>>, ListMeta), String>;

fn split<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Split {
    let mut splitter = ListSplitter::new();
    let mut items = Vec::new();
    for mut piece in pieces {
        while let Some(item) = splitter.next(&mut piece).map_err(|error| error.to_string())? {
            items.push(match item {
                ListItem::Json(text) => text.as_bytes().to_vec(),
                ListItem::Protobuf(message) => message.to_vec(),
            });
        }
        assert!(piece.is_empty());
    }
    Ok((items, splitter.finish().map_err(|error| error.to_string())?))
}

/// Splits a body as a whole, and in pieces of any size. All results must be equal.
fn check(body: &[u8]) -> Split {
    let whole = split([body]);
    for at in 0..body.len() {
        let (start, end) = body.split_at(at);
        assert_eq!(split([start, end]), whole, "at {at} of {}", body.escape_ascii());
    }
    for size in 1..body.len().min(40) {
        assert_eq!(split(body.chunks(size)), whole, "{size} bytes of {}", body.escape_ascii());
    }
    whole
}

fn meta(version: &str, next: Option<&str>, rest: Option<u64>) -> ListMeta {
    ListMeta {
        resource_version: version.to_owned(),
        continue_token: next.map(str::to_owned),
        remaining_item_count: rest,
    }
}

/// Reads a whole list with serde.
fn whole_json(body: &[u8]) -> Option<(Vec<Vec<u8>>, ListMeta)> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(default)]
        metadata: ListMeta,
        #[serde(borrow)]
        items: Option<Vec<&'a RawValue>>,
    }
    let List { metadata, items } = serde_json::from_str(std::str::from_utf8(body).ok()?).ok()?;
    let items = items.unwrap_or_default().into_iter().map(|item| item.get().as_bytes().to_vec());
    Some((items.collect(), metadata))
}

/// Compares with serde, which reads a list as a whole.
fn check_json(body: &[u8]) {
    let is_valid = |item: &Vec<u8>| serde_json::from_slice::<&RawValue>(item).is_ok();
    let found = check(body).ok().filter(|(items, _)| items.iter().all(is_valid));
    assert_eq!(found, whole_json(body), "{}", body.escape_ascii());
}

mod json {
    use super::*;

    #[test]
    fn members_have_any_order() {
        let bodies = [
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"c","remainingItemCount":2},"items":[{"a":[1,{}]},{"b":"]}\"\\"}]}"#,
            r#"{"items":[{"a":[1,{}]},{"b":"]}\"\\"}],"metadata":{"resourceVersion":"7","continue":"c","remainingItemCount":2}}"#,
            "\n{ \"x\" : {\"items\":[1]} ,\n\t\"items\" : [ {\"a\":[1,{}]} , {\"b\":\"]}\\\"\\\\\"} ] , \"metadata\":{\"resourceVersion\":\"7\",\"continue\":\"c\",\"remainingItemCount\":2} } \n",
        ];
        for body in bodies {
            let (items, found) = check(body.as_bytes()).unwrap();
            assert_eq!(items, [&br#"{"a":[1,{}]}"#[..], br#"{"b":"]}\"\\"}"#], "{body}");
            assert_eq!(found, meta("7", Some("c"), Some(2)), "{body}");
        }
    }

    #[test]
    fn same_as_reading_the_whole() {
        let bodies = [
            "",
            "{}",
            "[]",
            "{",
            "null",
            "<html>",
            r#"{"items":null}"#,
            r#"{"items":[]}"#,
            r#"{"items":{}}"#,
            r#"{"items":"[1]"}"#,
            r#"{"metadata":null,"items":[]}"#,
            r#"{"metadata":{"resourceVersion":7},"items":[]}"#,
            r#"{"items":[1,"a, ]}",null,[[]],true,{}]}"#,
            r#"{"items":[1 2]}"#,
            r#"{"items":[1,]}"#,
            r#"{"items":[,1]}"#,
            r#"{"items":[{}{}]}"#,
            r#"{"items":[{]}]}"#,
            r#"{"items":[}]}"#,
            r#"{"items":[{}],"items":[{}]}"#,
            r#"{"items":[{}],"metadata":{"items":[{}]}}"#,
            r#"{"metadata":{"items":[{}]},"items":[{}]}"#,
            r#"{"a,\"items":[{}]}"#,
            r#"{"a":"b","items":[{}],"c":["items",[{}]]}"#,
            r#"{"items":[{}]} {}"#,
            r#"{"items":[{}]"#,
            r#"{"items":[{}"#,
            r#"{"items":[{"#,
            r#"{"items":[1"#,
            r#"["items",[{}]]"#,
        ];
        for body in bodies {
            // Serde reads structs from arrays, too.
            if !body.starts_with('[') {
                check_json(body.as_bytes());
            }
        }
        check_json(b"{\"items\":[\"\xff\"]}");
        check_json(b"{\"a\":\"\xff\",\"items\":[]}");
        assert!(check(b"[]").is_err());
    }

    /// Servers do not write it.
    #[test]
    fn items_with_escaped_name_are_an_error() {
        let error = check(br#"{"\u0069tems":[{}]}"#).unwrap_err();
        assert!(error.starts_with("cannot find the items"), "{error}");
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<i32>().prop_map(Into::into),
            r#"[a-z\[\]{}":,\\ ü]{0,8}"#.prop_map(Into::into),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Into::into),
                proptest::collection::btree_map(r#"items|[a-z\[{"\\]{0,4}"#, inner, 0..3)
                    .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn arbitrary_lists(
            items in proptest::collection::vec(value(), 0..4),
            other in value(),
            is_last in any::<bool>(),
            is_pretty in any::<bool>(),
            // A change of one byte.
            at in 0_usize..200,
            byte in proptest::option::of(proptest::sample::select(&b"\"\\[]{},: 0\xff"[..])),
        ) {
            let mut list = serde_json::Map::new();
            // The members are sorted.
            list.insert(if is_last { "a" } else { "z" }.to_owned(), other);
            list.insert("items".to_owned(), items.into());
            list.insert("metadata".to_owned(), serde_json::json!({"resourceVersion": "7"}));
            let text = if is_pretty { serde_json::to_string_pretty(&list) } else { serde_json::to_string(&list) };
            let mut body = text.unwrap().into_bytes();
            match byte.and_then(|byte| Some((byte, body.get_mut(at)?))) {
                Some((byte, changed)) => *changed = byte,
                None => prop_assert!(whole_json(&body).is_some()),
            }
            check_json(&body);
        }
    }
}

mod protobuf {
    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2];
        buffa::types::encode_bytes(content, &mut field);
        field
    }

    fn list() -> Vec<u8> {
        let metadata = [field(2, b"77"), field(3, b"next"), vec![4 << 3, 9]].concat();
        // Numbers of one, two, four and eight bytes.
        let unknown =
            [&[7 << 3, 1, 7 << 3, 0x81, 1, 7 << 3 | 5, 1, 2, 3, 4, 7 << 3 | 1][..], &[9; 8]].concat();
        let long = [b'x'; 200];
        [field(1, &metadata), field(2, b"a"), unknown, field(2, &long), field(2, b""), field(9, b"z")]
            .concat()
    }

    #[test]
    fn objects_are_cut_out_of_the_envelope() {
        let (items, found) = check(&envelope("v1", "PodList", list())).unwrap();
        assert_eq!(items, [b"a".to_vec(), vec![b'x'; 200], Vec::new()]);
        assert_eq!(found, meta("77", Some("next"), Some(9)));
        assert_eq!(check(b"k8s\0\x12\0"), Ok((Vec::new(), ListMeta::default())));
    }

    #[test]
    fn malformed_lists_are_errors() {
        struct Case {
            body: Vec<u8>,
            error: &'static str,
        }
        let eof = "unexpected end of buffer";
        let whole = envelope("v1", "PodList", list());
        let of = |list: &[u8]| [b"k8s\0", &*field(2, list)].concat();
        let cases = [
            Case { body: b"k8".to_vec(), error: "not a protobuf object: the prefix is missing" },
            Case { body: b"k8x{}".to_vec(), error: "not a protobuf object: the prefix is missing" },
            Case { body: b"k8s\0".to_vec(), error: eof },
            Case { body: [b"k8s\0", &*field(1, b"")].concat(), error: eof },
            Case { body: b"k8s\0\xff".to_vec(), error: eof },
            Case { body: b"k8s\0\x12\x02\x0a\x01".to_vec(), error: eof },
            Case { body: of(b"\x12\x05a"), error: eof },
            Case { body: [of(b"\x12\x05a"), b"bcdefgh".to_vec()].concat(), error: eof },
            Case { body: of(b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), error: eof },
            Case { body: of(b"\x10\x01"), error: "wire type mismatch on field 2: expected 2, got 0" },
            Case { body: of(b"\x13"), error: "invalid wire type: 3" },
            Case { body: of(b"\x00\x01"), error: "invalid field number" },
            Case {
                body: [of(b""), field(2, b"")].concat(),
                error: "invalid value of the envelope: it has two objects",
            },
            Case {
                body: [of(b""), field(3, b"gzip")].concat(),
                error: "encoding \"gzip\" of the object in the protobuf envelope is not supported",
            },
        ];
        for Case { body, error } in cases {
            assert_eq!(check(&body), Err(error.to_owned()), "{}", body.escape_ascii());
        }
        for cut in 5..whole.len() {
            let (found, is_list) = (split([&whole[..cut]]), cut + 4 >= whole.len());
            assert!(found.is_err() || is_list, "{cut}: {found:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = check(&[b"k8s\0", &*bytes].concat());
            let _ = check(&[b"k8s\0", &*field(2, &bytes)].concat());
            let _ = check(&bytes);
        }
    }
}
