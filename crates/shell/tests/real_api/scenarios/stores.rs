//! Stores, the ledger, the lease, events.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use guestcluster_shell::NamespacedName;
use guestcluster_shell::clock::monotonic;
use guestcluster_shell::events::{Events, Note, Severity};
use guestcluster_shell::freshness::Ledger;
use guestcluster_shell::lease::{
    Candidate, Elector, Leadership, NamedLease, Timing, until_leading,
};
use guestcluster_shell::store::Watch;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Secret, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{Place, writer};

const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for something that a watch brings.
async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(
        tokio::time::timeout(PATIENCE, wait).await.is_ok(),
        "never: {what}"
    );
}

pub async fn a_store_follows_and_the_ledger_knows_when_it_has_caught_up(place: &Place) {
    for streaming in [false, true] {
        let watch = Watch::new(place.maps())
            .labels("example.dev/cluster")
            .indexed_by("example.dev/cluster")
            .streaming_lists(streaming);
        let (store, feed) = watch.split();
        let ledger = Ledger::new().with(&store);
        let (heard, owner) = (
            Arc::new(Mutex::new(Vec::new())),
            NamespacedName::new("n", "owner"),
        );
        place.made("before").await;

        let log = Arc::clone(&heard);
        let feed = tokio::spawn(feed.run(move |map| log.lock().unwrap().push(map.name_any())));
        assert!(store.wait_until_ready().await);
        assert_eq!(store.labelled("x").len(), 1);

        let made = place.made("after").await;
        ledger.wrote(&owner, &made, monotonic());
        eventually("caught up", || {
            ledger.behind(&owner, monotonic()).is_empty()
        })
        .await;
        assert!(store.get(&NamespacedName::of(&made)).is_some());

        for map in store.labelled("x") {
            place
                .maps()
                .delete(&map.name_any(), &kube::api::DeleteParams::default())
                .await
                .unwrap();
            ledger.removed(&owner, &*map, monotonic());
        }
        eventually("gone", || ledger.behind(&owner, monotonic()).is_empty()).await;
        assert!(store.labelled("x").is_empty());
        eventually("heard of all", || heard.lock().unwrap().len() == 4).await;
        feed.abort();
    }
}

pub async fn secrets_come_without_content(place: &Place) {
    let secrets: Api<Secret> = Api::namespaced(place.admin.clone(), &place.namespace);
    let intent = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": place.namespace, "name": "s"},
        "stringData": {"key": "value"},
    });
    let made = writer().apply(&secrets, &intent).await.unwrap();
    let metadata: Api<PartialObjectMeta<Secret>> =
        Api::namespaced(place.admin.clone(), &place.namespace);
    let (store, feed) = Watch::new(metadata).split();
    let ledger = Ledger::new().with(&store);
    let feed = tokio::spawn(feed.run(|_| {}));
    assert!(store.wait_until_ready().await);
    let kept = store.get(&NamespacedName::of(&made)).unwrap();
    assert_eq!(kept.types.as_ref().unwrap().kind, "PartialObjectMetadata");

    // A write of the whole kind is looked for in the store of its metadata.
    let owner = NamespacedName::new("n", "owner");
    let mut changed = intent.clone();
    changed["stringData"]["key"] = json!("other");
    let changed = writer().apply(&secrets, &changed).await.unwrap();
    ledger.wrote(&owner, &changed, monotonic());
    eventually("caught up", || {
        ledger.behind(&owner, monotonic()).is_empty()
    })
    .await;
    let kept = store.get(&NamespacedName::of(&made)).unwrap();
    assert_eq!(
        kept.metadata.resource_version,
        changed.metadata.resource_version
    );
    feed.abort();
}

