//! Natural numbers of any size, with the operations that quantities need.

use std::cmp::Ordering;

/// Natural number: 64-bit words, least significant first, without leading zeros.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Nat(Vec<u64>);

/// Largest power of ten in a word, and its exponent.
const TEN_POW: (u64, u32) = (10_u64.pow(19), 19);

impl Nat {
    /// Creates a number from decimal digits.
    pub(super) fn from_digits(digits: impl Iterator<Item = u8>) -> Self {
        let mut number = Self::default();
        for digit in digits {
            number.multiply_add(10, u64::from(digit - b'0'));
        }
        number
    }

    /// Returns the words, least significant first. Zero has none.
    pub(crate) fn words(&self) -> &[u64] {
        &self.0
    }

    pub(super) fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn multiply_add(&mut self, factor: u64, summand: u64) {
        let mut carry = summand;
        for word in &mut self.0 {
            (*word, carry) = word.carrying_mul(factor, carry);
        }
        if carry > 0 {
            self.0.push(carry);
        }
    }

    /// Divides, and returns the remainder.
    pub(super) fn divide(&mut self, divisor: u64) -> u64 {
        let mut rest = 0_u128;
        for word in self.0.iter_mut().rev() {
            let part = rest << 64 | u128::from(*word);
            *word = low_word(part / u128::from(divisor));
            rest = part % u128::from(divisor);
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        low_word(rest)
    }

    pub(super) fn multiply_by_ten_to_the(&mut self, exponent: u32) {
        for _ in 0..exponent / TEN_POW.1 {
            self.multiply_add(TEN_POW.0, 0);
        }
        self.multiply_add(10_u64.pow(exponent % TEN_POW.1), 0);
    }

    /// Divides, rounding up.
    pub(super) fn divide_by_ten_to_the(&mut self, exponent: u32) {
        let mut is_exact = true;
        for _ in 0..exponent / TEN_POW.1 {
            is_exact &= self.divide(TEN_POW.0) == 0;
        }
        is_exact &= self.divide(10_u64.pow(exponent % TEN_POW.1)) == 0;
        if !is_exact {
            self.increment();
        }
    }

    fn increment(&mut self) {
        for word in &mut self.0 {
            let overflows;
            (*word, overflows) = word.overflowing_add(1);
            if !overflows {
                return;
            }
        }
        self.0.push(1);
    }
}

impl From<u64> for Nat {
    fn from(number: u64) -> Self {
        let mut nat = Self::default();
        nat.multiply_add(1, number);
        nat
    }
}

impl PartialOrd for Nat {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Nat {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_length = self.0.len().cmp(&other.0.len());
        by_length.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

impl std::fmt::Display for Nat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rest = self.clone();
        let mut chunks = Vec::new();
        while !rest.is_zero() {
            chunks.push(rest.divide(TEN_POW.0));
        }
        write!(f, "{}", chunks.pop().unwrap_or(0))?;
        chunks.iter().rev().try_for_each(|chunk| write!(f, "{chunk:019}"))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low word is what is wanted")]
fn low_word(number: u128) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nat(digits: &str) -> Nat {
        Nat::from_digits(digits.bytes())
    }

    #[test]
    fn digits_round_trip() {
        for digits in ["0", "7", "18446744073709551616", "1000000000000000000000000000000000000000000001"] {
            assert_eq!(nat(digits).to_string(), digits);
        }
        assert_eq!(nat("18446744073709551617").words(), [1, 1]);
    }

    #[test]
    fn division_by_powers_of_ten_rounds_up() {
        let divided = |digits: &str, exponent| {
            let mut number = nat(digits);
            number.divide_by_ten_to_the(exponent);
            number.to_string()
        };
        assert_eq!(divided("1200", 2), "12");
        assert_eq!(divided("1201", 2), "13");
        assert_eq!(divided("1", 60), "1");
        assert_eq!(divided("184467440737095516150000000000000000000001", 22), "18446744073709551616");
    }

    #[test]
    fn multiplication_carries_over_words() {
        let mut number = nat("18446744073709551615");
        number.multiply_by_ten_to_the(40);
        assert_eq!(number.to_string(), format!("18446744073709551615{}", "0".repeat(40)));
        assert!(number > nat("18446744073709551615") && nat("9") < nat("10"));
    }
}
