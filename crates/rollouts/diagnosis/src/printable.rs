//! Text of others on terminals.

use std::{borrow::Cow, fmt::Write as _};

/// Replaces the characters that control a terminal or the direction of text by U+FFFD. Line breaks remain, and a tab becomes
/// a space.
///
/// Messages of the cluster are written by others. A control sequence in them can move the cursor, hide text or change the
/// title of the terminal.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let replace = |c: char| match c {
        '\t' => ' ',
        c if is_control(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    Cow::Owned(text.chars().map(replace).collect())
}

/// Escapes the same characters in a JSON document. JSON requires that of some of them only.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    if !json.contains(is_control) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_control(c) {
            // Outside of strings, a document contains no such character.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// `true` for control characters (C0 except line breaks, DEL, C1), and for those that separate lines or change the
/// direction of text.
fn is_control(c: char) -> bool {
    match c {
        '\n' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const HOSTILE: [&str; 10] = [
        "\u{1b}[2J",
        "\u{1b}]0;title\u{7}",
        "\u{9b}31m",
        "\u{8}",
        "\r",
        "\u{7f}",
        "\u{85}",
        "\u{202e}",
        "\u{2066}",
        "\u{2028}",
    ];

    #[test]
    fn control_characters_are_replaced() {
        for text in HOSTILE {
            let shown = printable(text);
            assert!(!shown.contains(is_control) && shown.contains('\u{fffd}'), "{text:?} {shown:?}");
        }
        assert_eq!(printable("a\tb\nc"), "a b\nc");
    }

    #[test]
    fn other_text_is_unchanged() {
        for text in ["", "web: 2 of 3\n", "Umlaut \u{e4}, \u{4e2d}\u{6587}, emoji \u{1f600}\u{200d}"] {
            assert!(matches!(printable(text), Cow::Borrowed(_)), "{text:?}");
            assert!(matches!(printable_json(text), Cow::Borrowed(_)), "{text:?}");
        }
    }

    #[test]
    fn json_has_the_same_value() {
        for text in HOSTILE {
            let value = json!({ "message": text });
            let document = serde_json::to_string_pretty(&value).unwrap();
            let shown = printable_json(&document);
            assert!(!shown.contains(is_control), "{shown:?}");
            assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }
    }
}
