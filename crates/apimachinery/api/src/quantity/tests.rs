use proptest::prelude::*;

use super::*;

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Value, scale, format and canonical text of a quantity that fits 64 bits.
fn quick(text: &str) -> (i64, i32, Option<Format>, Box<str>) {
    let Quantity { amount: Amount::Int { value, scale }, format, canonical } = quantity(text) else {
        panic!("{text} should fit 64 bits")
    };
    (value, scale, format, canonical)
}

/// Value times 10^9, and format, of one that does not.
fn slow(text: &str) -> (String, Option<Format>) {
    let Quantity { amount: Amount::Dec { negative, abs, scale }, format, canonical } = quantity(text) else {
        panic!("{text} should not fit 64 bits")
    };
    assert_eq!((scale, &*canonical), (9, ""));
    (format!("{}{abs}", if negative { "-" } else { "" }), format)
}

const DECIMAL: Option<Format> = Some(Format::DecimalSi);
const BINARY: Option<Format> = Some(Format::BinarySi);
const EXPONENT: Option<Format> = Some(Format::DecimalExponent);

#[test]
fn representation_is_as_upstream() {
    struct Case {
        text: &'static str,
        value: i64,
        scale: i32,
        format: Option<Format>,
        canonical: &'static str,
    }

    // US-3.5
    for Case { text, value, scale, format, canonical } in [
        Case { text: "0", value: 0, scale: 0, format: DECIMAL, canonical: "0" },
        Case { text: "00", value: 0, scale: 0, format: DECIMAL, canonical: "" },
        Case { text: "0m", value: 0, scale: -3, format: DECIMAL, canonical: "" },
        Case { text: "1", value: 1, scale: 0, format: DECIMAL, canonical: "1" },
        Case { text: "2", value: 2, scale: 0, format: DECIMAL, canonical: "2" },
        Case { text: "-5", value: -5, scale: 0, format: DECIMAL, canonical: "-5" },
        Case { text: "+5", value: 5, scale: 0, format: DECIMAL, canonical: "+5" },
        Case { text: "500m", value: 500, scale: -3, format: DECIMAL, canonical: "500m" },
        Case { text: "1000m", value: 1000, scale: -3, format: DECIMAL, canonical: "" },
        Case { text: "0.5", value: 5, scale: -1, format: DECIMAL, canonical: "" },
        Case { text: "1.500", value: 1500, scale: -3, format: DECIMAL, canonical: "1.500" },
        Case { text: "1k", value: 1, scale: 3, format: DECIMAL, canonical: "1k" },
        Case { text: "12E", value: 12, scale: 18, format: DECIMAL, canonical: "12E" },
        Case { text: "1n", value: 1, scale: -9, format: DECIMAL, canonical: "1n" },
        Case { text: "1e3", value: 1, scale: 3, format: EXPONENT, canonical: "1e3" },
        Case { text: "1E3", value: 1, scale: 3, format: EXPONENT, canonical: "1E3" },
        Case { text: "1e+3", value: 1, scale: 3, format: EXPONENT, canonical: "1e+3" },
        Case { text: "1e-3", value: 1, scale: -3, format: EXPONENT, canonical: "1e-3" },
        Case { text: "1e1", value: 1, scale: 1, format: EXPONENT, canonical: "" },
        Case { text: "2Gi", value: 2 << 30, scale: 0, format: BINARY, canonical: "2Gi" },
        Case { text: "100Mi", value: 100 << 20, scale: 0, format: BINARY, canonical: "100Mi" },
        Case { text: "1536Mi", value: 1536 << 20, scale: 0, format: BINARY, canonical: "" },
        Case { text: "64Mi", value: 64 << 20, scale: 0, format: BINARY, canonical: "" },
        Case { text: "0Ki", value: 0, scale: 0, format: BINARY, canonical: "" },
        Case { text: "Ki", value: 0, scale: 0, format: BINARY, canonical: "" },
        Case { text: ".", value: 0, scale: 0, format: DECIMAL, canonical: "" },
        Case { text: "-", value: 0, scale: 0, format: DECIMAL, canonical: "" },
    ] {
        assert_eq!(quick(text), (value, scale, format, canonical.into()), "{text}");
    }
}

#[test]
fn large_numbers_are_rounded_up_to_nano() {
    let nanos = |whole: &str| format!("{whole}{}", "0".repeat(9));
    assert_eq!(slow("123456789012345678901234567890"), (nanos("123456789012345678901234567890"), DECIMAL));
    assert_eq!(slow("-123456789012345678901"), (nanos("-123456789012345678901"), DECIMAL));
    assert_eq!(slow("0.1n"), ("1".to_owned(), DECIMAL));
    assert_eq!(slow("-0.1n"), ("-1".to_owned(), DECIMAL));
    assert_eq!(slow("1.0000000001"), ("1000000001".to_owned(), DECIMAL));
    assert_eq!(slow("1e-2000000000"), ("1".to_owned(), EXPONENT));
    assert_eq!(slow("0.5Gi"), (nanos(&(1_u64 << 29).to_string()), BINARY));
    assert_eq!(slow("0.0001Ki"), ("102400000".to_owned(), DECIMAL));
    assert_eq!(slow("0.0000000001Ki"), ("103".to_owned(), DECIMAL));
}

