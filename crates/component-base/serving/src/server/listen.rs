//! Listening socket.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};

use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpSocket};

use crate::ServingOptions;

/// Backlog of connections that have not been accepted.
const BACKLOG: u32 = 1024;

/// Listens on `address`. An unspecified address, `0.0.0.0` as well as `::`, is served for IPv4 and IPv6, and for IPv4 alone
/// if the host has no IPv6.
///
/// # Errors
///
/// If the address is in use or not local.
///
/// Upstream counterpart: `net.Listen` with `tcp`, and its `favoriteAddrFamily`.
pub(super) fn listen(address: SocketAddr, options: &ServingOptions) -> io::Result<TcpListener> {
    listen_with(address, options, dual_stack)
}

fn listen_with(
    address: SocketAddr,
    options: &ServingOptions,
    dual_stack: impl FnOnce() -> io::Result<TcpSocket>,
) -> io::Result<TcpListener> {
    let port = address.port();
    if !address.ip().is_unspecified() {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        bind(&socket, address, options)?;
        return socket.listen(BACKLOG);
    }
    let both = dual_stack().and_then(|socket| {
        bind(&socket, SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), options)?;
        Ok(socket)
    });
    match both {
        Ok(socket) => socket.listen(BACKLOG),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        Err(error) => {
            tracing::info!(err = %error, "IPv6 is not available, serving IPv4 only");
            let socket = TcpSocket::new_v4()?;
            bind(&socket, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)), options)?;
            socket.listen(BACKLOG)
        }
    }
}

fn bind(socket: &TcpSocket, address: SocketAddr, options: &ServingOptions) -> io::Result<()> {
    // As Go, regardless of `--permit-address-sharing`. Otherwise the port of a stopped process is unavailable for a minute.
    socket.set_reuseaddr(true)?;
    if options.permit_port_sharing {
        socket.set_reuseport(true)?;
    }
    socket.bind(address)
}

/// Socket for IPv6 and IPv4, regardless of the host's `bindv6only`.
fn dual_stack() -> io::Result<TcpSocket> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None)?;
    socket.set_only_v6(false)?;
    socket.set_nonblocking(true)?;
    Ok(TcpSocket::from_std_stream(socket.into()))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use tokio::net::TcpStream;

    use super::*;

    const LOCAL: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    const UNSPECIFIED: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];

    /// Local addresses, of those in [`LOCAL`], at which `listener` accepts connections.
    async fn served(listener: &TcpListener) -> Vec<IpAddr> {
        let port = listener.local_addr().unwrap().port();
        let mut served = Vec::new();
        for address in LOCAL {
            if TcpStream::connect((address, port)).await.is_ok() {
                served.push(address);
            }
        }
        served
    }

    #[tokio::test]
    async fn host_without_ipv6_is_served_over_ipv4() {
        for address in UNSPECIFIED {
            let no_ipv6 = || Err(io::Error::from_raw_os_error(97));
            let listener = listen_with((address, 0).into(), &ServingOptions::default(), no_ipv6).unwrap();
            assert_eq!(served(&listener).await, LOCAL[..1], "{address}");
            assert!(listener.local_addr().unwrap().is_ipv4());
        }
    }

    /// Some sandboxes create IPv6 sockets, which cannot be bound.
    #[tokio::test]
    async fn host_whose_ipv6_sockets_cannot_be_bound_is_served_over_ipv4() {
        let unusable = TcpSocket::new_v4;
        let address = (Ipv6Addr::UNSPECIFIED, 0).into();
        let listener = listen_with(address, &ServingOptions::default(), unusable).unwrap();
        assert_eq!(served(&listener).await, LOCAL[..1]);
    }

    #[tokio::test]
    async fn port_in_use_is_an_error() {
        let first = listen((Ipv6Addr::UNSPECIFIED, 0).into(), &ServingOptions::default()).unwrap();
        let port = first.local_addr().unwrap().port();
        let error = listen((Ipv6Addr::UNSPECIFIED, port).into(), &ServingOptions::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn specified_addresses_are_served_alone() {
        for address in LOCAL {
            let listener = listen((address, 0).into(), &ServingOptions::default()).unwrap();
            assert_eq!(served(&listener).await, [address]);
        }
    }
}
