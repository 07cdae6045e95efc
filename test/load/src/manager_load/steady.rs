//! Startup, memory, cost of events, and takeover of a manager.

use std::time::Duration;

use super::{load_cluster::LoadCluster, manager::ManagerProgram};
use crate::{error::TaskError, measure::Measure};

/// Number of events per measurement. Large enough that other work of the manager is negligible.
const EVENTS: usize = 5_000;
/// Number of pods created per measurement.
const CREATED: usize = 1_000;

/// Measures one manager without a standby.
pub(super) async fn steady(
    cluster: &mut LoadCluster,
    manager: &ManagerProgram,
    pods: usize,
) -> Result<Vec<Measure>, TaskError> {
    const MIB: f64 = 1024.0 * 1024.0;
    let with = match pods {
        0 => "0 pods".to_owned(),
        pods => format!("{pods} pods"),
    };
    let probe = cluster.probe().await?;
    let manager = cluster.start(manager, &["--leader-elect=false"])?;
    let start = probe.seen().await?;
    let busy = manager.idle(cluster.clock()).await?;
    let (now, most) = manager.resident()?;
    let mut measures = vec![
        Measure::new(format!("start to first write, {with}"), "ms", start.as_secs_f64() * 1e3),
        Measure::new(format!("CPU time until idle, {with}"), "ms", busy.as_secs_f64() * 1e3),
        Measure::new(format!("memory, {with}"), "MiB", now as f64 / MIB),
        Measure::new(format!("maximum memory, {with}"), "MiB", most as f64 / MIB),
    ];
    if pods > 0 {
        let each = |time: Duration, count: usize| time.as_secs_f64() * 1e6 / count as f64;
        let before = manager.processor_time()?;
        cluster.patch_unowned_pod(EVENTS).await?;
        let irrelevant = manager.idle(cluster.clock()).await?.saturating_sub(before);
        let before = manager.processor_time()?;
        cluster.patch_owned_pod(EVENTS).await?;
        let empty = manager.idle(cluster.clock()).await?.saturating_sub(before);
        let before = manager.processor_time()?;
        let start = cluster.now();
        cluster.grow(CREATED).await?;
        let took = cluster.now().saturating_sub(start);
        let created = manager.idle(cluster.clock()).await?.saturating_sub(before);
        measures.extend([
            Measure::new(
                format!("CPU time per irrelevant pod event, {with}"),
                "µs",
                each(irrelevant, EVENTS),
            ),
            Measure::new(format!("CPU time per empty pod event, {with}"), "µs", each(empty, EVENTS)),
            Measure::new(format!("CPU time per pod created, {with}"), "µs", each(created, CREATED)),
            Measure::new(
                format!("{CREATED} pods created and available, {with}"),
                "ms",
                took.as_secs_f64() * 1e3,
            ),
        ]);
        cluster.shrink().await?;
    }
    manager.end().await?;
    Ok(measures)
}

/// Measures takeovers from a leader to a standby.
pub(super) async fn takeover(
    cluster: &mut LoadCluster,
    manager: &ManagerProgram,
) -> Result<Vec<Measure>, TaskError> {
    let mut measures = Vec::new();
    for (signal, kill) in [("SIGTERM", false), ("SIGKILL", true)] {
        let duration = takeover_time(cluster, manager, kill).await?;
        measures.push(Measure::new(format!("takeover after {signal}"), "ms", duration.as_secs_f64() * 1e3));
    }
    Ok(measures)
}

/// Returns the time from the end of the leader to the first write of the standby.
pub(super) async fn takeover_time(
    cluster: &mut LoadCluster,
    manager: &ManagerProgram,
    kill: bool,
) -> Result<Duration, TaskError> {
    let probe = cluster.probe().await?;
    let leader = cluster.start(manager, &["--leader-elect-resource-name=kube-controller-manager"])?;
    probe.seen().await?;
    let standby = cluster.start(manager, &["--leader-elect-resource-name=kube-controller-manager"])?;
    standby.idle(cluster.clock()).await?;
    let start = cluster.now();
    if kill {
        leader.end().await?;
    } else {
        leader.terminate()?;
    }
    // Created after the end of the leader, which would otherwise handle it.
    let probe = cluster.probe().await?.from(start);
    let duration = probe.seen().await?;
    standby.end().await?;
    // The next leader must not find a lease that is held.
    cluster.delete_lease().await?;
    Ok(duration)
}
