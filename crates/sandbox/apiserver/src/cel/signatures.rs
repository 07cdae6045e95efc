//! Types of operators and functions.
//!
//! Upstream counterpart: `cel-go/common/stdlib`, `cel-go/ext` and `apiserver/pkg/cel/library`.

use kube_cel::cel::common::ast::operators;

use super::types::Type;

/// Methods: names, types of their targets, type of the result. `|` separates targets.
///
/// | Letter | Type |
/// |---|---|
/// | `b` `i` `d` `s` `t` `r` | bool, int, double, string, timestamp, duration |
/// | `q` `p` `c` `u` `v` `f` | quantity, IP, CIDR, URL, semver, named format |
/// | `l` `e` | list, and an item of it |
/// | `S` `O` | list of strings, and an optional one |
/// | `M` | map of lists of strings |
const METHODS: &[(&str, &str, char)] = &[
    ("contains startsWith endsWith matches", "s", 'b'),
    ("find charAt lowerAscii upperAscii replace substring trim format", "s", 's'),
    ("findAll split", "s", 'S'),
    ("indexOf lastIndexOf", "s|l", 'i'),
    ("join", "l", 's'),
    ("isSorted", "l", 'b'),
    ("sum min max first last", "l", 'e'),
    ("slice sort distinct reverse", "l", 'l'),
    ("flatten", "l", '*'),
    ("getFullYear getMonth getDayOfYear getDayOfMonth getDate getDayOfWeek", "t", 'i'),
    ("getHours getMinutes getSeconds getMilliseconds", "t|r", 'i'),
    ("getScheme getHost getHostname getPort getEscapedPath", "u", 's'),
    ("getQuery", "u", 'M'),
    ("isGreaterThan isLessThan", "q|v", 'b'),
    ("compareTo", "q|v", 'i'),
    ("isInteger", "q", 'b'),
    ("asInteger sign", "q", 'i'),
    ("asApproximateFloat", "q", 'd'),
    ("add sub", "q", 'q'),
    ("major minor patch", "v", 'i'),
    ("family", "p", 'i'),
    ("isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast", "p", 'b'),
    ("containsIP containsCIDR", "c", 'b'),
    ("prefixLength", "c", 'i'),
    ("ip", "c", 'p'),
    ("masked", "c", 'c'),
    ("validate", "f", 'O'),
];

/// Functions without target, and types of their results.
const GLOBALS: &[(&str, char)] = &[
    ("size int", 'i'),
    ("double", 'd'),
    ("uint", 'n'),
    ("string strings.quote jsonpatch.escapeKey", 's'),
    ("bytes", 'y'),
    (
        "bool matches isURL isQuantity isIP isCIDR isSemver ip.isCanonical sets.contains sets.equivalent sets.intersects",
        'b',
    ),
    ("timestamp", 't'),
    ("duration", 'r'),
    ("url", 'u'),
    ("quantity", 'q'),
    ("ip", 'p'),
    ("cidr", 'c'),
    ("semver", 'v'),
    ("dyn", '*'),
    ("lists.range", 'l'),
    (
        "format.dns1123Label format.dns1123Subdomain format.dns1035Label format.qualifiedName format.labelValue \
         format.dns1123LabelPrefix format.dns1123SubdomainPrefix format.dns1035LabelPrefix format.uri format.uuid \
         format.byte format.date format.datetime",
        'f',
    ),
];

const FORMAT: &str = "kubernetes.NamedFormat";

fn type_of<'a>(letter: char, target: &Type<'a>) -> Type<'a> {
    match letter {
        'b' => Type::Bool,
        'i' => Type::Int,
        'n' => Type::Uint,
        'd' => Type::Double,
        's' => Type::Text,
        'y' => Type::Bytes,
        't' => Type::Timestamp,
        'r' => Type::Duration,
        'q' => Type::Library("kubernetes.Quantity"),
        'p' => Type::Library("net.IP"),
        'c' => Type::Library("net.CIDR"),
        'u' => Type::Library("kubernetes.URL"),
        'v' => Type::Library("kubernetes.Semver"),
        'f' => Type::Library(FORMAT),
        'l' => match target {
            Type::List(_) => target.clone(),
            _ => Type::List(Box::new(Type::Dyn)),
        },
        'e' => target.element(),
        'S' => Type::List(Box::new(Type::Text)),
        'O' => Type::Optional(Box::new(Type::List(Box::new(Type::Text)))),
        'M' => Type::Map(Box::new(Type::Text), Box::new(Type::List(Box::new(Type::Text)))),
        _ => Type::Dyn,
    }
}

fn has(names: &str, name: &str) -> bool {
    names.split_whitespace().any(|known| known == name)
}