#[test]
fn binary_quantity_is_limited_to_63_bits() {
    let Amount::Dec { abs, scale, .. } = quantity("8Ei").amount else { panic!("does not fit 64 bits") };
    assert_eq!((abs.to_string().as_str(), scale), ("9223372036854775807", 0));
    assert_ne!(quantity("9E"), quantity("8E"), "decimal ones are not");
    assert_eq!(quantity("9Ei"), quantity("8Ei"));
}

#[test]
fn invalid_text_is_an_error() {
    for (text, error) in [
        ("", QuantityError::Format),
        ("1x", QuantityError::Format),
        ("1 ", QuantityError::Format),
        ("1.2.3", QuantityError::Format),
        ("1e3x", QuantityError::Format),
        ("²", QuantityError::Format),
        ("1mi", QuantityError::Suffix),
        ("--1", QuantityError::Suffix),
        ("1K", QuantityError::Suffix),
        ("1e", QuantityError::Suffix),
        ("1e99999999999999999999", QuantityError::Suffix),
        (".e-10", QuantityError::Number),
        ("1234567890123456789e2000000000", QuantityError::Range),
        // The digits fit 64 bits, with the exponent they do not.
        ("23370000e9993", QuantityError::Range),
        ("922337203685477581e99907", QuantityError::Range),
    ] {
        assert_eq!(text.parse::<Quantity>().err(), Some(error), "{text}");
    }
    assert_eq!("1".repeat(100_000).parse::<Quantity>().err(), Some(QuantityError::Range));
}

#[test]
fn equality_is_by_value() {
    for (a, b) in [
        ("1", "1000m"),
        ("1Gi", "1024Mi"),
        ("1e3", "1k"),
        ("0", "0Ki"),
        ("0", "-0"),
        ("0.5Ki", "512"),
        ("0.0000000000", "0"),
        ("1000000000000000000000", "1e21"),
    ] {
        assert_eq!(quantity(a), quantity(b));
    }
    for (a, b) in [("1", "-1"), ("1", "1m"), ("1", "10"), ("1k", "1Ki"), ("0", "1n")] {
        assert_ne!(quantity(a), quantity(b));
    }
    assert_eq!(Quantity::default(), quantity("0"));
}

#[test]
fn writes_canonical_form() {
    for (text, canonical) in [
        ("0", "0"),
        ("0.0", "0"),
        ("1000m", "1"),
        ("1.5", "1500m"),
        ("0.001", "1m"),
        ("1000k", "1M"),
        ("10k", "10k"),
        ("1.01E", "1010P"),
        ("1E6", "1E6"),
        ("10e5", "1e6"),
        ("10e6", "10e6"),
        ("1e1", "10"),
        ("50e-1", "5"),
        ("100e-3", "100e-3"),
        ("1024Ki", "1Mi"),
        ("1536Mi", "1536Mi"),
        ("64Mi", "64Mi"),
        (".5Mi", "512Ki"),
        ("0.5Ki", "512"),
        ("1Ki", "1Ki"),
        ("-2048", "-2048"),
        ("-2048Ki", "-2Mi"),
        ("1.1Mi", "1153433600m"),
        ("0.1n", "1n"),
        ("8Ei", "9223372036854775807"),
        ("100000000000000000000000", "100e21"),
    ] {
        assert_eq!(quantity(text).to_string(), canonical, "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "[-+]?[0-9.]{0,40}[eEinumkKMGTP]{0,3}[-+]?[0-9]{0,4}", any: String) {
        let _ = any.parse::<Quantity>();
        if let Ok(quantity) = text.parse::<Quantity>() {
            let _ = quantity.to_string();
        }
    }

    #[test]
    fn canonical_form_has_the_same_value(
        text in "-?[0-9]{1,25}(\\.[0-9]{1,12})?([numkMGTPE]|[KMGTPE]i|e-?[0-9]{1,2})?"
    ) {
        let parsed = quantity(&text);
        let canonical = quantity(&parsed.to_string());
        prop_assert_eq!(canonical.number(), parsed.number());
        prop_assert_eq!(canonical.to_string(), parsed.to_string());
    }

    #[test]
    fn value_does_not_depend_on_trailing_zeros(number in -1_000_000_000_i64..1_000_000_000, zeros in 0..12_usize) {
        let plain = quantity(&number.to_string());
        let padded = quantity(&format!("{number}.{}", "0".repeat(zeros)));
        prop_assert_eq!(plain, padded);
    }
}
