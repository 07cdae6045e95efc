//! Creates with lost responses, creates that are executed late, and late watches: each pod is created once.

use std::path::Path;

use kcm_stories::Story;

const REPLICAS: usize = 6;

/// Watches of pods that report one event and end, and are reopened after three seconds and the back-off of the manager.
const SLOW_WATCH: &str = "WATCH /api/v1/pods cut events=1 delay=3s times=40 agent=kube-controller-manager*";

/// Story of one object with six replicas and these faults.
fn story(kind: &str, controllers: &str, exempt: &str, faults: &[&str]) -> Story {
    let faults: String = faults.iter().map(|fault| format!("- '{fault}'\n")).collect();
    let text = format!(
        "story: lost-creates
about: Creates whose responses are lost.
controllers: [{controllers}]
cluster: {{nodes: 3}}
faults:
{faults}exempt: [{exempt}]
steps:
- create:
    apiVersion: apps/v1
    kind: {kind}
    metadata: {{name: web}}
    spec:
      replicas: {REPLICAS}
      selector: {{matchLabels: {{app: web}}}}
      template:
        metadata: {{labels: {{app: web}}}}
        spec: {{containers: [{{name: c, image: 'app:1'}}]}}
- wait: 900
- expect: {{count: {{pod: {REPLICAS}}}}}
"
    );
    Story::parse(&text, Path::new("lost-creates.yaml")).unwrap()
}

fn replica_set(faults: &[&str]) -> Story {
    story("ReplicaSet", "replicaset-controller", "", faults)
}

/// Returns the number of objects of `kind` created, and the number of applications of each fault.
async fn play(story: &Story, kind: &str) -> (usize, Vec<u64>) {
    let faults = story.faults();
    let (in_process, _) = super::play(story, 1, &faults).await;
    (in_process.checker.counts().created[kind], faults.applied())
}

/// A watch of pods that reports the first pod and ends, and is reopened after two minutes.
const NO_WATCH: [&str; 2] = [
    "WATCH /api/v1/pods cut events=1 times=1 agent=kube-controller-manager*",
    "WATCH /api/v1/pods delay=120s times=1 agent=kube-controller-manager*",
];

/// Rule that counts uncached reads of pods.
const READS: &str = "GET /api/v1/namespaces/*/pods delay=1ms agent=kube-controller-manager*";

