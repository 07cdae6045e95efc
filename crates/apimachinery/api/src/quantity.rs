//! Quantities, such as amounts of CPU and memory.

mod nat;

use std::{fmt, str::FromStr};

use thiserror::Error;

pub(crate) use self::nat::Nat;

/// Quantity, parsed as upstream does.
///
/// Values are compared: `1000m` equals `1`. The pod template hash also depends on upstream's internal representation
/// (US-3.5), so that is kept: the digits and scale, and if the text was in canonical form.
///
/// Upstream counterpart: `resource.Quantity`.
///
/// ```
/// use kcm_api::quantity::Quantity;
/// let memory: Quantity = "1024Mi".parse()?;
/// assert_eq!(memory, "1Gi".parse()?);
/// assert_eq!(memory.to_string(), "1Gi");
/// # Ok::<(), kcm_api::quantity::QuantityError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Quantity {
    pub(crate) amount: Amount,
    pub(crate) format: Option<Format>,
    /// The text if upstream's quick check considers it canonical, otherwise empty.
    pub(crate) canonical: Box<str>,
}

/// Number of a [`Quantity`], in upstream's two representations.
#[derive(Debug, Clone)]
pub(crate) enum Amount {
    /// `value * 10^scale`.
    Int { value: i64, scale: i32 },
    /// `±abs / 10^scale`: what does not fit the other.
    Dec { negative: bool, abs: Nat, scale: i32 },
}

/// Family of suffixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `e3`, `E3`
    DecimalExponent,
    /// `Ki`, `Mi`, `Gi`, `Ti`, `Pi`, `Ei`
    BinarySi,
    /// `n`, `u`, `m`, none, `k`, `M`, `G`, `T`, `P`, `E`
    DecimalSi,
}

/// Invalid quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QuantityError {
    /// Not a number with a suffix.
    #[error("quantity is not a number followed by a suffix")]
    Format,
    /// The suffix is unknown.
    #[error("quantity has an unknown suffix")]
    Suffix,
    /// The number has no digits.
    #[error("quantity has no digits")]
    Number,
    /// Nothing that exists has so much.
    #[error("quantity is out of any range")]
    Range,
}

/// Minimum scale: nano.
const NANO: i32 = -9;

/// Maximum number of digits. DEVIATION: an error; upstream computes with numbers of any length.
const MAX_DIGITS: i32 = 10_000;

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        if text == "0" {
            let amount = Amount::Int { value: 0, scale: 0 };
            return Ok(Self { amount, format: Some(Format::DecimalSi), canonical: text.into() });
        }
        let parts = Parts::of(text)?;
        let suffix = Suffix::of(parts.suffix).ok_or(QuantityError::Suffix)?;
        if let Suffix::Decimal { exponent, .. } = suffix
            && exponent.saturating_add(length(parts.whole)) > MAX_DIGITS
            && parts.whole.bytes().chain(parts.fraction.bytes()).any(|digit| digit != b'0')
        {
            // The canonical text has the same number of digits with another exponent, so both are valid or invalid.
            return Err(QuantityError::Range);
        }
        match quick(text, &parts, suffix) {
            Some(quantity) => Ok(quantity),
            None => slow(&parts, suffix),
        }
    }
}

/// Parses numbers that fit 64 bits without rounding, with upstream's conservative estimate.
fn quick(text: &str, parts: &Parts<'_>, suffix: Suffix) -> Option<Quantity> {
    let digits = || parts.whole.bytes().chain(parts.fraction.bytes());
    let (precision, factor, scale) = match suffix {
        Suffix::Decimal { exponent, .. } => (18 - length(parts.whole) - length(parts.fraction), 1, exponent),
        Suffix::Binary { exponent } if parts.fraction.is_empty() => {
            #[expect(clippy::cast_possible_wrap, reason = "at most 60")]
            let precision = 15 - length(parts.whole) - (exponent * 3 / 10) as i32 - 1;
            (precision, 1_i64 << exponent, 0)
        }
        Suffix::Binary { .. } => return None,
    };
    let scale = scale.wrapping_sub(length(parts.fraction));
    if precision < 0 || scale < NANO {
        return None;
    }
    let number = digits().fold(0_i64, |number, digit| number * 10 + i64::from(digit - b'0'));
    let value = number.checked_mul(factor)?;
    let is_canonical = match suffix {
        Suffix::Binary { exponent } => exponent % 10 == 0 && number & 7 != 0,
        Suffix::Decimal { .. } => scale % 3 == 0 && number % 1000 != 0 && digits().next() != Some(b'0'),
    };
    Some(Quantity {
        amount: Amount::Int { value: if parts.negative { -value } else { value }, scale },
        format: Some(suffix.format()),
        canonical: if is_canonical { text.into() } else { Box::default() },
    })
}

