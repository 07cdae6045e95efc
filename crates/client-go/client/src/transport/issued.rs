//! Validity of credentials that an exec plugin issued.

use std::{sync::Arc, time::Duration};

use kcm_clock::Timestamp;

use super::exec::ExecCredential;

/// Credentials are refreshed when a fifth of their lifetime is left, but not earlier than this before they expire.
const MAX_MARGIN: Duration = Duration::from_secs(60);

/// Minimum time between a run of the plugin that brought no new credentials and the next one, as long as the present
/// credentials have not expired.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// Credentials of one run of a plugin.
pub(super) struct Issued {
    pub(super) credential: ExecCredential,
    refresh_at: Option<Timestamp>,
}

/// Present credentials of a plugin.
#[derive(Clone, Default)]
pub(super) struct IssuedState {
    current: Option<Arc<Issued>>,
    /// `true` if the server answered a request with these credentials with 401.
    is_refused: bool,
    /// Earliest time of the next run if the present credentials have not expired, on the monotonic clock.
    not_before: Duration,
}

/// Run of the plugin that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefreshNeed {
    /// None: the present credentials are used.
    Nothing,
    /// A run, while the present credentials are used.
    Refresh,
    /// A run that the request waits for.
    Wait,
}

/// Both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) wall: Timestamp,
    pub(super) monotonic: Duration,
}

impl IssuedState {
    pub(super) fn current(&self) -> Option<&Arc<Issued>> {
        self.current.as_ref()
    }

    /// `true` if there are credentials that have not expired.
    pub(super) fn is_usable(&self, now: Now) -> bool {
        let expires = self.current.as_ref().map(|issued| issued.credential.expires);
        expires.is_some_and(|expires| expires.is_none_or(|at| now.wall <= at))
    }

    pub(super) fn need(&self, now: Now) -> RefreshNeed {
        let Some(issued) = self.current.as_ref().filter(|_| self.is_usable(now)) else {
            return RefreshNeed::Wait;
        };
        if now.monotonic < self.not_before {
            RefreshNeed::Nothing
        } else if self.is_refused {
            RefreshNeed::Wait
        } else if issued.refresh_at.is_some_and(|at| at <= now.wall) {
            RefreshNeed::Refresh
        } else {
            RefreshNeed::Nothing
        }
    }

    /// Replaces the present credentials.
    pub(super) fn issue(&mut self, credential: ExecCredential, now: Now) {
        let is_new = self.current.as_ref().is_none_or(|issued| issued.credential != credential);
        let refresh_at = credential.expires.map(|expires| {
            let lifetime = Duration::try_from(expires.duration_since(now.wall)).unwrap_or_default();
            expires.checked_sub((lifetime / 5).min(MAX_MARGIN)).unwrap_or(expires)
        });
        self.current = Some(Arc::new(Issued { credential, refresh_at }));
        self.is_refused = false;
        self.not_before = if is_new { Duration::ZERO } else { now.monotonic.saturating_add(MIN_INTERVAL) };
    }

    /// Records that a run of the plugin failed.
    pub(super) fn fail(&mut self, now: Now) {
        self.not_before = now.monotonic.saturating_add(MIN_INTERVAL);
    }

    /// Records a 401 for a request with `issued`, unless that has been replaced since.
    pub(super) fn refuse(&mut self, issued: &Arc<Issued>) {
        self.is_refused |= self.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, issued));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Now {
        let since = Duration::from_secs(seconds);
        Now { wall: Timestamp::UNIX_EPOCH.checked_add(since).unwrap(), monotonic: since }
    }

    fn token(text: &str, expires: Option<u64>) -> ExecCredential {
        let expires = expires.map(|seconds| at(seconds).wall);
        ExecCredential { token: Some(text.to_owned()), identity: None, expires }
    }

    fn issued(credential: ExecCredential) -> IssuedState {
        let mut state = IssuedState::default();
        state.issue(credential, at(0));
        state
    }

    #[test]
    fn no_credentials_and_expired_ones_are_waited_for() {
        assert_eq!(IssuedState::default().need(at(0)), RefreshNeed::Wait);
        let state = issued(token("a", Some(900)));
        assert_eq!(state.need(at(900)), RefreshNeed::Refresh);
        assert_eq!(state.need(at(901)), RefreshNeed::Wait);
    }

    #[test]
    fn valid_credentials_are_refreshed_before_they_expire() {
        let state = issued(token("a", Some(900)));
        assert_eq!(state.need(at(839)), RefreshNeed::Nothing);
        assert_eq!(state.need(at(840)), RefreshNeed::Refresh);
        // Short lifetimes: the last fifth.
        let state = issued(token("a", Some(10)));
        assert_eq!(state.need(at(7)), RefreshNeed::Nothing);
        assert_eq!(state.need(at(8)), RefreshNeed::Refresh);
    }

    #[test]
    fn credentials_without_expiry_are_kept() {
        assert_eq!(issued(token("a", None)).need(at(u64::from(u32::MAX))), RefreshNeed::Nothing);
    }

    #[test]
    fn failed_refresh_is_repeated_after_an_interval_or_at_expiry() {
        let mut state = issued(token("a", Some(900)));
        state.fail(at(840));
        assert_eq!(state.need(at(849)), RefreshNeed::Nothing);
        assert_eq!(state.need(at(850)), RefreshNeed::Refresh);
        state.fail(at(899));
        assert_eq!(state.need(at(901)), RefreshNeed::Wait);
    }

    #[test]
    fn refused_credentials_are_replaced_once() {
        let mut state = issued(token("a", None));
        let refused = Arc::clone(state.current().unwrap());
        state.refuse(&refused);
        assert_eq!(state.need(at(1)), RefreshNeed::Wait);
        state.issue(token("b", None), at(1));
        assert_eq!(state.need(at(1)), RefreshNeed::Nothing);
        // A late 401 for the old ones.
        state.refuse(&refused);
        assert_eq!(state.need(at(1)), RefreshNeed::Nothing);
    }

    #[test]
    fn refused_credentials_that_the_plugin_returns_again_are_used_for_an_interval() {
        let mut state = issued(token("a", None));
        state.refuse(&Arc::clone(state.current().unwrap()));
        state.issue(token("a", None), at(1));
        state.refuse(&Arc::clone(state.current().unwrap()));
        assert_eq!(state.need(at(10)), RefreshNeed::Nothing);
        assert_eq!(state.need(at(11)), RefreshNeed::Wait);
    }
}
