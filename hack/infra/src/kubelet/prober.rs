//! Asks a container's probes over the network, as a kubelet does, and reports the verdicts.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::Context;
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::probe::{ProbePlan, Question, Tally};

/// Which probe of a container a verdict is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeKind {
    /// Has it started? The others wait for it.
    Startup,
    /// May it get traffic?
    Readiness,
    /// Must it be started again?
    Liveness,
}

/// A verdict that turned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Position of the container in the Pod.
    pub container: usize,
    /// Which of its probes.
    pub kind: ProbeKind,
    /// What it says now.
    pub passing: bool,
}

/// Asks one probe until the receiver of its verdicts is gone.
pub async fn watch(
    plan: ProbePlan,
    address: Ipv4Addr,
    (container, kind): (usize, ProbeKind),
    verdicts: mpsc::UnboundedSender<Verdict>,
) {
    // A container is alive until shown otherwise, and not ready before it is shown to be.
    let mut tally = Tally::new(&plan, kind == ProbeKind::Liveness);
    let mut failures = 0_u32;
    tokio::time::sleep(plan.initial_delay).await;
    let mut ticks = tokio::time::interval(plan.period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answer = tokio::time::timeout(plan.timeout, ask(&plan.question, address)).await;
        let good = match answer {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::trace!(%address, ?kind, %error, "probe failed");
                false
            }
            Err(_) => false,
        };
        failures = if good { 0 } else { failures + 1 };
        // A startup probe that never passes is a verdict too: the container is started again.
        let never_started = kind == ProbeKind::Startup && failures == plan.failures;
        let turned = tally.count(good).or(never_started.then_some(false));
        if let Some(passing) = turned
            && verdicts
                .send(Verdict {
                    container,
                    kind,
                    passing,
                })
                .is_err()
        {
            return;
        }
        if kind == ProbeKind::Startup && turned.is_some() {
            return;
        }
    }
}

async fn ask(question: &Question, address: Ipv4Addr) -> anyhow::Result<()> {
    match question {
        Question::Unsupported(why) => anyhow::bail!("{why}"),
        Question::Tcp { host, port } => connect(host.as_deref(), address, *port).await.map(drop),
        Question::Http {
            tls,
            host,
            port,
            path,
            headers,
        } => {
            let stream = connect(host.as_deref(), address, *port).await?;
            let mut request = http::Request::get(path.as_str());
            let fields = request
                .headers_mut()
                .context("the probe's path is not a path")?;
            let authority = format!("{}:{port}", host.clone().unwrap_or(address.to_string()));
            fields.insert(http::header::HOST, authority.parse()?);
            fields.insert(http::header::USER_AGENT, "kube-probe/1.36".parse()?);
            for (name, value) in headers {
                fields.insert(name.parse::<http::HeaderName>()?, value.parse()?);
            }
            let request = request.body(Empty::<Bytes>::new())?;
            if *tls {
                let name = ServerName::from(std::net::IpAddr::from(address));
                let stream = connector()?.connect(name, stream).await?;
                get(stream, request).await
            } else {
                get(stream, request).await
            }
        }
    }
}

async fn connect(host: Option<&str>, address: Ipv4Addr, port: u16) -> anyhow::Result<TcpStream> {
    match host {
        Some(host) => Ok(TcpStream::connect((host, port)).await?),
        None => Ok(TcpStream::connect((address, port)).await?),
    }
}

async fn get<S>(stream: S, request: http::Request<Empty<Bytes>>) -> anyhow::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Dropped with this function, which ends the connection.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let status = sender.send_request(request).await?.status().as_u16();
    anyhow::ensure!((200..400).contains(&status), "answered {status}");
    Ok(())
}

fn connector() -> anyhow::Result<TlsConnector> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A kubelet's probe asks whether a server answers, not who it is.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
