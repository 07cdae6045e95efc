//! Candidates in simulated time, with a Lease behind an unreliable network.

mod go_candidate;
mod network;
mod pause;
mod running;
mod schedules;

use std::sync::atomic::{AtomicUsize, Ordering};

use kcm_clock::{Clock, SeededRandom};
use tokio::time::sleep;

use super::*;
use crate::HEALTH_TOLERANCE;
use network::{Network, Trip};
use running::{MachineClock, Running, Told, config};

const SECOND: Duration = Duration::from_secs(1);

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn exact() -> Arc<dyn Clock> {
    Arc::new(MachineClock::exact())
}

mod acquire {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn single_candidate_leads_and_renews() {
        let network = Network::good();
        let me = Running::start(config("me", &network, exact()));
        sleep(seconds(5.0)).await;
        assert!(me.gate.is_leader());
        assert_eq!(me.status.leader(), "me");
        assert_eq!(
            network.log(),
            [(0.0, "me", "get"), (0.0, "me", "create"), (2.0, "me", "update"), (4.0, "me", "update")]
                .map(|(at, _, verb)| (seconds(at), verb))
        );
        assert_eq!(me.told.take(), ["kcm leading false", "kcm new leader \"me\"", "kcm leading true"]);
        assert_eq!(me.events.take(), ["Normal LeaderElection me became leader"]);
        me.stop.cancel();
        sleep(seconds(0.1)).await;
        assert!(!me.gate.is_leader() && me.lost.is_cancelled());
        assert_eq!(me.told.take(), ["kcm leading false"]);
        assert_eq!(me.events.take(), ["Normal LeaderElection me stopped leading"]);
        assert_eq!(me.outcome().await, ElectionOutcome::Finished(()));
        assert_eq!(network.lease().unwrap().holder(), Some("me"), "not to be given back");
    }

