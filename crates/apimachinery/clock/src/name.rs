use crate::random::Random;

/// Number of characters of a base that a generated name keeps. With its suffix, a name is a valid DNS label.
///
/// Upstream counterpart: `maxGeneratedNameLength`.
const MAX_GENERATED_NAME_LENGTH: usize = 63 - SUFFIX_LENGTH;

/// Length of the random suffix of a generated name.
const SUFFIX_LENGTH: usize = 5;

/// Characters of random suffixes: without vowels and without characters that look alike.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Generates the name of an object from `base`, its `metadata.generateName`: the first 58 characters of the base and a
/// suffix of 5 random characters.
///
/// Example: `web-` may become `web-7k2xd`.
///
/// Upstream counterparts: `names.SimpleNameGenerator`, `rand.String`.
///
/// ```
/// use kcm_clock::{SeededRandom, generate_name, is_generated_name};
///
/// let name = generate_name(&SeededRandom::new(1), "web-");
/// assert!(is_generated_name(&name, "web-"));
/// assert_eq!(name.len(), "web-".len() + 5);
/// ```
pub fn generate_name(random: &dyn Random, base: &str) -> String {
    let mut name: String = base.chars().take(MAX_GENERATED_NAME_LENGTH).collect();
    let mut number = random.next_u64();
    for _ in 0..SUFFIX_LENGTH {
        let index = usize::try_from(number % ALPHABET.len() as u64).ok();
        number /= ALPHABET.len() as u64;
        name.extend(index.and_then(|index| ALPHABET.get(index)).map(|byte| char::from(*byte)));
    }
    name
}

/// Returns `true` if [`generate_name`] can generate `name` from `base`.
pub fn is_generated_name(name: &str, base: &str) -> bool {
    let base: String = base.chars().take(MAX_GENERATED_NAME_LENGTH).collect();
    let suffix = name.strip_prefix(&*base);
    suffix.is_some_and(|suffix| {
        suffix.len() == SUFFIX_LENGTH && suffix.bytes().all(|byte| ALPHABET.contains(&byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SeededRandom;

    #[test]
    fn generated_name_is_the_base_limited_to_58_characters_and_a_suffix() {
        struct Case {
            base: String,
            kept: String,
        }
        let cases = [
            Case { base: "web-".to_owned(), kept: "web-".to_owned() },
            Case { base: "p".repeat(80), kept: "p".repeat(58) },
            Case { base: String::new(), kept: String::new() },
        ];
        let random = SeededRandom::new(1);
        for Case { base, kept } in cases {
            let name = generate_name(&random, &base);
            assert!(is_generated_name(&name, &base), "{name}");
            assert_eq!((&name[..kept.len()], name.len()), (&*kept, kept.len() + 5));
            assert_ne!(name, generate_name(&random, &base));
        }
    }

    #[test]
    fn other_names_are_not_generated() {
        for name in ["web-", "web-bcdf", "web-bcdfgh", "web-bcdfa", "api-bcdfg"] {
            assert!(!is_generated_name(name, "web-"), "{name}");
        }
    }
}
