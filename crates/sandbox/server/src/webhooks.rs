//! Client of webhooks over HTTPS.
//!
//! Errors have the words of Go's HTTP client, because users search for them.

use std::{io, sync::Arc};

use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kcm_apiserver::{BoxFuture, WebhookClient, WebhookError, WebhookRequest, WebhookResponse};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
};
use tokio::{net::TcpStream, task::JoinSet};
use tokio_rustls::TlsConnector;

/// Client of webhooks, with a connection for each call.
///
/// DEVIATION: without a CA bundle no certificate is valid. Upstream uses the CA certificates of the host then.
#[derive(Debug, Clone, Copy, Default)]
pub struct HttpsWebhooks;

impl WebhookClient for HttpsWebhooks {
    fn post(&self, request: WebhookRequest) -> BoxFuture<Result<WebhookResponse, WebhookError>> {
        Box::pin(post(request))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "argument of `map_err`")]
fn failed(text: impl ToString) -> WebhookError {
    WebhookError(text.to_string())
}

async fn post(request: WebhookRequest) -> Result<WebhookResponse, WebhookError> {
    let uri: Uri = request.url.parse().map_err(failed)?;
    let authority = uri.authority().ok_or_else(|| failed("http: no Host in request URL"))?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).map_err(failed)?;
    let stream = dial(host, authority.port_u16().unwrap_or(443)).await?;
    let tls = TlsConnector::from(Arc::new(client_config(&request.ca_bundle).map_err(failed)?));
    let stream = tls.connect(name, stream).await.map_err(|error| failed(tls_failure(&error, host)))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // Ends with this future.
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let message = Request::post(path)
        .header(header::HOST, authority.as_str())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, */*")
        .header(header::USER_AGENT, "kube-apiserver-admission")
        .body(Full::new(request.body))
        .map_err(failed)?;
    let (parts, body) = sender.send_request(message).await.map_err(failed)?.into_parts();
    let body = Limited::new(body, request.max_response).collect().await.map_err(failed)?.to_bytes();
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    Ok(WebhookResponse {
        code: parts.status.as_u16(),
        content_type: content_type.unwrap_or_default().to_owned(),
        body,
    })
}

async fn dial(host: &str, port: u16) -> Result<TcpStream, WebhookError> {
    let addresses: Vec<_> = match tokio::net::lookup_host((host, port)).await {
        Ok(addresses) => addresses.collect(),
        Err(_) => return Err(failed(format!("dial tcp: lookup {host}: no such host"))),
    };
    let mut error = failed(format!("dial tcp: lookup {host}: no such host"));
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
                error = failed(format!("dial tcp {address}: connect: connection refused"));
            }
            Err(other) => error = failed(format!("dial tcp {address}: {other}")),
        }
    }
    Err(error)
}

/// Text of a failed handshake.
fn tls_failure(error: &io::Error, host: &str) -> String {
    let inner = error.get_ref().and_then(|error| error.downcast_ref::<TlsError>());
    let Some(TlsError::InvalidCertificate(reason)) = inner else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
            _ => error.to_string(),
        };
    };
    let reason = match reason {
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".to_owned(),
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => {
            "certificate has expired or is not yet valid".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("certificate is not valid for {host}")
        }
        other => other.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {reason}")
}

fn client_config(ca_bundle: &Bytes) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(ca_bundle).filter_map(Result::ok).collect();
    let verifier = Arc::new(Verifier::new(certificates, &provider));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Verifies the certificate of a webhook with its CA bundle, which may contain the certificate itself, as in Go: envtest's
/// bundle is the certificate of the server, and self-signed certificates are often CA certificates.
///
/// DEVIATION: a certificate in the bundle does not expire.
#[derive(Debug)]
struct Verifier {
    bundle: Vec<CertificateDer<'static>>,
    /// `None` if the bundle contains no certificate.
    webpki: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(bundle: Vec<CertificateDer<'static>>, provider: &Arc<CryptoProvider>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(bundle.iter().cloned());
        let webpki =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
        Self { bundle, webpki: webpki.ok(), provider: Arc::clone(provider) }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        if self.bundle.iter().any(|known| known == certificate) {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        let webpki = self.webpki.as_ref().ok_or(CertificateError::UnknownIssuer)?;
        webpki.verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
