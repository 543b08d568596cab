//! Execution against an API server of a few lines, which answers as it is told to and keeps what
//! it was asked.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use guestcluster_api::status::GuestClusterStatus;
use guestcluster_planner::action::{Kind, Object, Victim};
use guestcluster_planner::wanted::Settings;
use guestcluster_planner::{Observed, Plan, Wanted};
use guestcluster_shell::NamespacedName;
use guestcluster_shell::apply::Writer;
use guestcluster_shell::events::Events;
use guestcluster_shell::lease::Leadership;
use guestcluster_shell::metrics::ReconcileMetrics;
use guestcluster_shell::queue::Queue;
use http::{Method, Request, Response, StatusCode};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::doors::Doors;
use crate::forecast::Forecast;
use crate::keys::KeyPool;
use crate::leader::Leader;
use crate::memory::Memories;
use crate::secrets::SecretReader;
use crate::wiring::{Installed, Queues, Wiring};

type Asked = Arc<Mutex<Vec<(Method, String)>>>;

/// A client of a server that answers every request as `answer` says.
fn client(
    answer: impl Fn(&Method) -> (StatusCode, Value) + Clone + Send + 'static,
) -> (Client, Asked) {
    let asked = Asked::default();
    let kept = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        kept.lock()
            .unwrap()
            .push((request.method().clone(), request.uri().path().to_owned()));
        let (status, body) = answer(request.method());
        async move {
            let body = Body::from(serde_json::to_vec(&body).unwrap());
            Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
        }
    });
    (Client::new(service, "default"), asked)
}

fn context(client: &Client, leader: Leader) -> Context {
    let writer = Writer::new("test", Duration::from_secs(1));
    let secrets = SecretReader::new(client.clone(), writer.clone());
    let queues = Queues {
        clusters: Queue::new(Duration::ZERO),
        maintenances: Queue::new(Duration::ZERO),
    };
    let memories = Memories::default();
    let installed = Installed {
        maintenance: true,
        kubevirt: true,
        migration_policies: true,
        cdi: true,
        service_ranges: true,
    };
    let stores = Wiring::new(
        client,
        &queues,
        (&memories, &Forecast::default()),
        installed,
    )
    .stores;
    Context {
        ledger: stores.ledger(),
        stores,
        memories,
        settings: Settings::default(),
        status_writer: writer.clone(),
        guest_calls: writer.clone(),
        writer,
        doors: Doors::new(secrets.clone()),
        secrets,
        keys: KeyPool::new().0,
        leader,
        events: Events::new(client.clone(), "test", "test"),
        forecast: Forecast::default(),
        metrics: ReconcileMetrics::default(),
        client: client.clone(),
    }
}

fn cluster() -> GuestCluster {
    serde_json::from_value(json!({
        "apiVersion": "guestcluster.dev/v1alpha1", "kind": "GuestCluster",
        "metadata": { "namespace": "n", "name": "a", "uid": "ours" },
        "spec": { "version": "v1.36.3", "image": { "pvc": { "name": "image" } } },
    }))
    .unwrap()
}

fn service(owner: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "namespace": "n", "name": "a-cp-1", "uid": "s", "resourceVersion": "1",
            "labels": { labels::MACHINE: "a-cp-1" },
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Keeper", "name": "k", "uid": owner,
                "controller": true,
            }],
        },
    })
}

fn create() -> Action {
    let (kind, name) = (Kind::Service, "a-cp-1".to_owned());
    Action::Create(Object {
        kind,
        name,
        body: service("ours"),
    })
}

fn delete() -> Action {
    let (uid, resource_version) = ("s".to_owned(), "1".to_owned());
    let object = Victim {
        kind: Kind::Service,
        name: "a-cp-1".to_owned(),
        uid,
        resource_version,
    };
    Action::Delete {
        object,
        why: "test".to_owned(),
    }
}

fn failure(code: StatusCode, reason: &str) -> (StatusCode, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no",
        "reason": reason, "code": code.as_u16(),
    });
    (code, status)
}

/// What became of a plan of these actions: which took effect, whether a name was taken, and how
/// the round ended.
async fn execute(
    context: &Context,
    actions: Vec<Action>,
) -> (Vec<&'static str>, Memory, Result<bool, Error>) {
    let (cluster, key) = (cluster(), NamespacedName::new("n", "a"));
    let wanted = Wanted::parse(&cluster, &Settings::default()).unwrap();
    let subject = super::super::Subject {
        key: &key,
        cluster: &cluster,
        wanted: &wanted,
    };
    let (seen, status) = (Observed::default(), GuestClusterStatus::default());
    let plan = Plan {
        actions,
        ..Plan::default()
    };
    let round = Round {
        subject: &subject,
        seen: &seen,
        plan: &plan,
        status: &status,
        now: Timestamp::UNIX_EPOCH,
    };
    let mut memory = Memory::default();
    let done = context.execute(&round, &mut memory).await;
    let kinds = done.actions.iter().map(|action| action.kind()).collect();
    (kinds, memory, done.outcome.map(|()| done.taken))
}

/// A server on which the object exists already, made by this owner.
fn existing(owner: &'static str) -> impl Fn(&Method) -> (StatusCode, Value) + Clone + Send {
    move |method| match *method {
        Method::POST => failure(StatusCode::CONFLICT, "AlreadyExists"),
        _ => (StatusCode::OK, service(owner)),
    }
}

#[tokio::test]
async fn an_object_of_ours_that_exists_already_counts_as_made() {
    let (client, asked) = client(existing("ours"));
    let (done, memory, outcome) = execute(&context(&client, Leader::Alone), vec![create()]).await;
    assert_eq!((done, outcome.unwrap()), (vec!["Create"], false));
    assert!(memory.taken.is_empty());
    let methods: Vec<_> = asked
        .lock()
        .unwrap()
        .iter()
        .map(|(method, _)| method.clone())
        .collect();
    assert_eq!(methods, [Method::POST, Method::GET]);
}

