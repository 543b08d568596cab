//! Answers connections to paper machines.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::host::Shared;
use crate::judge::{Admission, Outcome};
use crate::reply::Reply;
use crate::request::Request;
use crate::world::{API, ETCD};

/// The connection ends instead of an answer.
#[derive(Debug)]
struct Ends;

impl std::fmt::Display for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection ends")
    }
}

impl std::error::Error for Ends {}

/// Takes connections until it is dropped.
pub async fn serve(listener: std::net::TcpListener, port: u16, shared: Arc<Shared>) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    let mut connections = JoinSet::new();
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let shared = shared.clone();
            connections.spawn(async move {
                // Who breaks off, or is refused, is no failure of ours.
                let _ = converse(stream, port, shared).await;
            });
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn converse(stream: TcpStream, port: u16, shared: Arc<Shared>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let SocketAddr::V4(local) = stream.local_addr()? else {
        return Ok(());
    };
    let address = *local.ip();
    let config = shared.serving(address).context("nobody is there")?;
    let config = if port == API { config.api } else { config.etcd };
    let stream = TlsAcceptor::from(config).accept(stream).await?;
    let known = stream.get_ref().1.peer_certificates().is_some();
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { answer((address, port), (request, known), shared).await }
    });
    hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await?;
    Ok(())
}

async fn answer(
    at: (Ipv4Addr, u16),
    (request, known): (http::Request<Incoming>, bool),
    shared: Arc<Shared>,
) -> Result<http::Response<Full<Bytes>>, Ends> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Ends)?.to_bytes();
    let header = |name| {
        let value = parts.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let request = Request {
        accept: header(http::header::ACCEPT),
        content_type: header(http::header::CONTENT_TYPE),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        ..Request::new(parts.method.as_str(), &parts.uri.to_string())
    };
    if !changes(at.1, &request) {
        return say(carry_out(at, (&request, known), &shared)).await;
    }
    let line = format!("guest: {} {}", request.method, request.path);
    let reply = match shared.judge.admit(&line) {
        Admission::Pass => change(at, (&request, known), (&shared, &line)).await,
        Admission::Refuse(status) if at.1 == ETCD => {
            let body = json!({ "code": 2, "message": "refused on purpose" });
            Reply::Json(status, body)
        }
        Admission::Refuse(status) => Reply::on_purpose(status),
        Admission::Drop => Reply::Closed,
        Admission::Lose => std::future::pending().await,
        Admission::Delay(wait) => {
            // Not part of this conversation, which ends when the client gives up.
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                change(at, (&request, known), (&shared, &line)).await
            });
            std::future::pending().await
        }
    };
    say(reply).await
}

fn carry_out(at: (Ipv4Addr, u16), asked: (&Request, bool), shared: &Shared) -> Reply {
    shared.world().answer(at, asked, Instant::now())
}

/// Carries out what was admitted and lets it be judged.
async fn change(
    at: (Ipv4Addr, u16),
    asked: (&Request, bool),
    (shared, line): (&Shared, &str),
) -> Reply {
    let reply = carry_out(at, asked, shared);
    let sent = match reply.status() {
        Some(status) => {
            let outcome = Outcome::of(status, reply.body());
            shared.judge.landed(line, outcome).await
        }
        None => true,
    };
    if sent { reply } else { Reply::Closed }
}

/// Questions to etcd are POSTs as well.
fn changes(port: u16, request: &Request) -> bool {
    let asks = request.path.ends_with("/list") || request.path.ends_with("/status");
    request.writes() && !(port == ETCD && asks)
}

async fn say(reply: Reply) -> Result<http::Response<Full<Bytes>>, Ends> {
    let (status, kind, body) = match reply {
        Reply::Json(status, body) => (status, "application/json", body.to_string()),
        Reply::Text(status, text) => (status, "text/plain", text),
        Reply::Late(wait, reply) => {
            tokio::time::sleep(wait).await;
            return Box::pin(say(*reply)).await;
        }
        Reply::Closed => return Err(Ends),
    };
    http::Response::builder()
        .status(status)
        .header(http::header::CONTENT_TYPE, kind)
        .body(Full::new(Bytes::from(body)))
        .map_err(|_| Ends)
}
