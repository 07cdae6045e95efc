//! Creates with lost responses, creates that are executed late, and late watches: each pod is created once.

use std::path::Path;

use kcm_stories::{InProcess, InProcessConfig, Story};

use super::lines;

const REPLICAS: usize = 6;

/// Watches of pods that tell of one event and end, and are opened again so many seconds later, with the manager's own
/// pace in between.
const SLOW_WATCH: &str = "WATCH /api/v1/pods cut events=1 delay=3s times=40 agent=kube-controller-manager*";

/// One object that wants six pods, with these faults, until they are there.
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

/// How many objects of `kind` were ever created, and how many requests each fault harmed.
async fn play(story: &Story, kind: &str) -> (usize, Vec<u64>) {
    let config = InProcessConfig::for_story(story, 1);
    let faults = config.faults.clone();
    let mut cluster = InProcess::new(config).await.unwrap();
    let played = kcm_stories::play(story, &mut cluster.world, "t0x").await;
    let violations = cluster.guard.violations_but(&story.exempt);
    assert!(violations.is_empty(), "{}", lines(violations));
    played.unwrap();
    (cluster.guard.tally().created[kind], faults.applied())
}

/// A watch of pods that reports the first pod and ends, and is opened again after two minutes.
const NO_WATCH: [&str; 2] = [
    "WATCH /api/v1/pods cut events=1 times=1 agent=kube-controller-manager*",
    "WATCH /api/v1/pods delay=120s times=1 agent=kube-controller-manager*",
];

/// Counts uncached reads of pods, and harms nothing.
const READS: &str = "GET /api/v1/namespaces/*/pods delay=1ms agent=kube-controller-manager*";

#[tokio::test(start_paused = true)]
async fn creates_whose_responses_are_lost_take_effect_once() {
    // The client repeats a create after a broken connection. After a 504, the next sync does. It finds the first pod,
    // and the sync after it waits until the watch reports all pods.
    for (harm, reads) in [("after:504", 1), ("late:0s every=2", 3)] {
        let lost = format!("POST **/pods {harm} times=4 agent=kube-controller-manager*");
        let [cut, delay] = NO_WATCH;
        let (created, harmed) = play(&replica_set(&[READS, &lost, cut, delay]), "Pod").await;
        assert_eq!(created, REPLICAS, "{harm}");
        assert_eq!(harmed, [reads, 4, 1, 1], "{harm}");
    }
}

#[tokio::test(start_paused = true)]
async fn creates_that_fail_without_effect_are_repeated_without_a_read() {
    for harm in ["503", "403", "break"] {
        let failing = format!("POST **/pods {harm} times=4 agent=kube-controller-manager*");
        let (created, harmed) = play(&replica_set(&[READS, &failing]), "Pod").await;
        assert_eq!((created, harmed), (REPLICAS, vec![0, 4]), "{harm}");
    }
}

#[tokio::test(start_paused = true)]
async fn read_that_fails_for_a_while_is_repeated_and_nothing_is_created_before() {
    let lost = "POST **/pods late:0s times=1 agent=kube-controller-manager*";
    let down = "GET /api/v1/namespaces/*/pods 503 times=12 agent=kube-controller-manager*";
    let [cut, delay] = NO_WATCH;
    let (created, harmed) = play(&replica_set(&[down, READS, lost, cut, delay]), "Pod").await;
    assert_eq!(created, REPLICAS);
    assert_eq!(harmed[..3], [12, 1, 1]);
}

/// The name of a ReplicaSet follows from its template: that it is there already is what a second creation is told.
#[tokio::test(start_paused = true)]
async fn replica_set_of_a_deployment_is_created_once_although_the_answer_is_lost_and_the_watch_late() {
    let faults = [
        "POST **/replicasets after:504 times=3 agent=kube-controller-manager*",
        "WATCH /apis/apps/v1/replicasets cut events=1 delay=3s times=40 agent=kube-controller-manager*",
    ];
    let controllers = "deployment-controller, replicaset-controller";
    let exempt = "{invariant: created-twice, reason: 'It is asked for again, and refused by its name.'}";
    let story = story("Deployment", controllers, exempt, &faults);
    let (created, harmed) = play(&story, "ReplicaSet").await;
    assert_eq!(created, 1);
    assert!(harmed[0] >= 1 && harmed[1] >= 1, "nothing has been put to the test: {harmed:?}");
}

/// A Deployment rolled over and scaled, with answers lost in every pattern, a late watch, and a server that cannot be
/// asked at times.
#[tokio::test(start_paused = true)]
async fn rollout_with_lost_answers_and_a_late_watch_makes_each_pod_once() {
    for every in 1..=5 {
        let lost = format!("POST **/pods after:504 every={every} times=6 agent=kube-controller-manager*");
        let down = "GET /api/v1/namespaces/*/pods 503 every=3 times=6 agent=kube-controller-manager*";
        let mut story = story(
            "Deployment",
            "deployment-controller, replicaset-controller",
            "{invariant: idle-write, reason: 'What was said to have failed is tried again (US-5.8).'}",
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
        let (created, harmed) = play(&story, "Pod").await;
        assert_eq!(created, 2 * REPLICAS + 3, "every={every}");
        assert!(harmed[0] >= 2, "nothing has been put to the test: {harmed:?}");
    }
}

/// 500 pods by slow start and a rolling update of them. Of the creates, more than one in three takes effect without a
/// response, and one in five takes effect five seconds after its connection broke.
#[tokio::test(start_paused = true)]
async fn rollout_of_500_pods_with_lost_and_late_creates_makes_each_pod_once() {
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
    let (created, harmed) = play(&story, "Pod").await;
    assert_eq!(created, 1000);
    let [late, lost, served] = harmed[..] else { panic!("{harmed:?}") };
    let requests = late + lost + served;
    assert!(late >= requests / 5 && lost >= requests / 3, "{late} late and {lost} lost of {requests}");
}
