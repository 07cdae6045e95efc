//! Mutation of valid inputs, for the decoders' tests in `crates/*/tests/fuzz.rs`.
//!
//! [`check`] runs a property on the inputs in `fuzz/seeds/NAME` and on mutations of them, a fixed number in a fixed order.
//! `FUZZ_CASES` sets another number. The fuzz targets in this folder run the same properties under libFuzzer.

use std::{
    alloc::System,
    fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    sync::{Mutex, PoisonError},
};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Serializes properties, because allocations are counted for the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Tokens that decoders often handle incorrectly.
const TOKENS: [&[u8]; 32] = [
    b"null",
    b"true",
    b"{}",
    b"[]",
    b"\"\"",
    b"0",
    b"-1",
    b"1.5",
    b"1e999",
    b"2147483648",
    b"-2147483649",
    b"9223372036854775807",
    b"18446744073709551616",
    b"99999999999999999999999999999999999999",
    b"\"\\ud800\"",
    b"\\u0000",
    b"\xff\xfe",
    b"\xc3",
    b"\xe2\x80\xa8",
    b"%",
    b"%00",
    b"&",
    b"=",
    b",",
    b"'",
    b"\n",
    b"---\n",
    b"*a ",
    b"&a ",
    b"<<: ",
    b"!!binary ",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
];

/// Opening and closing bytes of one nesting level.
const NESTINGS: [(&[u8], &[u8]); 5] =
    [(b"[", b"]"), (b"{\"a\":", b"}"), (b"(", b")"), (b"\x0a\x7f", b""), (b"- ", b"")];

/// SplitMix64 generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, or 0.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap()
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Returns a subrange of `0..len` with at most `longest` items.
    fn range(&mut self, len: usize, longest: usize) -> std::ops::Range<usize> {
        let start = self.below(len + 1);
        start..start + self.below((len - start).min(longest) + 1)
    }
}

/// Applies one to five changes to `input`.
fn mutate(random: &mut Random, input: &[u8], seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        match random.below(10) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = *random.pick(b"\0\xff\x80\"\\{}[]:,\n -0"),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(random.range(bytes.len(), 64))),
            4 => {
                let copy = bytes[random.range(bytes.len(), 64)].to_vec();
                drop(bytes.splice(at..at, copy));
            }
            5 => {
                let other = random.pick(seeds);
                let tail = other[random.below(other.len() + 1)..].to_vec();
                bytes.truncate(at);
                bytes.extend(tail);
            }
            6 => drop(bytes.splice(at..at, random.pick(&TOKENS).iter().copied())),
            // A value of another type, or a number out of range.
            7 => {
                let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'.';
                let end = at + bytes[at..].iter().take_while(|byte| is_part(byte)).count();
                drop(bytes.splice(at..end, random.pick(&TOKENS).iter().copied()));
            }
            // A duplicate member.
            8 => {
                let comma = bytes[at..].iter().position(|byte| *byte == b',').map(|after| at + after);
                if let Some(comma) = comma {
                    let next = bytes[comma + 1..].iter().position(|byte| *byte == b',');
                    let end = next.map_or(bytes.len(), |after| comma + 1 + after);
                    let member = bytes[comma..end].to_vec();
                    drop(bytes.splice(end..end, member));
                }
            }
            _ => {
                let (open, close) = *random.pick(&NESTINGS);
                let depth = *random.pick(&[3, 130, 20_000]);
                let end = (at + random.below(16)).min(bytes.len());
                drop(bytes.splice(end..end, close.repeat(depth)));
                drop(bytes.splice(at..at, open.repeat(depth)));
            }
        }
    }
    bytes
}

/// Runs `property` on the seeds in `fuzz/seeds/NAME` and on `cases` mutations of them.
///
/// # Panics
///
/// Panics if the property panics, or allocates more than 4 MiB plus 1 KiB per byte of its input.
pub(crate) fn check(name: &str, cases: usize, property: fn(&[u8])) {
    check_within(4 << 20, name, cases, property);
}

/// Like [`check`], with a limit of `fixed` bytes for any input.
///
/// # Panics
///
/// Panics if the property panics, or allocates more than `fixed` bytes plus 1 KiB per byte of its input.
pub(crate) fn check_within(fixed: usize, name: &str, cases: usize, property: fn(&[u8])) {
    let mut folders =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("fuzz/seeds"));
    let folder = folders.find(|folder| folder.is_dir()).unwrap().join(name);
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let seeds: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let cases = std::env::var("FUZZ_CASES").map_or(cases, |cases| cases.parse().unwrap());
    let mut random = Random(name.bytes().fold(7, |seed, byte| seed * 31 + u64::from(byte)));
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // The first runs initialize statics, which are not counted.
    seeds.iter().for_each(|seed| property(seed));
    for seed in &seeds {
        run(fixed, property, seed);
    }
    for case in 0..cases {
        let input = mutate(&mut random, &seeds[case % seeds.len()], &seeds);
        run(fixed, property, &input);
    }
}

fn run(fixed: usize, property: fn(&[u8]), input: &[u8]) {
    let region = Region::new(ALLOCATOR);
    let outcome = catch_unwind(AssertUnwindSafe(|| property(input)));
    let allocated = region.change().bytes_allocated;
    let limit = fixed + (input.len() << 10);
    if outcome.is_err() || allocated > limit {
        eprintln!("input: b\"{}\"", input.escape_ascii());
    }
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
    assert!(allocated <= limit, "{allocated} bytes were allocated for {} bytes of input", input.len());
}
