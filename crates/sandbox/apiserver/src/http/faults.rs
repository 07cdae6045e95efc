//! The fault injection rules of a server, which change while it serves, and its open watches.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::Method;
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::fault::{Fault, FaultAction, FaultDecision, Glob, Read};

/// Fault injection rules with counts of matching requests. Rules are added and removed at any time.
///
/// The first rule with an effect other than a delay is applied. Delays of earlier rules are added. Clones share the rules.
///
/// ```
/// use kcm_apiserver::Faults;
///
/// let faults = Faults::default();
/// // The next creation of a pod fails.
/// let refused = faults.add("POST /api/v1/**/pods 500 times=1".parse()?);
/// // The third patch from now takes effect, and its response is lost.
/// let lost = faults.add("PATCH /** late:0s skip=2 times=1".parse()?);
/// assert_eq!([refused.applied(), lost.applied()], [0, 0]);
/// lost.remove();
/// // All open watches of pods end now.
/// faults.cut_watches("/api/v1/**/pods");
/// # Ok::<(), kcm_apiserver::FaultError>(())
/// ```
#[derive(Clone, Default)]
pub struct Faults(Arc<Shared>);

#[derive(Default)]
struct Shared {
    rules: RwLock<Vec<Arc<Rule>>>,
    watches: Mutex<Watches>,
}

/// A rule with its counts.
#[derive(Debug)]
struct Rule {
    fault: Fault,
    matched: AtomicU64,
    applied: AtomicU64,
}

/// Open watches by number.
#[derive(Default)]
struct Watches {
    last: u64,
    /// Path of the request, and token that ends the watch.
    open: BTreeMap<u64, (Box<str>, CancellationToken)>,
}

impl Faults {
    /// Creates the rules, in order of precedence.
    pub fn new(rules: impl IntoIterator<Item = Fault>) -> Self {
        let faults = Self::default();
        for rule in rules {
            faults.add(rule);
        }
        faults
    }

    /// Adds a rule after the others. Options such as `skip` and `times` count the requests from now on.
    pub fn add(&self, fault: Fault) -> FaultHandle {
        let rule = Arc::new(Rule { fault, matched: AtomicU64::new(0), applied: AtomicU64::new(0) });
        self.0.rules.write().push(Arc::clone(&rule));
        FaultHandle { rule, faults: self.clone() }
    }

    /// Returns the number of requests to which each rule was applied, in the order of the rules.
    pub fn applied(&self) -> Vec<u64> {
        self.0.rules.read().iter().map(|rule| rule.applied()).collect()
    }

    /// Ends the open watches with a matching path, and returns their number. In `path`, `*` matches within a segment and `**`
    /// matches anything: `/**` ends all watches, `/**/pods` those of pods.
    pub fn cut_watches(&self, path: &str) -> usize {
        let path = Glob(path.to_owned());
        let mut watches = self.0.watches.lock();
        let cut = watches.open.extract_if(.., |_, (open, _)| path.matches(open));
        cut.map(|(_, (_, end))| end.cancel()).count()
    }

    /// Returns the faults of a request and updates the counts of the evaluated rules.
    pub(super) fn evaluate(
        &self,
        method: &Method,
        read: Read,
        path: &str,
        agent: impl FnOnce() -> String,
    ) -> FaultDecision {
        let mut decision = FaultDecision { delay: Duration::ZERO, action: FaultAction::None };
        let rules = self.0.rules.read();
        if rules.is_empty() {
            return decision;
        }
        let agent = agent();
        for rule in &*rules {
            if decision.action != FaultAction::None {
                break;
            }
            if rule.fault.matches(method, read, path, &agent) && rule.is_selected() {
                decision.delay += rule.fault.delay;
                decision.action.clone_from(&rule.fault.action);
            }
        }
        decision
    }

    /// Adds a watch, which ends when `shutdown` is cancelled or the watch is cut.
    pub(super) fn open_watch(&self, path: &str, shutdown: &CancellationToken) -> OpenWatch {
        let end = shutdown.child_token();
        let mut watches = self.0.watches.lock();
        watches.last += 1;
        let number = watches.last;
        watches.open.insert(number, (path.into(), end.clone()));
        drop(watches);
        OpenWatch { end, number, faults: self.clone() }
    }
}

impl Rule {
    fn applied(&self) -> u64 {
        self.applied.load(Ordering::SeqCst)
    }

    /// Counts a matching request. Returns `true` if the fault applies to it.
    fn is_selected(&self) -> bool {
        let matched = self.matched.fetch_add(1, Ordering::SeqCst) + 1;
        let claim = |applied| (applied < self.fault.times).then_some(applied + 1);
        self.fault.is_turn(matched)
            && self.applied.fetch_update(Ordering::SeqCst, Ordering::SeqCst, claim).is_ok()
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&*self.0.rules.read()).finish()
    }
}

