//! Regular expressions in Go's syntax, translated into that of the `regex` crate.
//!
//! | Go | here |
//! |---|---|
//! | `\d`, `\w`, `\s`, `\b` and their complements | ASCII. DEVIATION: `\B` considers letters of all scripts |
//! | `[`, `&&`, `--`, `~~` in a class | characters, not operators |
//! | `{` that begins no repetition, `\<`, `\>`, `\Q…\E`, `\123`, `\p{^Greek}` | supported |
//! | `a**`, `a{1001}`, `(a{100}){11}`, `\u0041`, `(?x)` | refused, with Go's message |
//! | size of an expression | at most [`MAX_SIZE`], which is more than Go's limits of repetitions permit in practice |
//!
//! Names of groups are dropped, because no match is read by them.
//!
//! Upstream counterpart: package `regexp/syntax`.

use std::fmt::Write as _;

use regex::{Regex, RegexBuilder};
use thiserror::Error;

/// Maximum size of a compiled expression in bytes, as in Go.
const MAX_SIZE: usize = 128 << 20;

/// Maximum nesting, as in Go.
const MAX_DEPTH: u32 = 1000;

/// Maximum number of repetitions, as in Go; also of nested ones, multiplied.
const MAX_REPEAT: usize = 1000;

const POSIX_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// Invalid regular expression, with Go's message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("error parsing regexp: {problem}: `{fragment}`")]
pub(crate) struct GoRegexError {
    problem: &'static str,
    fragment: String,
}

/// Compiles a regular expression in Go's syntax.
///
/// # Errors
///
/// The expression is invalid.
pub(crate) fn compile(pattern: &str) -> Result<Regex, GoRegexError> {
    let translator = Translator {
        pattern,
        rest: pattern,
        out: String::with_capacity(pattern.len()),
        groups: Vec::new(),
        repeats: 1,
        atom: None,
        last_repeat: None,
    };
    let translated = translator.translate()?;
    let regex = RegexBuilder::new(&translated).size_limit(MAX_SIZE).nest_limit(MAX_DEPTH).build();
    regex.map_err(|_| GoRegexError { problem: "expression too large", fragment: pattern.to_owned() })
}

struct Translator<'p> {
    pattern: &'p str,
    /// Text that is not translated yet.
    rest: &'p str,
    out: String,
    /// `repeats` outside of each open group.
    groups: Vec<usize>,
    /// Maximum number of repetitions of a part of the current group.
    repeats: usize,
    /// Number of repetitions within the last atom. `None` if there is nothing to repeat.
    atom: Option<usize>,
    /// Text from the last repetition on, if it is directly before `rest`.
    last_repeat: Option<&'p str>,
}

impl<'p> Translator<'p> {
    fn translate(mut self) -> Result<String, GoRegexError> {
        while let Some(c) = self.rest.chars().next() {
            let start = self.rest;
            let last_repeat = self.last_repeat.take();
            match c {
                '*' | '+' | '?' => {
                    self.skip(c);
                    self.repeat(start, last_repeat, None)?;
                }
                '{' if repetition(start).is_some() => {
                    let (count, end) = repetition(start).unwrap_or_default();
                    self.rest = end;
                    self.repeat(start, last_repeat, Some(count))?;
                }
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.open_group()?,
                ')' => {
                    let outside = self.groups.pop();
                    let outside = outside.ok_or_else(|| error("unexpected )", self.pattern))?;
                    self.push(c);
                    let inside = std::mem::replace(&mut self.repeats, outside);
                    self.add_atom(inside);
                }
                '|' => {
                    self.push(c);
                    self.atom = None;
                }
                '.' | '^' | '$' => {
                    self.push(c);
                    self.add_atom(1);
                }
                literal => {
                    self.skip(c);
                    self.literal(literal);
                }
            }
        }
        if self.groups.is_empty() { Ok(self.out) } else { Err(error("missing closing )", self.pattern)) }
    }

    /// Moves behind `c`, with which the rest begins.
    fn skip(&mut self, c: char) {
        self.rest = self.rest.get(c.len_utf8()..).unwrap_or_default();
    }

    /// As [`skip`](Self::skip), and copies `c`.
    fn push(&mut self, c: char) {
        self.skip(c);
        self.out.push(c);
    }

