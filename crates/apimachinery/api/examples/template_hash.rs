//! Computes the name of a Deployment's ReplicaSet.
//!
//! ```text
//! cargo run -p kcm-api --example template_hash
//! ```

use std::error::Error;

use kcm_api::{Deployment, POD_TEMPLATE_HASH_LABEL};

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      # What a server fills in is part of the hash, so the template is as it comes from one.
      containers:
        - name: c
          image: nginx:1.27
          imagePullPolicy: IfNotPresent
          terminationMessagePath: /dev/termination-log
          terminationMessagePolicy: File
      restartPolicy: Always
      terminationGracePeriodSeconds: 30
      dnsPolicy: ClusterFirst
      securityContext: {}
      schedulerName: default-scheduler
";

fn main() -> Result<(), Box<dyn Error>> {
    // JSON is YAML, too.
    let tree: serde_json::Value = serde_saphyr::from_str(WEB)?;
    let deployment: Deployment = serde_json::from_value(tree)?;

    let template = &deployment.spec.template;
    let hash = template.compute_hash(deployment.status.collision_count)?;
    println!("ReplicaSet {}-{hash}", deployment.metadata.name);

    // The label in the ReplicaSet's template is ignored by the comparison.
    let labelled = template.with_label(POD_TEMPLATE_HASH_LABEL, Some(&hash))?;
    println!("belongs to the Deployment: {}", labelled.equal_ignore_hash(template));
    Ok(())
}
