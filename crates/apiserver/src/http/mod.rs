//! Requests.
use crate::ApiServer;
use std::sync::Arc;
pub(crate) mod documents {
    #[derive(Debug)]
    pub(crate) struct Documents;
    impl Documents {
        pub(crate) fn new(_v: &str) -> Self {
            Self
        }
    }
}
/// Told about every request.
pub type AuditSink = Arc<dyn Fn(&AuditEvent) + Send + Sync>;
/// A request.
#[derive(Debug, Clone)]
pub struct AuditEvent {}
/// The service.
#[derive(Debug, Clone)]
pub struct ApiService {
    _server: Arc<ApiServer>,
}
impl ApiService {
    pub(crate) fn new(server: Arc<ApiServer>) -> Self {
        Self { _server: server }
    }
}
/// Serves.
pub async fn serve() {}