/// Parses any number. Rounds up to nano, and limits binary amounts to 63 bits.
fn slow(parts: &Parts<'_>, suffix: Suffix) -> Result<Quantity, QuantityError> {
    if !parts.has_digits {
        return Err(QuantityError::Number);
    }
    if length(parts.whole) > MAX_DIGITS || length(parts.fraction) > MAX_DIGITS {
        return Err(QuantityError::Range);
    }
    let mut abs = Nat::from_digits(parts.whole.bytes().chain(parts.fraction.bytes()));
    let mut scale = length(parts.fraction);
    match suffix {
        Suffix::Decimal { exponent, .. } => scale = scale.wrapping_sub(exponent),
        Suffix::Binary { exponent } => abs.multiply_add(1 << exponent, 0),
    }
    if !abs.is_zero() {
        let shift = (-NANO).saturating_sub(scale);
        if shift > MAX_DIGITS {
            return Err(QuantityError::Range);
        }
        if shift >= 0 {
            abs.multiply_by_ten_to_the(shift.unsigned_abs());
        } else {
            // Dividing by more digits than the number has gives a remainder that is rounded up.
            abs.divide_by_ten_to_the(shift.unsigned_abs().min(3 * MAX_DIGITS.unsigned_abs()));
        }
        scale = -NANO;
    }
    let mut format = suffix.format();
    if format == Format::BinarySi {
        let nanos = |number: u64| {
            let mut nanos = Nat::from(number);
            nanos.multiply_by_ten_to_the(NANO.unsigned_abs());
            nanos
        };
        if abs > nanos(i64::MAX.unsigned_abs()) {
            abs = Nat::from(i64::MAX.unsigned_abs());
            scale = 0;
        } else if !abs.is_zero() && abs < nanos(1) {
            format = Format::DecimalSi;
        }
    }
    let negative = parts.negative && !abs.is_zero();
    Ok(Quantity {
        amount: Amount::Dec { negative, abs, scale },
        format: Some(format),
        canonical: Box::default(),
    })
}

fn length(text: &str) -> i32 {
    i32::try_from(text.len()).unwrap_or(i32::MAX / 4)
}

/// Parts of a quantity's text.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros; `0` when there are none.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
    /// `false` if the number has no digits. `quick` accepts this as zero.
    has_digits: bool,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self, QuantityError> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let negative = text.starts_with('-');
        let rest = unsigned.trim_start_matches('0');
        let had_zeros = rest.len() < unsigned.len();
        let (digits, rest) = split_digits(rest);
        let whole = if digits.is_empty() { "0" } else { digits };
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let has_digits = had_zeros || !digits.is_empty() || !fraction.is_empty();

        let after_letters = suffix.trim_start_matches(|letter| "eEinumkKMGTP".contains(letter));
        let exponent = after_letters.strip_prefix(['-', '+']).unwrap_or(after_letters);
        if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        Ok(Self { negative, whole, fraction, suffix, has_digits })
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

#[derive(Clone, Copy)]
enum Suffix {
    Decimal { exponent: i32, spelled_out: bool },
    Binary { exponent: u32 },
}

impl Suffix {
    fn of(text: &str) -> Option<Self> {
        let decimal = |exponent| Some(Self::Decimal { exponent, spelled_out: false });
        let binary = |exponent| Some(Self::Binary { exponent });
        match text {
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "" => decimal(0),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            "Ki" => binary(10),
            "Mi" => binary(20),
            "Gi" => binary(30),
            "Ti" => binary(40),
            "Pi" => binary(50),
            "Ei" => binary(60),
            _ => {
                let exponent: i64 = text.strip_prefix(['e', 'E'])?.parse().ok()?;
                #[expect(clippy::cast_possible_truncation, reason = "as upstream does")]
                Some(Self::Decimal { exponent: exponent as i32, spelled_out: true })
            }
        }
    }