pub async fn a_field_selector_keeps_pods_that_run_on_a_host(place: &Place) {
    // No Pod is made without an account, which nobody else makes here.
    let accounts: Api<ServiceAccount> = Api::namespaced(place.admin.clone(), &place.namespace);
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    accounts
        .create(&PostParams::default(), &account)
        .await
        .unwrap();
    let pods: Api<Pod> = Api::namespaced(place.admin.clone(), &place.namespace);
    for (name, host) in [
        ("runs", Some("host-1")),
        ("ends", Some("host-1")),
        ("waits", None),
    ] {
        let pod = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "automountServiceAccountToken": false, "nodeName": host,
                "containers": [{"name": "c", "image": "none.example/none"}],
            },
        }));
        let made = pods.create(&PostParams::default(), &pod.unwrap()).await;
        made.unwrap();
    }
    let (store, feed) = Watch::new(pods.clone())
        .fields("spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
        .split();
    let feed = tokio::spawn(feed.run(|_| {}));
    assert!(store.wait_until_ready().await);
    let names = || {
        store
            .all()
            .iter()
            .map(|pod| pod.name_any())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(), ["ends", "runs"], "one waits for a host");

    let over = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    pods.patch_status("ends", &PatchParams::default(), &over)
        .await
        .unwrap();
    eventually("gone from the store", || names() == ["runs"]).await;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "waits"},
        "target": {"kind": "Node", "name": "host-2"},
    });
    let bound: serde_json::Value = pods
        .create_subresource("binding", "waits", &PostParams::default(), &binding)
        .await
        .unwrap();
    assert_eq!(bound["status"], "Success");
    eventually("came with its host", || names() == ["runs", "waits"]).await;
    feed.abort();
}

pub async fn of_two_candidates_one_leads_and_the_other_follows(place: &Place) {
    let timing = Timing {
        duration: Duration::from_secs(6),
        deadline: Duration::from_secs(4),
        retry: Duration::from_millis(500),
        request: Duration::from_secs(2),
    };
    let elector = |identity: &str| {
        let api = Api::namespaced(place.admin.clone(), &place.namespace);
        let me = Candidate {
            identity: identity.to_owned(),
            timing,
        };
        Elector::new(NamedLease::new(api, "operator"), me).unwrap()
    };
    let (leave, left) = tokio::sync::oneshot::channel::<()>();
    let (first, first_stands) = elector("first");
    let first = tokio::spawn(first.run(async { drop(left.await) }));
    assert!(until_leading(&first_stands).await);

    let (second, second_stands) = elector("second");
    let second = tokio::spawn(second.run(std::future::pending()));
    let follows = Leadership::Standby {
        leader: Some("first".to_owned()),
    };
    eventually("the second sees the first", || {
        *second_stands.borrow() == follows
    })
    .await;
    tokio::time::sleep(timing.duration).await;
    assert!(
        first_stands
            .borrow()
            .allows(monotonic(), Duration::from_secs(1))
    );
    assert_eq!(*second_stands.borrow(), follows);

    leave.send(()).unwrap();
    first.await.unwrap().unwrap();
    let freed = monotonic();
    assert!(until_leading(&second_stands).await);
    assert!(
        monotonic() - freed < timing.duration,
        "it waited though the lease was free"
    );
    second.abort();
}

pub async fn events_about_different_machines_are_told_apart(place: &Place) {
    let map = place.made("guest").await;
    let events = Events::new(place.admin.clone(), "example.dev/operator", "pod-1");
    let note = |machine: &str| Note {
        severity: Severity::Normal,
        reason: "Created",
        action: "CreateMachine",
        text: format!("machine {machine} was created"),
        about: Some(ObjectReference {
            kind: Some("VirtualMachine".to_owned()),
            name: Some(machine.to_owned()),
            namespace: Some(place.namespace.clone()),
            ..ObjectReference::default()
        }),
    };
    for machine in ["a", "b", "a"] {
        events.publish(&map, note(machine)).await;
    }
    let api: Api<Event> = Api::namespaced(place.admin.clone(), &place.namespace);
    let mut told: Vec<_> = api
        .list(&kube::api::ListParams::default())
        .await
        .unwrap()
        .items;
    told.sort_by_key(|event| event.note.clone());
    let counts: Vec<_> = told
        .iter()
        .map(|event| {
            let count = event.series.as_ref().map_or(1, |series| series.count);
            (event.note.as_deref().unwrap(), count)
        })
        .collect();
    assert_eq!(
        counts,
        [("machine a was created", 2), ("machine b was created", 1)]
    );
}
