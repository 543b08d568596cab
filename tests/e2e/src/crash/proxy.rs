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

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The proxy at work, until it is dropped.
pub struct Proxy {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Passes requests on with `upstream`, whose identity counts.
    pub async fn open(upstream: Client, judge: Arc<dyn Judge>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, upstream, judge));
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

async fn serve(listener: TcpListener, upstream: Client, judge: Arc<dyn Judge>) {
    let mut connections = JoinSet::new();
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let (upstream, judge) = (upstream.clone(), judge.clone());
            let service = service_fn(move |request| {
                let (upstream, judge) = (upstream.clone(), judge.clone());
                answer(request, upstream, judge)
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

async fn answer(
    request: Request<Incoming>,
    upstream: Client,
    judge: Arc<dyn Judge>,
) -> anyhow::Result<Answer> {
    let (mut parts, body) = request.into_parts();
    parts.headers.remove(http::header::HOST);
    let path = parts.uri.path();
    let line = format!("infra: {} {path}", parts.method);
    let counts = !matches!(parts.method.as_str(), "GET" | "HEAD") && !is_side_talk(path);
    let body = body.collect().await?.to_bytes();
    let request = Request::from_parts(parts, Body::from(body.to_vec()));
    if !counts {
        return Ok(pass(upstream.send(request).await?));
    }
    match judge.admit(&line) {
        Admission::Pass => {
            let answer = upstream.send(request).await?;
            // The whole answer: only then has the write certainly taken effect.
            let (parts, body) = answer.into_parts();
            let body = body.collect().await?.to_bytes();
            let document = serde_json::from_slice(&body).ok();
            let outcome = Outcome::of(parts.status.as_u16(), document.as_ref());
            anyhow::ensure!(judge.landed(&line, outcome).await, "the answer is lost");
            let answer = Response::from_parts(parts, Body::from(body.to_vec()));
            Ok(pass(answer))
        }
        Admission::Refuse(status) => refuse(status),
        Admission::Drop => anyhow::bail!("the operator is dying"),
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
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {});
    Ok(Response::builder()
        .status(StatusCode::from_u16(code)?)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.boxed_unsync())?)
}