/// Type of the result of an operator with two operands, if it accepts them.
pub(super) fn operator<'a>(name: &str, left: &Type<'a>, right: &Type<'a>) -> Option<Type<'a>> {
    let is_known = !matches!(left, Type::Dyn) && !matches!(right, Type::Dyn);
    match name {
        operators::EQUALS | operators::NOT_EQUALS => left.fits(right).then_some(Type::Bool),
        operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS => {
            let is_ordered = |ty: &Type<'_>| {
                ty.is_number()
                    || matches!(
                        ty,
                        Type::Dyn | Type::Text | Type::Bytes | Type::Bool | Type::Timestamp | Type::Duration
                    )
            };
            let fit = left.fits(right) || (left.is_number() && right.is_number());
            (fit && is_ordered(left) && is_ordered(right)).then_some(Type::Bool)
        }
        operators::IN => match right {
            Type::List(item) => item.fits(left).then_some(Type::Bool),
            Type::Map(keys, _) => keys.fits(left).then_some(Type::Bool),
            Type::Dyn => Some(Type::Bool),
            _ => None,
        },
        _ if !is_known => {
            let known = if matches!(left, Type::Dyn) { right } else { left };
            Some(if known.is_number() { known.clone() } else { Type::Dyn })
        }
        operators::ADD => match (left, right) {
            (Type::Text, Type::Text) | (Type::Bytes, Type::Bytes) => Some(left.clone()),
            (Type::List(_), Type::List(_)) if left.fits(right) => Some(left.clone().joined(right.clone())),
            (Type::Timestamp, Type::Duration) | (Type::Duration, Type::Timestamp) => Some(Type::Timestamp),
            (Type::Duration, Type::Duration) => Some(Type::Duration),
            _ => numbers(left, right),
        },
        operators::SUBSTRACT => match (left, right) {
            (Type::Timestamp, Type::Duration) => Some(Type::Timestamp),
            (Type::Timestamp, Type::Timestamp) | (Type::Duration, Type::Duration) => Some(Type::Duration),
            _ => numbers(left, right),
        },
        _ => numbers(left, right),
    }
}

fn numbers<'a>(left: &Type<'a>, right: &Type<'a>) -> Option<Type<'a>> {
    (left.is_number() && left.fits(right)).then(|| left.clone())
}

/// Type of the result of a method. `None` if there is none with this name, `Some(None)` if it does not accept the target.
pub(super) fn method<'a>(name: &str, target: &Type<'a>, arguments: &[Type<'a>]) -> Option<Option<Type<'a>>> {
    match (name, target) {
        ("size", Type::Text | Type::Bytes | Type::List(_) | Type::Map(..) | Type::Dyn) => {
            return Some(Some(Type::Int));
        }
        ("size", _) => return Some(None),
        ("hasValue", Type::Optional(_) | Type::Dyn) => return Some(Some(Type::Bool)),
        ("value", Type::Optional(content)) => return Some(Some((**content).clone())),
        ("or", Type::Optional(_)) => return Some(Some(target.clone())),
        ("orValue", Type::Optional(content)) => {
            let other = arguments.first().filter(|other| content.fits(other));
            return Some(other.map(|other| (**content).clone().joined(other.clone())));
        }
        ("value" | "or" | "orValue", Type::Dyn) => return Some(Some(Type::Dyn)),
        ("hasValue" | "value" | "or" | "orValue", _) => return Some(None),
        _ => {}
    }
    let (_, targets, result) = METHODS.iter().find(|(names, ..)| has(names, name))?;
    let mut targets = targets.split('|').flat_map(|letters| letters.chars());
    let accepts = targets.any(|letter| type_of(letter, &Type::Dyn).fits(target));
    Some(accepts.then(|| type_of(*result, target)))
}

/// Type of the result of a function without target. `None` if there is none with this name, `Some(None)` if it does not accept
/// the arguments.
pub(super) fn global<'a>(name: &str, arguments: &[Type<'a>]) -> Option<Option<Type<'a>>> {
    let content = || arguments.first().cloned().unwrap_or(Type::Dyn);
    Some(Some(match (name, arguments) {
        ("type", [_]) => Type::OfTypes,
        ("optional.none", []) => Type::Optional(Box::new(Type::Dyn)),
        ("optional.of" | "optional.ofNonZeroValue", [_]) => Type::Optional(Box::new(content())),
        ("format.named", [_]) => Type::Optional(Box::new(Type::Library(FORMAT))),
        ("type" | "optional.none" | "optional.of" | "optional.ofNonZeroValue" | "format.named", _) => {
            return Some(None);
        }
        ("size", [target]) => return method(name, target, &[]),
        _ => {
            let (_, result) = GLOBALS.iter().find(|(names, _)| has(names, name))?;
            type_of(*result, &Type::Dyn)
        }
    }))
}