    /// Text from `start` to the rest.
    fn since(&self, start: &'p str) -> &'p str {
        start.get(..start.len() - self.rest.len()).unwrap_or_default()
    }

    fn add_atom(&mut self, repeats: usize) {
        self.atom = Some(repeats);
        self.repeats = self.repeats.max(repeats);
    }

    fn literal(&mut self, c: char) {
        self.character(c);
        self.add_atom(1);
    }

    /// Writes a character, which may be in a class.
    fn character(&mut self, c: char) {
        if c.is_alphanumeric() {
            self.out.push(c);
        } else {
            // Writing to a string does not fail.
            let _ = write!(self.out, "\\x{{{:x}}}", u32::from(c));
        }
    }

    /// Translates a repetition that begins at `start`. `count` has its bounds if it is `{n,m}`.
    fn repeat(
        &mut self,
        start: &'p str,
        last_repeat: Option<&'p str>,
        count: Option<(usize, Option<usize>)>,
    ) -> Result<(), GoRegexError> {
        let operator = self.since(start);
        let most = count.map(|(least, most)| most.unwrap_or(least)).unwrap_or_default();
        if let Some((least, _)) = count
            && (least > most || most > MAX_REPEAT)
        {
            return Err(error("invalid repeat count", operator));
        }
        if self.rest.starts_with('?') {
            self.skip('?');
        }
        if let Some(last_repeat) = last_repeat {
            return Err(error("invalid nested repetition operator", self.since(last_repeat)));
        }
        let Some(inside) = self.atom else {
            return Err(error("missing argument to repetition operator", self.since(start)));
        };
        let repeats = inside * most.max(1);
        if most > 1 && repeats > MAX_REPEAT {
            return Err(error("invalid repeat count", operator));
        }
        self.out.push_str(self.since(start));
        self.add_atom(repeats);
        self.last_repeat = Some(start);
        Ok(())
    }

    fn open_group(&mut self) -> Result<(), GoRegexError> {
        let start = self.rest;
        let Some(flags) = start.strip_prefix("(?") else {
            self.push('(');
            self.enter();
            return Ok(());
        };
        if let Some(name) = flags.strip_prefix("P<").or_else(|| flags.strip_prefix('<')) {
            let (name, rest) = name.split_once('>').ok_or_else(|| error("invalid named capture", start))?;
            self.rest = rest;
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                return Err(error("invalid named capture", self.since(start)));
            }
            self.out.push('(');
            self.enter();
            return Ok(());
        }
        self.rest = flags;
        let (mut is_negative, mut has_flag) = (false, false);
        while let Some(c) = self.rest.chars().next() {
            self.skip(c);
            match c {
                'i' | 'm' | 's' | 'U' => has_flag = true,
                '-' if !is_negative => (is_negative, has_flag) = (true, false),
                ':' | ')' if !is_negative || has_flag => {
                    self.out.push_str(self.since(start));
                    if c == ':' {
                        self.enter();
                    } else {
                        self.atom = None;
                    }
                    return Ok(());
                }
                _ => return Err(error("invalid or unsupported Perl syntax", self.since(start))),
            }
        }
        Err(error("missing closing )", self.pattern))
    }

    fn enter(&mut self) {
        self.groups.push(std::mem::replace(&mut self.repeats, 1));
        self.atom = None;
    }

    /// Translates an escape sequence outside of a class.
    fn escape(&mut self) -> Result<(), GoRegexError> {
        let assertion = match self.rest.get(..2) {
            Some("\\A") => "\\A",
            Some("\\z") => "\\z",
            Some("\\b") => "(?-u:\\b)",
            Some("\\B") => "\\B",
            Some("\\Q") => {
                let quoted = self.rest.get(2..).unwrap_or_default();
                let (quoted, rest) = quoted.split_once("\\E").unwrap_or((quoted, ""));
                quoted.chars().for_each(|c| self.literal(c));
                self.rest = rest;
                return Ok(());
            }
            _ => "",
        };
        if !assertion.is_empty() {
            self.out.push_str(assertion);
            self.rest = self.rest.get(2..).unwrap_or_default();
        } else if !self.named_class()? {
            let c = self.escaped()?;
            self.character(c);
        }
        self.add_atom(1);
        Ok(())
    }

    /// Translates a class such as `\d` or `\p{Greek}`. Returns `false` if there is none.
    fn named_class(&mut self) -> Result<bool, GoRegexError> {
        let start = self.rest;
        let class = match start.get(..2) {
            Some("\\d") => "[0-9]",
            Some("\\D") => "[^0-9]",
            Some("\\w") => "[0-9A-Za-z_]",
            Some("\\W") => "[^0-9A-Za-z_]",
            Some("\\s") => "[\\t\\n\\f\\r ]",
            Some("\\S") => "[^\\t\\n\\f\\r ]",
            Some(escape @ ("\\p" | "\\P")) => {
                let rest = start.get(2..).unwrap_or_default();
                let invalid = |fragment| error("invalid character class range", fragment);
                let (name, rest) = match rest.strip_prefix('{') {
                    Some(name) => name.split_once('}').ok_or_else(|| invalid(start))?,
                    None => rest.split_at(rest.chars().next().map_or(0, char::len_utf8)),
                };
                self.rest = rest;
                let (name, is_complement) = match name.strip_prefix('^') {
                    Some(name) => (name, escape == "\\p"),
                    None => (name, escape == "\\P"),
                };
                let class = format!("\\{}{{{name}}}", if is_complement { 'P' } else { 'p' });
                if !name.starts_with(|c: char| c.is_ascii_uppercase()) || Regex::new(&class).is_err() {
                    return Err(invalid(self.since(start)));
                }
                self.out.push_str(&class);
                return Ok(true);
            }
            _ => return Ok(false),
        };
        self.out.push_str(class);
        self.rest = start.get(2..).unwrap_or_default();
        Ok(true)
    }

