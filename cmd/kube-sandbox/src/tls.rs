//! TLS with a certificate created at startup. The written kubeconfig trusts it.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use kcm_clock::Timestamp;
use kcm_serving::{SelfSigned, ServingError};
use rustls::ServerConfig;

/// Returns a TLS configuration for `address` and the PEM-encoded CA certificate. The serving certificate is valid for
/// `address` and the loopback addresses, for one year from `now`.
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