    fn format(self) -> Format {
        match self {
            Self::Binary { .. } => Format::BinarySi,
            Self::Decimal { spelled_out: true, .. } => Format::DecimalExponent,
            Self::Decimal { spelled_out: false, .. } => Format::DecimalSi,
        }
    }
}

/// Normalized number: `±digits * 10^exponent`, where `digits` neither starts nor ends with a zero. Zero has no
/// digits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Number {
    /// `true` if the number is less than zero.
    pub negative: bool,
    /// Decimal digits.
    pub digits: String,
    /// Power of ten of the last digit.
    pub exponent: i64,
}

impl Quantity {
    /// Returns the value of the quantity.
    pub fn number(&self) -> Number {
        let (negative, mut digits, scale) = match &self.amount {
            Amount::Int { value, scale } => (*value < 0, value.unsigned_abs().to_string(), i64::from(*scale)),
            Amount::Dec { negative, abs, scale } => (*negative, abs.to_string(), -i64::from(*scale)),
        };
        let significant = digits.trim_end_matches('0').len();
        if significant == 0 {
            return Number::default();
        }
        let exponent = scale + (digits.len() - significant) as i64;
        digits.truncate(significant);
        Number { negative, digits, exponent }
    }

    /// Returns the family of suffixes of the text. `None` for a default quantity.
    pub fn format(&self) -> Option<Format> {
        self.format
    }

    /// Returns the number of powers of 1024, if the quantity is an integer of at least 1024 in binary format.
    fn binary(&self, number: &Number) -> Option<(Nat, usize)> {
        if self.format != Some(Format::BinarySi) || number.exponent < 0 {
            return None;
        }
        let mut amount = Nat::from_digits(number.digits.bytes());
        amount.multiply_by_ten_to_the(u32::try_from(number.exponent).ok()?);
        if amount < Nat::from(1024) {
            return None;
        }
        let mut times = 0;
        loop {
            let mut smaller = amount.clone();
            if times == BINARY_SUFFIXES.len() || smaller.divide(1024) > 0 {
                return Some((amount, times));
            }
            amount = smaller;
            times += 1;
        }
    }
}

const BINARY_SUFFIXES: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

impl fmt::Display for Quantity {
    /// Writes the canonical form: an integer with the largest possible suffix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.canonical.is_empty() {
            return f.write_str(&self.canonical);
        }
        let number = self.number();
        if number.digits.is_empty() {
            return f.write_str("0");
        }
        let sign = if number.negative { "-" } else { "" };
        if let Some((amount, times)) = self.binary(&number) {
            let suffix = times.checked_sub(1).map_or("", |index| BINARY_SUFFIXES[index]);
            return write!(f, "{sign}{amount}{suffix}");
        }
        let exponent = number.exponent.div_euclid(3) * 3;
        let zeros = usize::try_from(number.exponent - exponent).unwrap_or(0);
        write!(f, "{sign}{}{:0<zeros$}", number.digits, "")?;
        let index = usize::try_from(exponent / 3 + 3).ok();
        match index.and_then(|index| DECIMAL_SUFFIXES.get(index)) {
            _ if exponent == 0 => Ok(()),
            Some(suffix) if matches!(self.format, Some(Format::DecimalSi | Format::BinarySi)) => {
                f.write_str(suffix)
            }
            // Also beyond the last suffix. DEVIATION: v1.36 omits the exponent there, which changes the number.
            _ => write!(f, "e{exponent}"),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        match (&self.amount, &other.amount) {
            (Amount::Int { value: a, scale: x }, Amount::Int { value: b, scale: y }) if x == y => a == b,
            _ => self.number() == other.number(),
        }
    }
}

impl Eq for Quantity {}

impl Default for Amount {
    fn default() -> Self {
        Self::Int { value: 0, scale: 0 }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DecimalExponent => "DecimalExponent",
            Self::BinarySi => "BinarySI",
            Self::DecimalSi => "DecimalSI",
        })
    }
}

#[cfg(test)]
mod tests;
