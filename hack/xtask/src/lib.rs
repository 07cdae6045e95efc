//! Compiles the code of `docs/coming-from.md`.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/coming-from.md")]
struct ComingFromDoctests;