#[tokio::test]
async fn a_name_that_somebody_holds_is_remembered_and_left_alone() {
    let (client, asked) = client(existing("theirs"));
    let actions = vec![create(), delete()];
    let (done, mut memory, outcome) = execute(&context(&client, Leader::Alone), actions).await;
    assert_eq!((done, outcome.unwrap()), (vec![], true));
    let taken = memory.taken(monotonic());
    assert_eq!(taken, [("a-cp-1".to_owned(), "Keeper k".to_owned())].into());
    assert!(
        asked
            .lock()
            .unwrap()
            .iter()
            .all(|(method, _)| method != Method::DELETE)
    );
}

#[tokio::test]
async fn an_apply_takes_nothing_away_from_others() {
    let (client, asked) = client(existing("theirs"));
    let Action::Create(object) = create() else {
        panic!("not a create")
    };
    let actions = vec![Action::Apply(object)];
    let (done, _, outcome) = execute(&context(&client, Leader::Alone), actions).await;
    assert_eq!((done, outcome.unwrap()), (vec![], true));
    assert!(
        asked
            .lock()
            .unwrap()
            .iter()
            .all(|(method, _)| method == Method::GET)
    );
}

#[tokio::test]
async fn the_first_failure_ends_the_round() {
    let (client, asked) = client(|_| failure(StatusCode::FORBIDDEN, "Forbidden"));
    let actions = vec![create(), delete()];
    let (done, _, outcome) = execute(&context(&client, Leader::Alone), actions).await;
    assert!(done.is_empty() && outcome.is_err());
    assert_eq!(asked.lock().unwrap().len(), 1);
}

#[rstest]
#[case::on_standby(Leadership::Standby { leader: None })]
#[case::with_too_little_time(Leadership::Leading { until: monotonic() + ACTION / 2 })]
#[tokio::test]
async fn nothing_is_written_without_leading_for_long_enough(#[case] leadership: Leadership) {
    let (client, asked) = client(existing("ours"));
    let (_sender, receiver) = watch::channel(leadership);
    let context = context(&client, Leader::Elected(receiver));
    let (done, _, outcome) = execute(&context, vec![create()]).await;
    assert!(done.is_empty() && matches!(outcome, Err(Error::NotLeading)));
    assert!(asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_delete_names_the_object_that_was_seen_and_one_that_is_gone_is_done() {
    let (client, asked) = client(|_| failure(StatusCode::NOT_FOUND, "NotFound"));
    let (done, _, outcome) = execute(&context(&client, Leader::Alone), vec![delete()]).await;
    assert_eq!((done, outcome.unwrap()), (vec!["Delete"], false));
    let path = "/api/v1/namespaces/n/services/a-cp-1".to_owned();
    assert_eq!(*asked.lock().unwrap(), [(Method::DELETE, path)]);
}

const POLICY: &str = "/apis/migrations.kubevirt.io/v1alpha1/migrationpolicies/n.a";

fn policy(labels: &Value) -> Value {
    json!({
        "apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy",
        "metadata": { "name": "n.a", "uid": "p", "resourceVersion": "1", "labels": labels },
        "spec": {},
    })
}

fn made_by(uid: &str) -> Value {
    json!({ labels::NAMESPACE: "n", labels::CLUSTER: "a", labels::CLUSTER_UID: uid })
}

/// What is in no namespace has no owner: labels say whose it is.
#[rstest]
#[case::nobodys(json!({}), &[Method::GET])]
#[case::a_former_clusters(made_by("former"), &[Method::GET])]
#[case::ours(made_by("ours"), &[Method::GET, Method::PATCH])]
#[tokio::test]
async fn a_policy_that_another_made_is_left_alone(#[case] of: Value, #[case] calls: &[Method]) {
    let there = policy(&of);
    let (client, asked) = client(move |_| (StatusCode::OK, there.clone()));
    let apply = Action::Apply(Object {
        kind: Kind::MigrationPolicy,
        name: "n.a".to_owned(),
        body: policy(&made_by("ours")),
    });
    let (_, _, outcome) = execute(&context(&client, Leader::Alone), vec![apply]).await;
    assert_eq!(outcome.unwrap(), calls.len() == 1, "it counts as taken");
    let expected: Vec<_> = calls
        .iter()
        .map(|m| (m.clone(), POLICY.to_owned()))
        .collect();
    assert_eq!(*asked.lock().unwrap(), expected);
}

/// The stores may be behind: a maker that the API server still has keeps its policy.
#[rstest]
#[case::the_maker_is_there("former", false)]
#[case::another_has_its_name("now", true)]
#[tokio::test]
async fn a_stray_policy_goes_once_its_maker_is_certainly_gone(
    #[case] live: &'static str,
    #[case] goes: bool,
) {
    let (client, asked) = client(move |method| {
        let mut now = serde_json::to_value(cluster()).unwrap();
        now["metadata"]["uid"] = json!(live);
        let gone = json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" });
        (
            StatusCode::OK,
            if *method == Method::GET { now } else { gone },
        )
    });
    let stray = serde_json::from_value(policy(&made_by("former"))).unwrap();
    let (context, key) = (
        context(&client, Leader::Alone),
        NamespacedName::new("n", "a"),
    );
    let deleted = context.delete_policy(&key, &stray, "former").await.unwrap();
    assert_eq!(deleted, goes);
    let deletes = (Method::DELETE, POLICY.to_owned());
    assert_eq!(asked.lock().unwrap().contains(&deletes), goes);
}
