//! Chains of client certificates.

use std::{fs, time::Duration};

use kcm_testkit::{CertificateAuthority as Authority, Identity};
use rcgen::{CertificateParams, CertifiedIssuer, DistinguishedName, DnType, KeyPair, PKCS_ED25519};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use super::world::{Client, Setup, World};

/// Chain of small certificates, all with the same key. The issuer of each is the name of the next layer, so that each
/// certificate of a layer is a candidate for all of the layer before.
fn layered(layers: &[usize]) -> Identity {
    let key = || KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let params = |layer: usize| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, layer.to_string());
        params
    };
    let (own, mut pem) = (key(), String::new());
    for (layer, &count) in layers.iter().enumerate() {
        let issuer = CertifiedIssuer::self_signed(params(layer + 1), key()).unwrap();
        let certificate = params(layer).signed_by(&own, &issuer).unwrap().pem();
        pem += &certificate.repeat(count);
    }
    Identity { certificate: pem, key: own.serialize_pem(), der: Vec::new() }
}

/// A server with a CA bundle for clients and one for proxies.
async fn world(directory: &tempfile::TempDir, authority: &Authority) -> World {
    let path = directory.path().join("ca.crt");
    fs::write(&path, authority.pem()).unwrap();
    let mut setup = Setup::new();
    setup.authentication.client_ca_file = Some(path.clone());
    setup.authentication.request_header.client_ca_file = Some(path);
    setup.start().await
}

/// Status of the response to a request, or an error if the server closes the connection.
async fn exchange(stream: &mut TlsStream<TcpStream>, path: &str) -> std::io::Result<u16> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut response = vec![0; 4096];
    let length = stream.read(&mut response).await?;
    let response = String::from_utf8_lossy(&response[..length]).into_owned();
    let status = response.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    status.ok_or_else(|| std::io::Error::other(response))
}

#[tokio::test]
async fn large_chain_is_rejected_during_the_handshake() {
    let directory = tempfile::tempdir().unwrap();
    let world = world(&directory, &Authority::new("ca")).await;
    let cases = [
        ("280 certificates, 63 KB", layered(&[1, 46, 46, 46, 46, 46, 49]), false),
        ("9 certificates", layered(&[1; 9]), false),
        ("8 certificates", layered(&[1; 8]), true),
    ];
    for (name, chain, is_accepted) in cases {
        for is_old in [false, true] {
            let client = Client { is_http1: true, is_old, ..Client::with_certificate(chain.clone()) };
            let answer = async {
                let mut stream = client.connect(world.address, "localhost").await?;
                exchange(&mut stream, "/healthz").await
            };
            // The chain is not trusted, which is found after the handshake.
            assert_eq!(answer.await.ok(), is_accepted.then_some(401), "{name}");
            assert_eq!(Client::default().get(&world, "/healthz").await.status, 200);
        }
    }
}

#[tokio::test]
async fn expiry_and_a_new_bundle_apply_to_open_connections() {
    let (directory, authority) = (tempfile::tempdir().unwrap(), Authority::new("ca"));
    let world = world(&directory, &authority).await;
    let client =
        Client { is_http1: true, ..Client::with_certificate(authority.client("boss", "system:masters")) };
    let mut stream = client.connect(world.address, "localhost").await.unwrap();
    for (time, expected) in [
        ("2026-11-21T08:00:00Z", 404),
        ("2026-11-21T08:00:01Z", 404),
        ("4096-01-01T00:00:00Z", 404),
        ("4096-01-01T00:00:01Z", 401),
        ("2026-11-21T08:00:00Z", 404),
    ] {
        world.clock.set_wall(time.parse().unwrap());
        assert_eq!(exchange(&mut stream, "/nowhere").await.unwrap(), expected, "{time}");
    }
    let path = directory.path().join("ca.crt");
    for (bundle, expected) in [(Authority::new("ca").pem(), 401), (authority.pem(), 404)] {
        fs::write(&path, bundle).unwrap();
        world.clock.step(Duration::from_secs(1));
        assert_eq!(exchange(&mut stream, "/nowhere").await.unwrap(), expected);
    }
}
