//! Surprises: outcomes of steps that are not the default, and their effects.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{faults::FaultEffect, objects::ObjectVersion};

/// Duration of every surprise that has one, in milliseconds. It is longer than the start and the end of most pods.
pub(super) const LONG: u64 = 4_000;

/// Delay within which everything happens that is due at the same instant, in milliseconds.
pub(super) const BRIEF: u64 = 1;

/// Outcome of a step that is not the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Alternative {
    /// The request is not executed, and its connection breaks.
    LoseRequest,
    /// The request is executed, and its connection breaks.
    LoseResponse,
    /// The API server refuses the request with 500.
    Refuse,
    /// The connection breaks at once, and the request is executed later.
    Late,
    /// The request is executed later. The sender waits.
    DelayRequest,
    /// The request is executed, and its response arrives later.
    DelayResponse,
    /// The process is killed, and the request is not executed.
    KillBefore,
    /// The process is killed, and the request is executed.
    KillAfter,
    /// The process is stopped before it sends the request, and continued.
    Stop,
    /// The host of the process is disconnected before it sends the request.
    Cut,
    /// The watch delivers the event, and those after it, later.
    Hold,
    /// The watch delivers the event after everything else that happens at the same instant.
    HoldBriefly,
    /// The watch ends before the event.
    CloseWatch,
    /// The watch ends with 410 before the event, after a time without events.
    ExpireWatch,
    /// The pod becomes ready 4 s after it is bound.
    SlowStart,
    /// The pod stops 4 s after its deletion, or after its grace period if that is shorter.
    SlowStop,
    /// The user acts, or the timer expires, later.
    Later,
}

/// An alternative at a choice point.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Surprise {
    /// Name of the step.
    pub step: String,
    /// Number of the step among those of its name, from 1.
    pub nth: u32,
    /// Outcome in place of the default.
    pub becomes: Alternative,
}

/// A kind of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StepKind {
    Write,
    Read,
    Lease,
    WatchEvent,
    PodCreation,
    UserAction,
    Timer,
    /// The end of the scenario, at which nothing is chosen.
    End,
}

impl StepKind {
    fn is_request(self) -> bool {
        matches!(self, Self::Write | Self::Read | Self::Lease)
    }

    /// Outcomes other than the default. A process that is killed before a write is the process that is killed after the previous
    /// write of the same sync.
    pub fn alternatives(self) -> &'static [Alternative] {
        use Alternative::{
            CloseWatch, Cut, DelayRequest, DelayResponse, ExpireWatch, Hold, HoldBriefly, KillAfter,
            KillBefore, Late, Later, LoseRequest, LoseResponse, Refuse, SlowStart, SlowStop, Stop,
        };
        match self {
            Self::Write => {
                &[LoseRequest, LoseResponse, Refuse, Late, DelayRequest, DelayResponse, KillAfter, Stop, Cut]
            }
            Self::Read => &[LoseRequest, Refuse, DelayResponse, KillBefore],
            Self::Lease => &[LoseResponse, Late, KillAfter, Stop, Cut],
            Self::WatchEvent => &[Hold, HoldBriefly, CloseWatch, ExpireWatch],
            Self::PodCreation => &[SlowStart, SlowStop],
            Self::UserAction | Self::Timer => &[Later],
            Self::End => &[],
        }
    }
}

impl Alternative {
    /// Fault of the request or the watch with this outcome. `None` for pods and users.
    pub(super) fn effect(self) -> Option<FaultEffect> {
        Some(match self {
            Self::LoseRequest => FaultEffect::LoseRequest,
            Self::LoseResponse => FaultEffect::LoseResponse,
            Self::Refuse => FaultEffect::Refuse { code: 500, retry_after: None },
            Self::Late => FaultEffect::Late { time: LONG },
            Self::DelayRequest => FaultEffect::DelayRequest { time: LONG },
            Self::DelayResponse => FaultEffect::DelayResponse { time: LONG },
            Self::KillBefore => FaultEffect::Kill { executed: false },
            Self::KillAfter => FaultEffect::Kill { executed: true },
            Self::Stop => FaultEffect::Stop { time: LONG },
            Self::Cut => FaultEffect::Cut { time: LONG },
            Self::Hold => FaultEffect::DelayWatch { time: LONG },
            Self::HoldBriefly => FaultEffect::DelayWatch { time: BRIEF },
            Self::CloseWatch => FaultEffect::CutWatch { chunks: 0, torn: false },
            Self::ExpireWatch => FaultEffect::ExpireWatch { chunks: 0, time: LONG },
            Self::SlowStart | Self::SlowStop | Self::Later => return None,
        })
    }

    pub(super) fn is_kill(self) -> bool {
        matches!(self, Self::KillBefore | Self::KillAfter)
    }

    /// Time after which the state of the run contains the effect. The state of a process contains the time of its exit.
    fn hidden_for(self) -> Duration {
        Duration::from_millis(match self {
            Self::LoseRequest
            | Self::LoseResponse
            | Self::Refuse
            | Self::KillBefore
            | Self::KillAfter
            | Self::HoldBriefly
            | Self::CloseWatch => BRIEF,
            _ => LONG,
        })
    }
}

/// Delay of slow pods, late users and late timers.
pub fn delay() -> Duration {
    Duration::from_millis(LONG)
}

/// A surprise that has happened, and its effect as far as the state of the run does not contain it.
pub(super) struct Effect {
    pub(super) surprise: Surprise,
    /// `true` until its request is sent, which waits while the host is disconnected.
    pub(super) is_pending: bool,
    /// Time after which the state contains it.
    pub(super) hidden_until: Duration,
    /// Time until which the scenario lasts at least.
    pub(super) scenario_until: Duration,
    /// Version without which a late update fails.
    pub(super) precondition: Option<ObjectVersion>,
}

impl Effect {
    /// Effect of a surprise that happens now. On a request, it is pending.
    pub(super) fn new(surprise: Surprise, kind: StepKind, now: Duration) -> Self {
        let becomes = surprise.becomes;
        let mut effect =
            Self { surprise, is_pending: false, hidden_until: now, scenario_until: now, precondition: None };
        effect.begin(now);
        effect.is_pending = kind.is_request() && !matches!(becomes, Alternative::Stop | Alternative::Cut);
        effect
    }

    /// Begins an effect now.
    pub(super) fn begin(&mut self, now: Duration) {
        self.is_pending = false;
        let becomes = self.surprise.becomes;
        self.hidden_until = now + becomes.hidden_for();
        // A process that is killed is started again, and may have to acquire a Lease.
        self.scenario_until = if becomes.is_kill() { now + delay() } else { self.hidden_until };
    }

    pub(super) fn is_hidden(&self, now: Duration) -> bool {
        self.is_pending || now <= self.hidden_until + Duration::from_millis(BRIEF)
    }
}
