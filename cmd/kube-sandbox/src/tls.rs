//! TLS with a certificate that is made at the start and trusted by the kubeconfig that is written.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use kcm_clock::Timestamp;
use kcm_serving::{SelfSigned, ServingError};
use rustls::ServerConfig;

/// What a server at `address` needs for TLS, and the certificate, PEM, that its clients must trust. The
/// certificate is for that address and for those of the loopback interface, for a year from `now`.
///
/// # Errors
///
/// When no certificate can be made.
pub(crate) fn for_address(
    address: IpAddr,
    now: Timestamp,
) -> Result<(Arc<ServerConfig>, String), ServingError> {
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    if !addresses.contains(&address) {
        addresses.push(address);
    }
    let made = SelfSigned::new("kube-sandbox", &["localhost"], &addresses, now)?;
    Ok((Arc::new(made.server_config()?), made.authority_pem))
}