#[tokio::test(start_paused = true)]
async fn creates_whose_responses_are_lost_take_effect_once() {
    // After a broken connection, the client repeats the create. After a 504, the next sync does, after its new names: the
    // fifth sync finds the four pods, and the following one waits until the watch reports all pods.
    for (fault, reads) in [("after:504", 4), ("late:0s every=2", 3)] {
        let lost = format!("POST **/pods {fault} times=4 agent=kube-controller-manager*");
        let [cut, delay] = NO_WATCH;
        let (created, applied) = play(&replica_set(&[READS, &lost, cut, delay]), "Pod").await;
        assert_eq!(created, REPLICAS, "{fault}");
        assert_eq!(applied, [reads, 4, 1, 1], "{fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn creates_that_fail_without_effect_are_repeated_without_a_read() {
    for fault in ["503", "403", "break"] {
        let failing = format!("POST **/pods {fault} times=4 agent=kube-controller-manager*");
        let (created, applied) = play(&replica_set(&[READS, &failing]), "Pod").await;
        assert_eq!((created, applied), (REPLICAS, vec![0, 4]), "{fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn failing_read_is_retried_and_delays_no_other_pod() {
    let lost = "POST **/pods late:0s times=1 agent=kube-controller-manager*";
    let down = "GET /api/v1/namespaces/*/pods 503 times=1 agent=kube-controller-manager*";
    let [cut, delay] = NO_WATCH;
    let (created, applied) = play(&replica_set(&[down, READS, lost, cut, delay]), "Pod").await;
    assert_eq!(created, REPLICAS);
    assert_eq!(applied[..3], [1, 1, 1]);
}

/// The name of a ReplicaSet is computed from its template, so a second create fails with AlreadyExists.
#[tokio::test(start_paused = true)]
async fn replica_set_is_created_once_despite_lost_responses_and_a_late_watch() {
    let faults = [
        "POST **/replicasets after:504 times=3 agent=kube-controller-manager*",
        "WATCH /apis/apps/v1/replicasets cut events=1 delay=3s times=40 agent=kube-controller-manager*",
    ];
    let controllers = "deployment-controller, replicaset-controller";
    let exempt = "{invariant: created-twice, reason: 'The create is repeated and fails with AlreadyExists.'}";
    let story = story("Deployment", controllers, exempt, &faults);
    let (created, applied) = play(&story, "ReplicaSet").await;
    assert_eq!(created, 1);
    assert!(applied[0] >= 1 && applied[1] >= 1, "faults were not applied: {applied:?}");
}

/// A rollover and scaling with lost responses in several patterns, a late watch, and an unavailable API server.
#[tokio::test(start_paused = true)]
async fn rollout_with_lost_responses_creates_each_pod_once() {
    for every in 1..=5 {
        let lost = format!("POST **/pods after:504 every={every} times=6 agent=kube-controller-manager*");
        let down = "GET /api/v1/namespaces/*/pods 503 every=3 times=6 agent=kube-controller-manager*";
        let mut story = story(
            "Deployment",
            "deployment-controller, replicaset-controller",
            "{invariant: idle-write, reason: 'A write that was reported as failed is repeated (US-5.8).'}",
            &[&lost, down, SLOW_WATCH],
        );
        let roll = "story: roll\nabout: The rest.\ncontrollers: []\nsteps:
- setImage: {object: deployment/web, image: 'app:2'}
- until: {object: deployment/web, complete: true, limit: 900}
- scale: {object: deployment/web, replicas: 9}
- until: {object: deployment/web, complete: true, limit: 900}
- wait: 60
- expect: {count: {pod: 9}}
";
        story.steps.extend(Story::parse(roll, Path::new("roll.yaml")).unwrap().steps);
        let (created, applied) = play(&story, "Pod").await;
        assert_eq!(created, 2 * REPLICAS + 3, "every={every}");
        assert!(applied[0] >= 2, "faults were not applied: {applied:?}");
    }
}

/// 500 pods by slow start, and a rolling update. Of the creates, more than a third take effect without a response, and a
/// fifth take effect five seconds after the connection broke.
#[tokio::test(start_paused = true)]
async fn rollout_of_500_pods_with_lost_responses_creates_each_pod_once() {
    let text = "story: lost-creates-500
about: Creates that take effect without a response, or late.
controllers: [deployment-controller, replicaset-controller]
cluster: {nodes: 8}
faults:
- 'POST **/pods late:5s every=5 agent=kube-controller-manager*'
- 'POST **/pods late:0s every=2 agent=kube-controller-manager*'
- 'POST **/pods delay=0.001s agent=kube-controller-manager*'
steps:
- create:
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web}
    spec:
      replicas: 500
      selector: {matchLabels: {app: web}}
      template:
        metadata: {labels: {app: web}}
        spec: {containers: [{name: c, image: 'app:1'}]}
- until: {object: deployment/web, complete: true, limit: 900}
- setImage: {object: deployment/web, image: 'app:2'}
- until: {object: deployment/web, complete: true, limit: 3600}
- wait: 900
- expect: {count: {pod: 500}}
";
    let story = Story::parse(text, Path::new("lost-creates-500.yaml")).unwrap();
    let (created, applied) = play(&story, "Pod").await;
    assert_eq!(created, 1000);
    let [late, lost, served] = applied[..] else { panic!("{applied:?}") };
    let requests = late + lost + served;
    assert!(late >= requests / 5 && lost >= requests / 3, "{late} late and {lost} lost of {requests}");
}
