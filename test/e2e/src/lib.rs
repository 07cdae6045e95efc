//! The manager's binary against a real API server.
//!
//! The tests run where `KUBEBUILDER_ASSETS` names a folder with `etcd` and `kube-apiserver`, and say that they are
//! skipped elsewhere.