    #[tokio::test(start_paused = true)]
    async fn standby_retries_with_jitter() {
        let network = Network::good();
        let leader = Running::start(config("leader", &network, exact()));
        sleep(SECOND).await;
        let own = Network::beside(&network);
        let standby = Running::start(config("standby", &own, exact()));
        sleep(seconds(300.0)).await;
        assert!(leader.gate.is_leader() && !standby.gate.is_leader());
        assert_eq!(standby.status.leader(), "leader");
        assert_eq!(standby.told.take(), ["kcm leading false", "kcm new leader \"leader\""]);
        let log = own.log();
        assert!(log.iter().all(|(_, verb)| *verb == "get"));
        let pauses: Vec<_> = log.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(pauses.len() > 60);
        let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
        assert!(*least >= 2 * SECOND && *most < seconds(4.401), "{least:?} {most:?}");
        assert!(*least < seconds(2.3) && *most > seconds(4.1), "{least:?} {most:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn standby_acquires_expired_lease() {
        let network = Network::good();
        let leader = Running::start(config("leader", &network, exact()));
        sleep(SECOND).await;
        let own = Network::beside(&network);
        let standby = Running::start(config("standby", &own, exact()));
        sleep(seconds(9.5)).await;
        // kill -9, half a second after the last renewal.
        leader.task.abort();
        let killed = tokio::time::Instant::now();
        while !standby.gate.is_leader() {
            sleep(Duration::from_millis(1)).await;
        }
        let gap = killed.elapsed();
        let [.., seen, looked, took] = own.log()[..] else { panic!("{:?}", own.log()) };
        assert_eq!((looked, took.1), ((took.0, "get"), "update"));
        assert!(took.0 - seen.0 < seconds(4.4), "it asked all the while");
        let is_lease = |at: &Duration| took.0 - *at == 15 * SECOND;
        assert!(
            own.log().iter().any(|(at, _)| is_lease(at)),
            "no pause on top of the lease: {:?}",
            own.log()
        );
        assert!(gap > seconds(14.4) && gap < seconds(19.0), "{gap:?}");
        assert!(!leader.gate.is_leader(), "a task that is gone leads no more");
        assert_eq!(network.lease().unwrap().spec.lease_transitions, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn triggered_standby_acquires_released_lease_at_once() {
        let network = Network::with(|| Trip { out: seconds(0.002), back: seconds(0.002), ..Trip::good() });
        let release_on_cancel = true;
        let leader =
            Running::start(LeaderElectionConfig { release_on_cancel, ..config("leader", &network, exact()) });
        sleep(SECOND).await;
        let standby = Running::start(config("standby", &network, exact()));
        network.watch({
            let trigger = standby.acquire_trigger.clone();
            move |lease| trigger.lease_changed(lease)
        });
        sleep(seconds(20.3)).await;
        let stopped = tokio::time::Instant::now();
        leader.stop.cancel();
        while !standby.gate.is_leader() {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(!leader.gate.is_leader());
        let gap = stopped.elapsed();
        assert!(gap < Duration::from_millis(30), "{gap:?}");
        assert_eq!(leader.outcome().await, ElectionOutcome::Finished(()));
        let spec = network.lease().unwrap().spec;
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("standby"), Some(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn other_standby_acquires_released_lease_at_next_retry() {
        let network = Network::good();
        let release_on_cancel = true;
        let leader =
            Running::start(LeaderElectionConfig { release_on_cancel, ..config("leader", &network, exact()) });
        sleep(SECOND).await;
        let standby = Running::start(config("standby", &network, exact()));
        sleep(seconds(20.3)).await;
        leader.stop.cancel();
        sleep(seconds(4.4)).await;
        assert!(standby.gate.is_leader());
    }

    #[tokio::test(start_paused = true)]
    async fn response_after_the_end_of_leadership_is_ignored() {
        let network = Network::good();
        let config = LeaderElectionConfig {
            lease_duration: seconds(1.0),
            renew_deadline: seconds(0.9),
            retry_period: seconds(0.5),
            ..config("me", &network, exact())
        };
        network.next([Trip::good(), Trip { back: seconds(0.95), ..Trip::good() }]);
        let me = Running::start(config);
        sleep(seconds(1.0)).await;
        assert_eq!(network.lease().unwrap().holder(), Some("me"));
        assert!(!me.gate.is_leader() && !me.task.is_finished());
        assert_eq!(me.told.take(), ["kcm leading false", "kcm new leader \"me\""]);
        sleep(seconds(2.0)).await;
        assert!(me.gate.is_leader(), "it tries again");
    }

    #[tokio::test(start_paused = true)]
    async fn retries_at_limited_rate_while_server_fails() {
        for trip in [Trip::broken, Trip::refused] {
            let network = Network::with(trip);
            let me = Running::start(config("me", &network, exact()));
            for _ in 0..6_000 {
                me.acquire_trigger.trigger();
                sleep(seconds(0.01)).await;
            }
            // Triggered repeatedly: at most every 100 ms.
            assert!((100..=610).contains(&network.log().len()), "{}", network.log().len());
            let before = network.log().len();
            sleep(seconds(60.0)).await;
            assert!(network.log().len() - before <= 31);
            assert!(!me.gate.is_leader());
            network.all(Trip::good);
            sleep(seconds(4.5)).await;
            assert!(me.gate.is_leader());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn can_run_again_after_loss() {
        let network = Network::good();
        let mut elector = LeaderElector::new(config("me", &network, exact())).unwrap();
        let stop = CancellationToken::new();
        let terms = AtomicUsize::new(0);
        for term in 1..=3 {
            let outcome = elector.run(&stop, |_| async {
                terms.fetch_add(1, Ordering::SeqCst);
                network.all(Trip::broken);
                std::future::pending::<()>().await;
            });
            assert_eq!(outcome.await, ElectionOutcome::Lost(LossReason::Deadline));
            assert_eq!(terms.load(Ordering::SeqCst), term);
            network.all(Trip::good);
        }
    }
}

mod renew {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stops_when_the_lease_has_expired() {
        let network = Network::good();
        let me = Running::start(config("me", &network, exact()));
        sleep(seconds(4.5)).await;
        network.all(Trip::broken);
        sleep(seconds(9.4)).await;
        assert!(me.gate.is_leader() && !me.lost.is_cancelled());
        sleep(seconds(0.2)).await;
        assert!(!me.gate.is_leader() && !me.lost.is_cancelled());
        sleep(seconds(4.8)).await;
        assert!(!me.gate.is_leader() && !me.lost.is_cancelled(), "the lease has not expired");
        sleep(seconds(0.2)).await;
        assert!(me.lost.is_cancelled());
        let tries: Vec<_> = network.log().into_iter().filter(|(at, _)| *at > seconds(4.5)).collect();
        let expected: Vec<_> = [6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0]
            .into_iter()
            .flat_map(|at| [(seconds(at), "update"), (seconds(at), "get")])
            .collect();
        assert_eq!(tries, expected);
        assert_eq!(me.told.take()[3..], ["kcm leading false"]);
        assert_eq!(me.events.take()[1..], ["Normal LeaderElection me stopped leading"]);
        assert_eq!(me.outcome().await, ElectionOutcome::Lost(LossReason::Deadline));
    }

    #[tokio::test(start_paused = true)]
    async fn stops_when_the_lease_has_expired_while_requests_hang() {
        let network = Network::good();
        let release_on_cancel = true;
        let me =
            Running::start(LeaderElectionConfig { release_on_cancel, ..config("me", &network, exact()) });
        sleep(SECOND).await;
        network.all(Trip::silent);
        sleep(seconds(8.999)).await;
        assert!(me.gate.is_leader());
        sleep(seconds(0.002)).await;
        assert!(!me.gate.is_leader() && !me.lost.is_cancelled());
        sleep(seconds(5.0)).await;
        assert!(!me.gate.is_leader() && me.lost.is_cancelled() && me.task.is_finished());
        let log = network.log();
        assert_eq!(
            log[2..],
            [(2 * SECOND, "update"), (7 * SECOND, "get"), (12 * SECOND, "update")],
            "each is given up after five seconds"
        );
        assert_eq!(me.outcome().await, ElectionOutcome::Lost(LossReason::Deadline));
        assert_eq!(network.lease().unwrap().holder(), Some("me"));
    }

    /// Upstream's leader survives these twelve seconds as well.
    #[tokio::test(start_paused = true)]
    async fn gate_opens_again_if_the_lease_is_renewed_before_it_expires() {
        let network = Network::good();
        let me = Running::start(config("me", &network, exact()));
        sleep(SECOND).await;
        network.all(Trip::broken);
        sleep(seconds(12.0)).await;
        assert!(!me.gate.is_leader() && !me.lost.is_cancelled());
        network.all(Trip::good);
        sleep(seconds(2.0)).await;
        assert!(me.gate.is_leader() && !me.lost.is_cancelled());
        let lease = network.lease().unwrap();
        assert_eq!((lease.holder(), lease.spec.lease_transitions), (Some("me"), Some(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn survives_one_hanging_request() {
        let network = Network::good();
        let me = Running::start(config("me", &network, exact()));
        sleep(SECOND).await;
        network.next([Trip::silent()]);
        sleep(seconds(60.0)).await;
        assert!(me.gate.is_leader() && !me.lost.is_cancelled());
        assert_eq!(me.told.take()[3..], ["kcm slow path"]);
    }

    #[tokio::test(start_paused = true)]
    async fn late_response_counts_from_request() {
        let network = Network::good();
        let me = Running::start(config("me", &network, exact()));
        sleep(SECOND).await;
        // Carried out at once, answered four seconds later, at six.
        network.next([Trip { back: seconds(4.0), ..Trip::good() }]);
        sleep(seconds(5.5)).await;
        assert!(me.gate.remaining() <= seconds(5.5), "{:?}", me.gate.remaining());
        network.all(Trip::broken);
        sleep(seconds(5.4)).await;
        assert!(me.gate.is_leader());
        sleep(seconds(0.2)).await;
        assert!(!me.gate.is_leader(), "ten seconds after the write was sent, at two");
    }

    #[tokio::test(start_paused = true)]
    async fn stops_at_once_if_lease_has_other_holder() {
        let network = Network::good();
        let me = Running::start(config("me", &network, exact()));
        sleep(SECOND).await;
        network.edit(|lease| lease.spec.holder_identity = Some("other".to_owned()));
        sleep(seconds(1.01)).await;
        assert!(!me.gate.is_leader());
        assert_eq!(me.outcome().await, ElectionOutcome::Lost(LossReason::Taken("other".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn survives_deleted_lease() {
        let network = Network::good();
        let me = Running::start(config("me", &network, exact()));
        sleep(SECOND).await;
        network.delete();
        sleep(seconds(2.0)).await;
        assert!(me.gate.is_leader() && !me.lost.is_cancelled());
        assert_eq!(network.lease().unwrap().holder(), Some("me"));
    }

    #[tokio::test(start_paused = true)]
    async fn leads_for_whole_seconds() {
        let network = Network::good();
        let config = LeaderElectionConfig {
            lease_duration: seconds(1.9),
            renew_deadline: seconds(1.8),
            retry_period: seconds(0.5),
            ..config("me", &network, exact())
        };
        let me = Running::start(config);
        sleep(seconds(0.1)).await;
        assert_eq!(me.gate.remaining(), seconds(0.9));
        assert_eq!(network.lease().unwrap().spec.lease_duration_seconds, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn retries_at_once_after_slow_failure() {
        let network = Network::good();
        let me = Running::start(config("me", &network, exact()));
        sleep(SECOND).await;
        network.all(|| Trip { back: seconds(1.4), ..Trip::broken() });
        sleep(seconds(8.0)).await;
        let tries: Vec<_> =
            network.log().into_iter().filter(|(_, verb)| *verb == "update").map(|(at, _)| at).collect();
        assert_eq!(tries, [2.0, 4.8, 7.6].map(seconds));
        assert!(me.gate.is_leader());
    }

    #[tokio::test(start_paused = true)]
    async fn gate_is_closed_after_sigstop() {
        let network = Network::good();
        let me = Running::start(config("me", &network, exact()));
        sleep(SECOND).await;
        me.paused.stop();
        sleep(seconds(8.9)).await;
        assert!(me.gate.is_leader());
        sleep(seconds(0.2)).await;
        assert!(!me.gate.is_leader(), "no task had to run for that");
        assert!(!me.lost.is_cancelled());
        sleep(seconds(60.0)).await;
        let asked = network.log().len();
        me.paused.go_on();
        sleep(seconds(0.001)).await;
        assert!(me.lost.is_cancelled());
        assert_eq!(network.log().len(), asked, "it does not renew what is no longer its own");
        assert_eq!(me.outcome().await, ElectionOutcome::Lost(LossReason::Deadline));
    }

    #[tokio::test(start_paused = true)]
    async fn gate_is_closed_after_a_suspension() {
        let network = Network::good();
        let clock = Arc::new(MachineClock::exact());
        let me = Running::start(config("me", &network, Arc::clone(&clock) as _));
        sleep(seconds(5.0)).await;
        clock.suspend(60 * SECOND);
        assert!(!me.gate.is_leader(), "no task had to run for that");
        let asked = network.log().len();
        // The timer of the next renewal was started before.
        sleep(seconds(1.1)).await;
        assert_eq!(network.log().len(), asked, "it does not renew what is no longer its own");
        assert_eq!(me.outcome().await, ElectionOutcome::Lost(LossReason::Deadline));
    }

    /// A renewal gets no answer, and another candidate leads and stops while the machine is suspended.
    #[tokio::test(start_paused = true)]
    async fn does_not_lead_again_after_a_suspension_during_a_renewal() {
        let network = Network::good();
        let clock = Arc::new(MachineClock::exact());
        let me = Running::start(config("me", &network, Arc::clone(&clock) as _));
        sleep(seconds(1.0)).await;
        network.all(Trip::silent);
        sleep(seconds(1.5)).await;
        clock.suspend(600 * SECOND);
        network.edit(|lease| lease.spec.holder_identity = Some(String::new()));
        network.all(Trip::good);
        assert_eq!(me.outcome().await, ElectionOutcome::Lost(LossReason::Deadline));
        assert_eq!(network.lease().unwrap().holder(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn renews_after_a_suspension_that_ends_before_the_deadline() {
        let network = Network::good();
        let clock = Arc::new(MachineClock::exact());
        let me = Running::start(config("me", &network, Arc::clone(&clock) as _));
        sleep(seconds(5.0)).await;
        clock.suspend(7 * SECOND);
        sleep(seconds(0.9)).await;
        assert!(me.gate.is_leader());
        sleep(seconds(0.2)).await;
        assert!(me.gate.remaining() > 9 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn ignores_wall_clock() {
        let network = Network::good();
        let leader = Running::start(config("leader", &network, Arc::new(MachineClock::wrong(1.0, 3))));
        sleep(SECOND).await;
        let standby = Running::start(config("standby", &network, Arc::new(MachineClock::wrong(1.0, 4))));
        sleep(seconds(600.0)).await;
        assert!(leader.gate.is_leader() && !standby.gate.is_leader());
        assert_eq!(network.lease().unwrap().spec.lease_transitions, Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn health_check_fails_for_stuck_leader() {
        let network = Network::good();
        let leader = Running::start(config("leader", &network, exact()));
        sleep(SECOND).await;
        let standby = Running::start(config("standby", &network, exact()));
        sleep(seconds(1.5)).await;
        leader.paused.stop();
        sleep(seconds(34.4)).await;
        assert_eq!(leader.status.check(HEALTH_TOLERANCE), Ok(()));
        sleep(seconds(0.2)).await;
        let error = leader.status.check(HEALTH_TOLERANCE).unwrap_err();
        assert_eq!(error.to_string(), "failed election to renew leadership on lease kcm");
        assert!(standby.gate.is_leader());
        assert_eq!(standby.status.check(HEALTH_TOLERANCE), Ok(()));
        network.all(Trip::silent);
        sleep(seconds(5.0)).await;
        assert_eq!(standby.status.check(Duration::ZERO), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn shared_identity_is_reported() {
        let network = Network::good();
        let twin = |unique_identity, seed| LeaderElectionConfig {
            unique_identity,
            ..config("twin", &network, Arc::new(MachineClock::wrong(1.0, seed)))
        };
        let one = Running::start(twin(false, 1));
        sleep(SECOND).await;
        let two = Running::start(twin(false, 2));
        sleep(seconds(3.0)).await;
        assert!(one.gate.is_leader() && two.gate.is_leader(), "as upstream");
        assert!(one.told.take().contains(&"kcm identity shared".to_owned()));
        assert!(two.told.take().contains(&"kcm identity shared".to_owned()));
        let three = Running::start(twin(true, 3));
        sleep(seconds(60.0)).await;
        assert!(!three.gate.is_leader());
        assert!(three.told.take().contains(&"kcm identity shared".to_owned()));
    }
}

mod restore {
    use super::*;

    async fn is_notified(me: &Running) -> bool {
        tokio::time::timeout(Duration::ZERO, me.restored.notified()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_leader_is_notified() {
        let network = Network::good();
        let leader = Running::start(config("leader", &network, exact()));
        sleep(seconds(21.0)).await;
        let standby = Running::start(config("standby", &Network::beside(&network), exact()));
        sleep(seconds(5.0)).await;
        assert!(!is_notified(&leader).await && !is_notified(&standby).await);
        network.restore(3);
        sleep(seconds(5.0)).await;
        assert!(is_notified(&leader).await && !is_notified(&standby).await);
        sleep(seconds(60.0)).await;
        assert!(!is_notified(&leader).await, "notified again");
        leader.task.abort();
        sleep(seconds(25.0)).await;
        assert!(standby.gate.is_leader() && !is_notified(&standby).await);
    }

    /// The gate is closed when the leader reads the Lease.
    #[tokio::test(start_paused = true)]
    async fn leader_whose_renewal_is_late_is_notified() {
        let network = Network::good();
        let leader = Running::start(config("leader", &network, exact()));
        sleep(seconds(20.5)).await;
        network.all(Trip::broken);
        sleep(seconds(10.0)).await;
        assert!(!leader.gate.is_leader());
        network.restore(3);
        network.all(Trip::good);
        sleep(seconds(2.0)).await;
        assert!(is_notified(&leader).await);
    }
}

mod release {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn renews_until_work_has_ended() {
        let network = Network::good();
        let config = LeaderElectionConfig { release_on_cancel: true, ..config("me", &network, exact()) };
        let mut elector = LeaderElector::new(config).unwrap();
        let (stop, gate) = (CancellationToken::new(), elector.gate());
        let ended = elector.run(&stop, |leadership| {
            let (stop, gate) = (stop.clone(), gate.clone());
            async move {
                sleep(SECOND).await;
                stop.cancel();
                sleep(seconds(30.0)).await;
                assert!(leadership.is_leader() && gate.is_leader());
                "drained"
            }
        });
        assert_eq!(ended.await, ElectionOutcome::Finished("drained"));
        let log = network.log();
        assert_eq!(log.iter().filter(|(at, _)| *at > SECOND && *at < seconds(31.0)).count(), 15);
        assert_eq!(log[log.len() - 2..], [(seconds(31.0), "get"), (seconds(31.0), "update")]);
        assert_eq!(network.lease().unwrap().holder(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn retries_after_conflict_until_deadline() {
        let network = Network::good();
        let release_on_cancel = true;
        let me =
            Running::start(LeaderElectionConfig { release_on_cancel, ..config("me", &network, exact()) });
        sleep(SECOND).await;
        // Another client writes between read and update, three times.
        let writer = Network::beside(&network);
        network.before_updates(3, move || writer.edit(|lease| lease.metadata.generation += 1));
        me.stop.cancel();
        sleep(SECOND).await;
        assert_eq!(network.lease().unwrap().holder(), None);
        assert_eq!(network.log().len(), 2 + 2 * 4);

        let network = Network::good();
        let me =
            Running::start(LeaderElectionConfig { release_on_cancel, ..config("me", &network, exact()) });
        sleep(SECOND).await;
        let writer = Network::beside(&network);
        network.before_updates(usize::MAX, move || writer.edit(|lease| lease.metadata.generation += 1));
        me.stop.cancel();
        sleep(seconds(9.9)).await;
        assert!(!me.task.is_finished() && !me.gate.is_leader());
        sleep(seconds(0.2)).await;
        assert!(me.task.is_finished());
        assert!(network.log().len() < 410, "bounded: {}", network.log().len());
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_standby_writes_nothing() {
        let network = Network::good();
        let _leader = Running::start(config("leader", &network, exact()));
        sleep(SECOND).await;
        let own = Network::beside(&network);
        let release_on_cancel = true;
        let standby =
            Running::start(LeaderElectionConfig { release_on_cancel, ..config("standby", &own, exact()) });
        sleep(SECOND).await;
        standby.stop.cancel();
        assert_eq!(standby.outcome().await, ElectionOutcome::NeverLed);
        assert_eq!(own.log(), [(SECOND, "get")]);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_standby_releases_write_in_flight() {
        let network = Network::good();
        network.next([Trip::good(), Trip { back: seconds(3.0), ..Trip::good() }]);
        let release_on_cancel = true;
        let me =
            Running::start(LeaderElectionConfig { release_on_cancel, ..config("me", &network, exact()) });
        sleep(SECOND).await;
        assert_eq!(network.lease().unwrap().holder(), Some("me"));
        assert!(!me.gate.is_leader());
        me.stop.cancel();
        assert_eq!(me.outcome().await, ElectionOutcome::NeverLed);
        assert_eq!(network.lease().unwrap().holder(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_run_ends_leadership() {
        let network = Network::good();
        let me = Running::start(config("me", &network, exact()));
        sleep(SECOND).await;
        me.task.abort();
        sleep(seconds(0.001)).await;
        assert!(!me.gate.is_leader() && me.lost.is_cancelled());
    }
}
