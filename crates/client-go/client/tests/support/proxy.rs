//! Proxies on loopback.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use kcm_testkit::CertificateAuthority;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

use super::socket::{SocketServer, server_config};

/// Protocol and behaviour of a [`TestProxy`].
#[derive(Clone)]
pub enum Mode {
    Http,
    Https(TlsAcceptor),
    Socks5,
    /// Answers `CONNECT` with 407, after which the connection is closed.
    Refuse,
    /// Accepts connections and never answers.
    Silent,
}

impl Mode {
    pub fn https(authority: &CertificateAuthority) -> Self {
        Self::Https(TlsAcceptor::from(Arc::new(server_config(authority))))
    }

    fn scheme(&self) -> &'static str {
        match self {
            Self::Http | Self::Refuse | Self::Silent => "http",
            Self::Https(_) => "https",
            Self::Socks5 => "socks5",
        }
    }
}

/// Connection that a client requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    pub target: String,
    /// User name and password of SOCKS5, or the header `Proxy-Authorization`.
    pub credentials: Option<String>,
}

/// Connects all clients to one server, whatever target they request.
pub struct TestProxy {
    pub address: SocketAddr,
    scheme: &'static str,
    connects: Arc<Mutex<Vec<Connect>>>,
}

impl TestProxy {
    pub async fn to(server: &SocketServer, mode: Mode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connects = Arc::<Mutex<Vec<_>>>::default();
        let (log, scheme, server) = (Arc::clone(&connects), mode.scheme(), server.address);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, mode) = (Arc::clone(&log), mode.clone());
                tokio::spawn(async move {
                    match mode {
                        Mode::Http => tunnel(stream, server, &log, true).await,
                        Mode::Refuse => tunnel(stream, server, &log, false).await,
                        Mode::Https(acceptor) => {
                            tunnel(acceptor.accept(stream).await.unwrap(), server, &log, true).await;
                        }
                        Mode::Socks5 => socks5(stream, server, &log).await,
                        Mode::Silent => {
                            let mut stream = stream;
                            log.lock().unwrap().push(Connect { target: String::new(), credentials: None });
                            drop(stream.read_to_end(&mut Vec::new()).await);
                        }
                    }
                });
            }
        });
        Self { address, scheme, connects }
    }

    /// URL with user name and password, if any, such as `user:password@`.
    pub fn url(&self, credentials: &str) -> String {
        format!("{}://{credentials}{}", self.scheme, self.address)
    }

    pub fn connects(&self) -> Vec<Connect> {
        self.connects.lock().unwrap().clone()
    }
}

async fn tunnel(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    server: SocketAddr,
    log: &Mutex<Vec<Connect>>,
    is_accepted: bool,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let target = lines.next().unwrap().strip_prefix("CONNECT ").unwrap().strip_suffix(" HTTP/1.1").unwrap();
    let credentials = lines.find_map(|line| line.strip_prefix("Proxy-Authorization: ")).map(str::to_owned);
    log.lock().unwrap().push(Connect { target: target.to_owned(), credentials });
    if !is_accepted {
        stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await.unwrap();
        return;
    }
    let mut far = TcpStream::connect(server).await.unwrap();
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
    // An error means that one side is gone.
    drop(tokio::io::copy_bidirectional(&mut stream, &mut far).await);
}

async fn socks5(mut stream: TcpStream, server: SocketAddr, log: &Mutex<Vec<Connect>>) {
    assert_eq!(stream.read_u8().await.unwrap(), 5);
    let methods = bytes(&mut stream).await;
    let mut credentials = None;
    if methods.contains(&2) {
        stream.write_all(&[5, 2]).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 1);
        let (user, password) = (text(&mut stream).await, text(&mut stream).await);
        credentials = Some(format!("{user}:{password}"));
        stream.write_all(&[1, 0]).await.unwrap();
    } else {
        stream.write_all(&[5, 0]).await.unwrap();
    }
    let mut request = [0; 4];
    stream.read_exact(&mut request).await.unwrap();
    // CONNECT to a name.
    assert_eq!(request, [5, 1, 0, 3]);
    let host = text(&mut stream).await;
    let port = stream.read_u16().await.unwrap();
    log.lock().unwrap().push(Connect { target: format!("{host}:{port}"), credentials });
    let mut far = TcpStream::connect(server).await.unwrap();
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    drop(tokio::io::copy_bidirectional(&mut stream, &mut far).await);
}

/// A field that begins with its length in one byte.
async fn bytes(stream: &mut TcpStream) -> Vec<u8> {
    let mut field = vec![0; usize::from(stream.read_u8().await.unwrap())];
    stream.read_exact(&mut field).await.unwrap();
    field
}

async fn text(stream: &mut TcpStream) -> String {
    String::from_utf8(bytes(stream).await).unwrap()
}
