//! Progress bar of a long preview.

use std::{
    io::Write,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kcm_clock::Clock;

/// Time without a bar: most previews are shorter.
const DELAY: Duration = Duration::from_secs(1);
/// Time between two updates.
const INTERVAL: Duration = Duration::from_millis(200);
/// Characters of a full bar.
const WIDTH: u32 = 40;

/// Bar on a terminal.
pub(super) struct ProgressBar<'a, W> {
    clock: &'a dyn Clock,
    state: Mutex<State<W>>,
}

struct State<W> {
    out: W,
    /// Time of the next update. `None` if there is no terminal.
    next: Option<Duration>,
    is_drawn: bool,
}

impl<'a, W: Write> ProgressBar<'a, W> {
    /// Creates a bar on `out`. It is not drawn if that is not a terminal.
    pub(super) fn new(clock: &'a dyn Clock, out: W, is_terminal: bool) -> Self {
        let next = is_terminal.then(|| clock.monotonic() + DELAY);
        Self { clock, state: Mutex::new(State { out, next, is_drawn: false }) }
    }

    /// Draws the bar for a share between 0 and 1. Errors of the terminal are ignored.
    pub(super) fn update(&self, share: f64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.monotonic();
        if state.next.is_none_or(|next| now < next) {
            return;
        }
        state.next = Some(now + INTERVAL);
        state.is_drawn = true;
        let filled = (1..=WIDTH).filter(|part| f64::from(*part) <= share * f64::from(WIDTH)).count();
        let (done, left) = ("#".repeat(filled), ".".repeat(WIDTH as usize - filled));
        let _ = write!(state.out, "\rsimulating the rollout [{done}{left}] {:3.0}%", share * 100.0);
        let _ = state.out.flush();
    }

    /// Removes the bar.
    pub(super) fn clear(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut state.is_drawn) {
            let _ = write!(state.out, "\r\x1b[K");
            let _ = state.out.flush();
        }
        state.next = None;
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::{FakeClock, Timestamp};

    use super::*;

    /// Text of a bar with updates at these seconds.
    fn drawn(is_terminal: bool, seconds: &[f64]) -> String {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let bar = ProgressBar::new(&clock, Vec::new(), is_terminal);
        for at in seconds {
            clock.step(Duration::from_secs_f64(*at).saturating_sub(clock.monotonic()));
            bar.update(0.25);
        }
        bar.clear();
        String::from_utf8(bar.state.into_inner().unwrap().out).unwrap()
    }

    #[test]
    fn only_on_a_terminal_and_after_a_second() {
        let bar = "\rsimulating the rollout [##########..............................]  25%";
        assert_eq!(drawn(true, &[1.5]), format!("{bar}\r\u{1b}[K"));
        assert_eq!(drawn(true, &[1.5, 1.6, 1.8]).matches(bar).count(), 2);
        assert_eq!(drawn(true, &[0.5]), "");
        assert_eq!(drawn(false, &[1.5]), "");
    }
}
