//! A reverse proxy on loopback between the operator and the infrastructure's API server: watches run
//! through it, and every write passes the judge.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use guestcluster_paper::reply::Reply;
use guestcluster_paper::{Admission, Judge, Outcome};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::watches::Watches;

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;
/// Why the body of an answer breaks off.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The proxy at work, until it is dropped.
pub struct Proxy {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

/// Where requests go, and who looks at them on their way.
#[derive(Clone)]
pub struct Road {
    /// Whose identity counts.
    pub upstream: Client,
    /// Of writes.
    pub judge: Arc<dyn Judge>,
    /// How watches fare.
    pub watches: Arc<Watches>,
}

impl Proxy {
    /// Passes requests on.
    pub async fn open(road: Road) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, road));
        Ok(Self {
            address,
            _tasks: tasks,
        })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn serve(listener: TcpListener, road: Road) {
    let mut connections = JoinSet::new();
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let road = road.clone();
            let service = service_fn(move |request| {
                let road = road.clone();
                async move { road.answer(request).await }
            });
            connections.spawn(async move {
                let http = hyper::server::conn::http1::Builder::new();
                // A client that dies breaks off.
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
        while connections.try_join_next().is_some() {}
    }
}

impl Road {
    async fn answer(self, request: Request<Incoming>) -> anyhow::Result<Answer> {
        let (mut parts, body) = request.into_parts();
        parts.headers.remove(http::header::HOST);
        let (uri, method) = (parts.uri.clone(), parts.method.clone());
        let path = uri.path();
        let body = body.collect().await?.to_bytes();
        let request = Request::from_parts(parts, Body::from(body.to_vec()));
        if Watches::is_one(&uri) {
            return self.watch(path, request).await;
        }
        if matches!(method.as_str(), "GET" | "HEAD") || is_side_talk(path) {
            return Ok(pass(self.upstream.send(request).await?));
        }
        let line = format!("infra: {method} {path}");
        match self.judge.admit(&line) {
            Admission::Pass => self.write(&line, request).await,
            Admission::Refuse(status) => refuse(status),
            Admission::Drop => anyhow::bail!("the operator is dying"),
            Admission::Lose => std::future::pending().await,
            Admission::Delay(wait) => {
                // Not part of this conversation, which ends when the client gives up.
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    // Nobody waits for the answer.
                    let _ = self.write(&line, request).await;
                });
                std::future::pending().await
            }
        }
    }

    async fn watch(&self, path: &str, request: Request<Body>) -> anyhow::Result<Answer> {
        if let Some(end) = self.watches.begin(path) {
            return said(StatusCode::OK, end);
        }
        let (parts, body) = self.upstream.send(request).await?.into_parts();
        let body = self.watches.follow(path.to_owned(), body);
        Ok(Response::from_parts(parts, body))
    }

    async fn write(&self, line: &str, request: Request<Body>) -> anyhow::Result<Answer> {
        let answer = self.upstream.send(request).await?;
        // The whole answer: only then has the write certainly taken effect.
        let (parts, body) = answer.into_parts();
        let body = body.collect().await?.to_bytes();
        let document = serde_json::from_slice(&body).ok();
        let outcome = Outcome::of(parts.status.as_u16(), document.as_ref());
        anyhow::ensure!(self.judge.landed(line, outcome).await, "the answer is lost");
        Ok(pass(Response::from_parts(parts, Body::from(body.to_vec()))))
    }
}

fn pass(answer: Response<Body>) -> Answer {
    answer.map(|body| {
        body.map_err(|error| -> BoxError { Box::new(error) })
            .boxed_unsync()
    })
}

/// Leases and Events change nothing of a guest.
fn is_side_talk(path: &str) -> bool {
    path.contains("/leases") || path.contains("/events")
}

fn refuse(code: u16) -> anyhow::Result<Answer> {
    let reply = Reply::on_purpose(code);
    let body = reply.body().cloned().unwrap_or_default();
    said(StatusCode::from_u16(code)?, Bytes::from(body.to_string()))
}

fn said(status: StatusCode, body: Bytes) -> anyhow::Result<Answer> {
    let body = Full::new(body).map_err(|never| match never {});
    Ok(Response::builder()
        .status(status)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.boxed_unsync())?)
}
