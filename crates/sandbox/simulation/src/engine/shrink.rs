//! Makes scenarios that fail as small as they can be.

use super::surprises::Surprise;

/// Runs after which shrinking ends.
const MAX_RUNS: usize = 400;

/// Largest change of the numbers of surprises, in sum, with which a smaller scenario is tried. What is left out changes the
/// number of steps before a surprise.
const MAX_SHIFT: u32 = 3;

/// A part of a scenario that may be left out, or made smaller.
#[derive(Debug, Clone, Copy)]
pub struct Reduction<S> {
    /// Number of such parts.
    pub len: fn(&S) -> usize,
    /// Reduces the part at a position.
    pub reduce: fn(&mut S, usize),
}

/// Reduction that removes an element of a list of the scenario.
#[doc(hidden)]
#[macro_export]
macro_rules! removal {
    ($list:ident) => {
        $crate::engine::shrink::Reduction {
            len: |scenario| scenario.$list.len(),
            reduce: |scenario, at| {
                scenario.$list.remove(at);
            },
        }
    };
}

/// Returns the scenario with as little in it as fails, with the same or with other numbers of its surprises.
pub fn shrink<S: Clone + PartialEq, E>(
    scenario: S,
    reductions: &[Reduction<S>],
    surprises_of: fn(&mut S) -> &mut Vec<Surprise>,
    fails: impl Fn(&S) -> Result<bool, E>,
) -> Result<S, E> {
    let (mut best, mut left) = (scenario, MAX_RUNS);
    loop {
        let mut is_smaller = false;
        for Reduction { len, reduce } in reductions {
            for at in (0..len(&best)).rev() {
                let mut smaller = best.clone();
                if at < len(&best) {
                    reduce(&mut smaller, at);
                }
                if smaller == best {
                    continue;
                }
                for surprises in shifted(surprises_of(&mut smaller)) {
                    if left == 0 {
                        break;
                    }
                    left -= 1;
                    *surprises_of(&mut smaller) = surprises;
                    if fails(&smaller)? {
                        (best, is_smaller) = (smaller, true);
                        break;
                    }
                }
            }
        }
        if !is_smaller {
            return Ok(best);
        }
    }
}

/// The surprises with their own and with other numbers, smallest change first.
fn shifted(surprises: &[Surprise]) -> Vec<Vec<Surprise>> {
    let mut all = vec![(0, Vec::new())];
    for surprise in surprises {
        let numbers = surprise.nth.saturating_sub(MAX_SHIFT).max(1)..=surprise.nth + MAX_SHIFT;
        let extended = |(shift, before): &(u32, Vec<Surprise>)| {
            let (shift, before) = (*shift, before.clone());
            numbers.clone().map(move |nth| {
                let mut surprises = before.clone();
                surprises.push(Surprise { nth, ..surprise.clone() });
                (shift + nth.abs_diff(surprise.nth), surprises)
            })
        };
        all = all.iter().flat_map(extended).filter(|(shift, _)| *shift <= MAX_SHIFT).collect();
    }
    all.sort_by_key(|(shift, _)| *shift);
    all.into_iter().map(|(_, surprises)| surprises).collect()
}
