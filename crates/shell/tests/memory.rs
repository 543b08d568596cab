//! How many bytes a store keeps for one object, and how many more a list takes while it is read.
//!
//! An operator's memory is its stores. The objects are metadata of Secrets as an API server sends
//! them: labels, an owner, and the `managedFields` that make up half of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;

use futures::stream;
use guestcluster_shell::store::Watch;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Bytes, Frame};
use k8s_openapi::api::core::v1::Secret;
use kube::client::Body;
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use serde_json::{Value, json};

#[global_allocator]
static HEAP: dhat::Alloc = dhat::Alloc;

const OBJECTS: usize = 600;
const PAGE: usize = 100;
/// The most that one stored object may cost. It was 1,604 when this was written.
const KEPT: usize = 1_800;
/// The most that a list may take for a moment, whatever its length: one page and its decoding.
/// It was 207 KB.
const PASSING: usize = 400 * 1024;

fn secret(number: usize) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {
            "name": format!("guest-{number}-kubeconfig"), "namespace": "guests",
            "uid": format!("6b6b6a39-0000-4000-8000-{number:012}"),
            "resourceVersion": (1_000 + number).to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "example.dev/cluster": format!("guest-{}", number / 6),
                "example.dev/role": "control-plane", "example.dev/tenant": "tenant",
            },
            "ownerReferences": [{
                "apiVersion": "example.dev/v1", "kind": "Guest", "controller": true,
                "name": format!("guest-{}", number / 6),
                "uid": "6b6b6a39-0000-4000-9000-000000000000",
            }],
            "managedFields": (0..3).map(|manager| json!({
                "manager": format!("manager-{manager}"), "operation": "Apply",
                "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {"f:value": {}, "f:other": {}}, "f:metadata": {
                    "f:labels": {"f:example.dev/cluster": {}, "f:example.dev/role": {}},
                }},
            })).collect::<Vec<_>>(),
        },
    })
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// The pages of the list, made before anything is counted.
fn pages() -> Vec<Bytes> {
    let page = |first: usize| {
        let next = (first + PAGE).min(OBJECTS);
        let list = json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": {
                "resourceVersion": "9000",
                "continue": if next < OBJECTS { next.to_string() } else { String::new() },
            },
            "items": (first..next).map(secret).collect::<Vec<_>>(),
        });
        Bytes::from(list.to_string())
    };
    (0..OBJECTS).step_by(PAGE).map(page).collect()
}

/// An API server that has the objects: lists come in pages, watches bring nothing.
fn answer(pages: &[Bytes], request: &Request<Body>) -> Answer {
    if query(request.uri(), "watch").is_some() {
        let silence = stream::pending::<Result<Frame<Bytes>, Infallible>>();
        return Response::new(BodyExt::boxed(StreamBody::new(silence)));
    }
    assert_eq!(
        query(request.uri(), "limit"),
        Some("100"),
        "lists come in pages of 100"
    );
    let first: usize = query(request.uri(), "continue").map_or(0, |token| token.parse().unwrap());
    Response::new(Full::new(pages[first / PAGE].clone()).boxed())
}

fn query<'a>(uri: &'a Uri, key: &str) -> Option<&'a str> {
    let pairs = uri
        .query()?
        .split('&')
        .filter_map(|pair| pair.split_once('='));
    pairs
        .into_iter()
        .find(|(name, _)| *name == key)
        .map(|(_, value)| value)
}

#[tokio::test]
async fn a_stored_object_costs_little_and_a_list_no_more_than_a_page() {
    let pages = pages();
    let server = tower::service_fn(move |request| {
        std::future::ready(Ok::<_, Infallible>(answer(&pages, &request)))
    });
    let client = Client::new(server, "guests");
    let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client, "guests");
    let (store, feed) = Watch::new(secrets)
        .indexed_by("example.dev/cluster")
        .split();
    let profiler = dhat::Profiler::builder().testing().build();
    let task = tokio::spawn(feed.run(|_| {}));
    assert!(store.wait_until_ready().await);
    let heap = dhat::HeapStats::get();
    drop(profiler);
    task.abort();

    assert_eq!(store.len(), OBJECTS);
    assert_eq!(store.labelled("guest-7").len(), 6);
    let kept = heap.curr_bytes / OBJECTS;
    let passing = heap.max_bytes - heap.curr_bytes;
    eprintln!("{kept} bytes for each object, {passing} more while the list was read");
    assert!(kept <= KEPT, "{kept} bytes for each object");
    assert!(
        passing <= PASSING,
        "{passing} bytes while the list was read"
    );
}