    /// Reads an escaped character.
    fn escaped(&mut self) -> Result<char, GoRegexError> {
        let start = self.rest;
        self.skip('\\');
        let Some(c) = self.rest.chars().next() else {
            return Err(error("trailing backslash at end of expression", ""));
        };
        self.skip(c);
        let is_octal = self.rest.starts_with(|c: char| c.is_digit(8));
        let code = match c {
            'a' => Some(7),
            'f' => Some(12),
            't' => Some(9),
            'n' => Some(10),
            'r' => Some(13),
            'v' => Some(11),
            // A single digit other than 0 is a back reference, which Go does not support.
            '0' => Some(self.number(0, 8, 2)),
            '1'..='7' if is_octal => Some(self.number(c.to_digit(8).unwrap_or_default(), 8, 2)),
            'x' if self.rest.starts_with('{') => {
                self.skip('{');
                let digits = self.rest;
                let code = self.number(0, 16, 7);
                let is_empty = self.since(digits).is_empty();
                if code > u32::from(char::MAX) || is_empty || !self.rest.starts_with('}') {
                    return Err(error("invalid escape sequence", self.since(start)));
                }
                self.skip('}');
                Some(code)
            }
            'x' => {
                let digits = self.rest;
                let code = self.number(0, 16, 2);
                Some(code).filter(|_| self.since(digits).len() == 2)
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(u32::from(c)),
            _ => None,
        };
        code.and_then(char::from_u32).ok_or_else(|| error("invalid escape sequence", self.since(start)))
    }

    /// Reads up to `most` digits, which follow the digits of `number`. Stops at a number that is no character.
    fn number(&mut self, mut number: u32, radix: u32, most: usize) -> u32 {
        for _ in 0..most {
            let Some(digit) = self.rest.chars().next().and_then(|c| c.to_digit(radix)) else { break };
            self.rest = self.rest.get(1..).unwrap_or_default();
            number = number * radix + digit;
            if number > u32::from(char::MAX) {
                break;
            }
        }
        number
    }

    /// Translates a class in brackets.
    fn class(&mut self) -> Result<(), GoRegexError> {
        let start = self.rest;
        self.push('[');
        if self.rest.starts_with('^') {
            self.push('^');
        }
        let mut is_first = true;
        loop {
            match self.rest.chars().next() {
                None => return Err(error("missing closing ]", start)),
                Some(']') if !is_first => break,
                _ => {}
            }
            is_first = false;
            if !self.posix_class()? && !self.named_class()? {
                self.range(start)?;
            }
        }
        self.push(']');
        self.add_atom(1);
        Ok(())
    }

    /// Translates a class such as `[:alpha:]`. Returns `false` if there is none.
    fn posix_class(&mut self) -> Result<bool, GoRegexError> {
        let start = self.rest;
        let Some((name, rest)) = start.strip_prefix("[:").and_then(|class| class.split_once(":]")) else {
            return Ok(false);
        };
        self.rest = rest;
        let class = self.since(start);
        if !POSIX_CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(error("invalid character class range", class));
        }
        self.out.push_str(class);
        Ok(true)
    }

    /// Translates a character of a class or a range. `class` begins with the class.
    fn range(&mut self, class: &str) -> Result<(), GoRegexError> {
        let start = self.rest;
        let low = self.class_character(class)?;
        self.character(low);
        if self.rest.starts_with('-') && !self.rest.starts_with("-]") && self.rest.len() > 1 {
            self.skip('-');
            let high = self.class_character(class)?;
            if high < low {
                return Err(error("invalid character class range", self.since(start)));
            }
            self.out.push('-');
            self.character(high);
        }
        Ok(())
    }

    fn class_character(&mut self, class: &str) -> Result<char, GoRegexError> {
        match self.rest.chars().next() {
            None => Err(error("missing closing ]", class)),
            Some('\\') => self.escaped(),
            Some(c) => {
                self.skip(c);
                Ok(c)
            }
        }
    }
}

fn error(problem: &'static str, fragment: &str) -> GoRegexError {
    GoRegexError { problem, fragment: fragment.to_owned() }
}

/// Bounds of a repetition, of which the upper one may be absent.
type Count = (usize, Option<usize>);

/// Reads a repetition such as `{2}` or `{2,3}`. Returns its bounds and the text behind it. `None` if the brace is a
/// character.
fn repetition(text: &str) -> Option<(Count, &str)> {
    let (bounds, rest) = text.strip_prefix('{')?.split_once('}')?;
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let is_number = is_number && (digits == "0" || !digits.starts_with('0'));
        is_number.then(|| digits.parse().unwrap_or(usize::MAX))
    };
    let count = match bounds.split_once(',') {
        None => number(bounds).map(|count| (count, Some(count))),
        Some((least, "")) => number(least).map(|least| (least, None)),
        Some((least, most)) => number(least).zip(number(most).map(Some)),
    };
    Some((count?, rest))
}
