//! The HTTP server for probes and scrapes: `/healthz`, `/readyz`, `/metrics`.

use std::convert::Infallible;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tracing::debug;

use crate::clock::monotonic;
use crate::health::{Health, Report};
use crate::metrics::Metrics;
use crate::shutdown::Shutdown;

/// How long a client may take to send its request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How many connections are served at a time; probes and a few scrapers need no more.
const CONNECTIONS: usize = 64;
/// How long answers in progress may take after shutdown was requested.
const DRAIN: Duration = Duration::from_secs(2);

const TEXT: &str = "text/plain; charset=utf-8";

/// What the server shows.
#[derive(Clone, Debug)]
pub struct Server {
    /// Behind `/healthz` and `/readyz`.
    pub health: Health,
    /// Behind `/metrics`.
    pub metrics: Metrics,
}

impl Server {
    /// Serves until shutdown is requested, then finishes the answers in progress.
    ///
    /// # Errors
    /// If the listener breaks.
    pub async fn serve(self, listener: TcpListener, shutdown: &Shutdown) -> std::io::Result<()> {
        let mut connections = JoinSet::new();
        let requested = shutdown.requested();
        let mut requested = std::pin::pin!(requested);
        loop {
            tokio::select! {
                _ = &mut requested => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept(), if connections.len() < CONNECTIONS => {
                    let (stream, _peer) = accepted?;
                    connections.spawn(self.clone().connection(stream, shutdown.clone()));
                }
            }
        }
        let finish = async { while connections.join_next().await.is_some() {} };
        // Whoever is still reading after this is a client that does not end.
        let _ = tokio::time::timeout(DRAIN, finish).await;
        Ok(())
    }

    async fn connection(self, stream: TcpStream, shutdown: Shutdown) {
        let service = service_fn(|request| {
            let response = self.answer(&request);
            async { Ok::<_, Infallible>(response) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let result = tokio::select! {
            result = connection.as_mut() => result,
            _ = shutdown.requested() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = result {
            debug!(%error, "connection to the probe server broke");
        }
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
        }
        match request.uri().path() {
            "/healthz" => report(&self.health.live(monotonic())),
            "/readyz" => report(&self.health.ready()),
            "/metrics" => match self.metrics.encode() {
                Ok(body) => respond(StatusCode::OK, Metrics::CONTENT_TYPE, body),
                Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
            },
            _ => text(StatusCode::NOT_FOUND, "no such page\n".to_owned()),
        }
    }
}

fn report(report: &Report) -> Response<Full<Bytes>> {
    if report.is_ok() {
        text(StatusCode::OK, "ok\n".to_owned())
    } else {
        text(
            StatusCode::SERVICE_UNAVAILABLE,
            report.failures.join("\n") + "\n",
        )
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    respond(status, TEXT, body)
}

fn respond(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::shutdown::{Cause, channel};

    /// Asks on a connection of its own; answers the status line and the body.
    async fn get(address: std::net::SocketAddr, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    #[tokio::test]
    async fn probes_and_scrapes_are_answered_until_shutdown() {
        let (health, metrics) = (Health::new(), Metrics::new("x"));
        health.check("stores", || Err("not yet".to_owned()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, shutdown) = channel();
        let server = Server { health, metrics };
        let serve = tokio::spawn(async move { server.serve(listener, &shutdown).await });

        let ok = "HTTP/1.1 200 OK".to_owned();
        assert_eq!(
            get(address, "GET /healthz").await,
            (ok.clone(), "ok\n".to_owned())
        );
        let (status, body) = get(address, "GET /readyz").await;
        assert!(status.contains("503"), "{status}");
        assert_eq!(body, "stores: not yet\n");
        let (status, body) = get(address, "GET /metrics").await;
        assert_eq!(status, ok);
        assert!(body.ends_with("# EOF\n"), "{body}");
        assert!(get(address, "GET /else").await.0.contains("404"));
        assert!(get(address, "POST /healthz").await.0.contains("405"));

        // A client that holds its connection open does not hold up the end.
        let _idle = TcpStream::connect(address).await.unwrap();
        stop.request(Cause::Signal);
        serve.await.unwrap().unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }
}
