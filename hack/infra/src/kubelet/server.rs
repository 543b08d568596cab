//! What the API server asks of a host's kubelet: the logs of containers.

use std::path::PathBuf;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::log_follow::Following;
use super::log_query::LogQuery;
use super::{is_on, pod_worker};
use crate::addresses::KUBELET_PORT;
use crate::data_centre::DataCentre;
use crate::hosts::Host;
use crate::pki::{Authority, Leaf};

/// The container of a launcher that repeats what the guest's console says.
pub const CONSOLE_CONTAINER: &str = "guest-console-log";

/// A whole log, or one that grows.
type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// How the kubelets serve; all share one certificate with all their addresses.
#[derive(Clone)]
pub struct ServerTls(Arc<ServerConfig>);

impl ServerTls {
    /// Serves with `leaf` and takes clients with a certificate of `authority` only.
    pub fn new(authority: &Authority, leaf: &Leaf) -> anyhow::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(authority.der().to_vec()))?;
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .build()?;
        let certificate = CertificateDer::from_pem_file(&leaf.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&leaf.key)?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate], key)?;
        Ok(Self(Arc::new(config)))
    }
}

/// Serves the kubelet API of `host` until it is dropped; open connections end with it.
pub async fn serve(host: Arc<Host>, centre: Arc<DataCentre>, tls: ServerTls) {
    let listener = match TcpListener::bind((host.address, KUBELET_PORT)).await {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(host = host.name, %error, "the kubelet's port");
            return;
        }
    };
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (host, centre, tls) = (host.clone(), centre.clone(), tls.clone());
                connections.spawn(async move {
                    if let Err(error) = converse(stream, tls, host, centre).await {
                        tracing::debug!("kubelet connection: {error:#}");
                    }
                });
            }
            Err(error) => tracing::warn!(host = host.name, %error, "accept"),
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn converse(
    stream: TcpStream,
    tls: ServerTls,
    host: Arc<Host>,
    centre: Arc<DataCentre>,
) -> anyhow::Result<()> {
    let stream = TlsAcceptor::from(tls.0).accept(stream).await?;
    let service = service_fn(move |request| {
        let (host, centre) = (host.clone(), centre.clone());
        async move { answer(&host, &centre, &request).await }
    });
    hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await?;
    Ok(())
}

async fn answer(
    host: &Host,
    centre: &DataCentre,
    request: &Request<Incoming>,
) -> anyhow::Result<Response<Body>> {
    let path = request.uri().path().trim_start_matches('/');
    let parts: Vec<_> = path.split('/').collect();
    let ["containerLogs", namespace, name, container] = parts[..] else {
        return text(StatusCode::NOT_FOUND, "only containerLogs is served\n");
    };
    let pod = centre.pods.find(namespace, name);
    let Some(pod) = pod.filter(|pod| is_on(pod, &host.name)) else {
        let message = format!("pod \"{namespace}/{name}\" is not on this host\n");
        return text(StatusCode::NOT_FOUND, message);
    };
    let query = LogQuery::parse(request.uri().query().unwrap_or_default());
    let Some(file) = log_file(centre, &pod, container, query.previous) else {
        return text(StatusCode::OK, "");
    };
    // A container that has said nothing yet has no file.
    let log = tokio::fs::read(&file).await.unwrap_or_default();
    if !query.follow {
        return text(StatusCode::OK, query.select(&log));
    }
    let (pods, uid) = (centre.pods.clone(), pod.uid().unwrap_or_default());
    let following = Following {
        file,
        first: query.select(&log),
        offset: log.len() as u64,
        goes_on: move || pods.get(&uid).is_some_and(|pod| runs(&pod)),
    };
    let body = StreamBody::new(following.stream()).boxed_unsync();
    Ok(Response::new(body))
}

fn runs(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// The file with the log of a container; none when it says nothing.
fn log_file(centre: &DataCentre, pod: &Pod, container: &str, previous: bool) -> Option<PathBuf> {
    let Some(instance) = pod.labels().get("kubevirt.io/created-by") else {
        let folder = centre.run.pod(&pod.uid().unwrap_or_default());
        return Some(pod_worker::log_file(&folder, container, previous));
    };
    let name = pod.annotations().get("kubevirt.io/domain")?;
    let namespace = pod.namespace().unwrap_or_default();
    let folder = centre.run.machine(&namespace, name, instance);
    (container == CONSOLE_CONTAINER).then(|| folder.join("console.log"))
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> anyhow::Result<Response<Body>> {
    let response = Response::builder()
        .status(status)
        .header("content-type", "text/plain");
    let body = Full::new(body.into()).map_err(|never| match never {});
    Ok(response.body(body.boxed_unsync())?)
}