/// Rule that was [added](Faults::add) to the faults of a server. Dropping it does not remove the rule.
#[derive(Debug, Clone)]
pub struct FaultHandle {
    rule: Arc<Rule>,
    faults: Faults,
}

impl FaultHandle {
    /// Number of requests to which the rule was applied.
    pub fn applied(&self) -> u64 {
        self.rule.applied()
    }

    /// Removes the rule. Faults that are being applied, such as delays, continue.
    pub fn remove(&self) {
        self.faults.0.rules.write().retain(|rule| !Arc::ptr_eq(rule, &self.rule));
    }
}

/// A watch that can be cut.
pub(super) struct OpenWatch {
    end: CancellationToken,
    number: u64,
    faults: Faults,
}

impl OpenWatch {
    /// Waits until the watch is cut or the server shuts down.
    pub(super) fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        self.end.cancelled()
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.faults.0.watches.lock().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(rules: &[&str]) -> Faults {
        Faults::new(rules.iter().map(|rule| rule.parse().unwrap()))
    }

    fn post(faults: &Faults, path: &str) -> u16 {
        match faults.evaluate(&Method::POST, Read::Other, path, || "kubectl/1".to_owned()).action {
            FaultAction::None => 0,
            FaultAction::Refuse(status) | FaultAction::RefuseAfter(status) => status.code(),
            FaultAction::Cut { .. } | FaultAction::Lag(_) | FaultAction::Break { .. } => 1,
        }
    }

    #[test]
    fn options_select_requests() {
        let faults = faults(&["POST /a 429 skip=1 every=2 times=2", "POST /a 500 times=1"]);
        let codes: Vec<u16> = (0..8).map(|_| post(&faults, "/a")).collect();
        assert_eq!(codes, [500, 0, 429, 0, 429, 0, 0, 0]);
        assert_eq!(post(&faults, "/b"), 0);
        assert_eq!(faults.applied(), [2, 1]);
    }

    #[test]
    fn delays_add_up() {
        let faults = faults(&["* /** delay=500ms", "POST /a 409 delay=1s agent=kube*"]);
        let decision =
            faults.evaluate(&Method::POST, Read::Other, "/a", || "kubectl/1 (linux/amd64)".to_owned());
        assert_eq!(decision.delay, Duration::from_millis(1500));
        assert!(matches!(decision.action, FaultAction::Refuse(status) if status.code() == 409));
        assert_eq!(
            faults.evaluate(&Method::POST, Read::Other, "/a", || "curl".to_owned()).action,
            FaultAction::None
        );
    }

    #[test]
    fn watches_differ_from_other_reads() {
        let faults = faults(&["CONTINUE /a 410", "GET /a 503", "WATCH /a 410", "* /b cut", "* /c lag:1s"]);
        let code = |read, path| match faults.evaluate(&Method::GET, read, path, String::new).action {
            FaultAction::Refuse(status) => status.code(),
            FaultAction::Cut { .. } => 1,
            FaultAction::Lag(_) => 2,
            _ => 0,
        };
        let reads = [Read::Other, Read::Continued, Read::Watch];
        assert_eq!(reads.map(|read| code(read, "/a")), [503, 410, 410]);
        assert_eq!(reads.map(|read| code(read, "/b")), [0, 0, 1]);
        assert_eq!(reads.map(|read| code(read, "/c")), [0, 0, 2]);
    }

    #[test]
    fn rules_are_added_and_removed() {
        let faults = faults(&["POST /a 429 skip=1"]);
        assert_eq!(post(&faults, "/a"), 0);
        let added = faults.add("POST /** 500 skip=1 times=1".parse().unwrap());
        // The first rule has precedence, and only evaluated rules count.
        assert_eq!(post(&faults, "/a"), 429);
        assert_eq!([post(&faults, "/b"), post(&faults, "/b"), post(&faults, "/b")], [0, 500, 0]);
        assert_eq!((added.applied(), faults.applied()), (1, vec![1, 1]));
        added.remove();
        added.remove();
        assert_eq!((added.applied(), faults.applied()), (1, vec![1]));
        let again = faults.add("POST /b 409".parse().unwrap());
        assert_eq!((post(&faults, "/b"), again.applied()), (409, 1));
    }

    #[test]
    fn cut_ends_matching_open_watches() {
        let (faults, shutdown) = (Faults::default(), CancellationToken::new());
        let [pods, services, gone] = ["/api/v1/pods", "/api/v1/services", "/api/v1/pods"]
            .map(|path| faults.open_watch(path, &shutdown));
        drop(gone);
        assert_eq!(faults.cut_watches("/**/pods"), 1);
        assert!(pods.end.is_cancelled() && !services.end.is_cancelled());
        shutdown.cancel();
        assert!(services.end.is_cancelled());
        drop((pods, services));
        assert_eq!(faults.cut_watches("/**"), 0);
    }
}
