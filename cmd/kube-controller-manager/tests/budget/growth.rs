//! Workloads of `manager-load` in several sizes, for `cargo xtask budget --growth`. Simulated time. They are smaller than those
//! of `manager-load`, because valgrind takes fifty times as long.

use std::env;

use serde_json::json;

use crate::{
    World, runtime,
    scope::{counted, end_section, uncounted_future},
};

const IMAGE: &str = "/template/spec/containers/0/image";

async fn run(workload: &str, scale: usize) {
    let world = World::start();
    let cluster = &world.cluster;
    let (deployments, pods) = match workload {
        "burst500" => (1, 500 * scale),
        "small50" => (50 * scale, 3),
        _ => (10 * scale, 3),
    };
    let names: Vec<_> = (0..deployments).map(|number| format!("web-{number}")).collect();
    let create = || names.iter().for_each(|name| cluster.deploy(name, pods));
    let set_image = |image| names.iter().for_each(|name| cluster.set(name, IMAGE, json!(image)));
    cluster.settle().await;
    if workload == "mass_roll10" {
        create();
        cluster.settle().await;
        for image in ["app:2", "app:3", "app:4"] {
            set_image(image);
            cluster.settle().await;
        }
        end_section();
        set_image("app:9");
    } else {
        end_section();
        create();
    }
    cluster.settle().await;
    end_section();
    world.stop().await;
}

#[test]
#[ignore = "cargo xtask budget --growth runs it"]
fn workload() {
    let workload = env::var("BUDGET_WORKLOAD").unwrap();
    let scale = env::var("BUDGET_SCALE").unwrap().parse().unwrap();
    let runtime = runtime();
    counted(&mut || {
        let workload = workload.clone();
        runtime.block_on(uncounted_future(async move { run(&workload, scale).await }));
    });
}
