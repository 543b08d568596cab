//! Export loses nothing in silence, and import gives it back.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod fields;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;

use fields::{fields, others};
use guestcluster_api::GuestCluster;
use guestcluster_bridge::capi;
use guestcluster_bridge::export::{ApiVersion, Export, ExportError, Fate, Options, export};
use guestcluster_bridge::import::{ImportError, import};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::CustomResourceExt;
use serde_json::{Value, json};
use support::{cluster, full, variants};

const VERSIONS: [ApiVersion; 2] = [ApiVersion::V1Beta1, ApiVersion::V1Beta2];

fn exported(cluster: &GuestCluster, api_version: ApiVersion) -> Export {
    let options = Options {
        api_version,
        authorities: None,
    };
    export(cluster, &options).unwrap_or_else(|error| panic!("{error}"))
}

/// What Cluster API acts on: the objects without our annotation.
fn acted_on(export: &Export) -> Vec<Value> {
    let mut objects = export.objects.clone();
    objects[0]["metadata"]["annotations"] = Value::Null;
    objects
}

#[test]
fn import_after_export_is_the_same_cluster_with_nothing_unread() {
    for (name, spec) in variants() {
        let cluster = cluster(&spec);
        for version in VERSIONS {
            let import = import(&exported(&cluster, version).objects).unwrap();
            assert_eq!(import.cluster.spec, cluster.spec, "{name} {version:?}");
            assert_eq!(import.cluster.metadata, cluster.metadata, "{name}");
            assert_eq!(import.unread, [], "{name} {version:?}");
        }
    }
}

/// Lists that one value stands for, and what the full specification cannot hold beside it.
const APART: [&str; 3] = ["/image/pvc/name", "/image/http/url", "/image/http/checksum"];

#[test]
fn each_field_of_a_cluster_is_exported_or_listed() {
    let crd = json!(GuestCluster::crd());
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut known = BTreeSet::new();
    fields(schema, "", &mut known);
    known.retain(|path| {
        !APART.contains(&path.as_str()) && !path.contains("/workers/0/machine/etcd")
    });
    let others = others();
    let tried: BTreeSet<_> = others.keys().map(|path| (*path).to_owned()).collect();
    assert_eq!(known, tried, "each field needs another value here");
    for (path, other) in &others {
        let mut changed = full();
        // What belongs together changes together.
        match *path {
            "/topology" => changed["workers"] = json!([]),
            "/profile" => changed["controlPlane"]["replicas"] = json!(1),
            _ => {}
        }
        let before = changed.clone();
        let place = changed.pointer_mut(path);
        *place.unwrap_or_else(|| panic!("{path} is not filled")) = other.clone();
        changes_what_is_said(path, &before, &changed);
    }
}

#[test]
fn each_source_of_an_image_is_exported_or_listed() {
    let digest = |digits: &str| format!("sha256:{}", digits.repeat(32));
    for (path, before, after) in [
        (
            "/image/pvc/name",
            json!({ "pvc": { "name": "a" } }),
            json!({ "pvc": { "name": "b" } }),
        ),
        (
            "/image/http/url",
            json!({ "http": { "url": "https://a", "checksum": digest("ab") } }),
            json!({ "http": { "url": "https://b", "checksum": digest("ab") } }),
        ),
        (
            "/image/http/checksum",
            json!({ "http": { "url": "https://a", "checksum": digest("ab") } }),
            json!({ "http": { "url": "https://a", "checksum": digest("cd") } }),
        ),
    ] {
        let (mut one, mut other) = (full(), full());
        one["image"] = before;
        other["image"] = after;
        changes_what_is_said(path, &one, &other);
    }
}

/// Either the objects that Cluster API acts on differ, or the list does.
fn changes_what_is_said(path: &str, before: &Value, after: &Value) {
    for version in VERSIONS {
        let [before, after] = [before, after].map(|spec| exported(&cluster(spec), version));
        let list = |export: &Export| {
            let kept = export
                .unmapped
                .iter()
                .filter(|one| one.fate == Fate::Annotation);
            kept.map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(
            acted_on(&before) != acted_on(&after) || list(&before) != list(&after),
            "{path} is lost in silence"
        );
    }
}

#[test]
fn each_thing_that_is_kept_says_why_and_what_to_do_instead() {
    for (name, spec) in variants() {
        for one in exported(&cluster(&spec), ApiVersion::V1Beta2).unmapped {
            assert!(
                !one.why.contains("Cluster API has no field for it"),
                "{name}: {one}"
            );
            assert!(
                !one.instead.is_empty() && one.field.len() > 4,
                "{name}: {one}"
            );
        }
    }
}

#[test]
fn what_somebody_changed_since_the_export_holds() {
    let mut objects = exported(&cluster(&full()), ApiVersion::V1Beta2).objects;
    let kubeadm = objects
        .iter_mut()
        .find(|object| object["kind"] == "KubeadmControlPlane");
    kubeadm.unwrap()["spec"]["version"] = json!("v1.37.1");
    let mut spec = full();
    spec["version"] = json!("v1.37.1");
    assert_eq!(import(&objects).unwrap().cluster.spec, cluster(&spec).spec);
}

#[test]
fn a_template_of_other_content_has_another_name() {
    let template = |edit: &dyn Fn(&mut Value)| {
        let mut spec = full();
        edit(&mut spec);
        let export = exported(&cluster(&spec), ApiVersion::V1Beta2);
        let object = export
            .objects
            .into_iter()
            .find(|object| object["kind"] == "KubevirtMachineTemplate");
        object.unwrap()["metadata"]["name"].clone()
    };
    let same = template(&|_| {});
    assert_eq!(
        same,
        template(&|spec| spec["controlPlane"]["replicas"] = json!(5))
    );
    assert_ne!(
        same,
        template(&|spec| spec["controlPlane"]["machine"]["cpu"] = json!(9))
    );
}

#[test]
fn an_endpoint_is_written_with_host_and_port_or_not_at_all() {
    for (name, spec) in variants() {
        let objects = exported(&cluster(&spec), ApiVersion::V1Beta2).objects;
        let endpoint = &objects[1]["spec"]["controlPlaneEndpoint"];
        let service = &objects[1]["spec"]["controlPlaneServiceTemplate"]["spec"]["type"];
        assert!(
            endpoint.is_null() || (endpoint["host"].is_string() && endpoint["port"].is_i64()),
            "{name}"
        );
        assert!(
            ["ClusterIP", "LoadBalancer"].contains(&service.as_str().unwrap()),
            "{name}"
        );
        let text = json!(objects).to_string();
        for trap in [
            "cloudinitvolume",
            "cloudInitNoCloud",
            "failureDomain\"",
            "firmware",
        ] {
            assert!(!text.contains(trap), "{name} has {trap}");
        }
    }
}

const fn asking_for(authorities: &[Secret]) -> Options<'_> {
    Options {
        api_version: ApiVersion::V1Beta2,
        authorities: Some(authorities),
    }
}

fn secret(name: &str) -> Secret {
    let mut secret = Secret::default();
    secret.metadata.name = Some(name.to_owned());
    let pem = || ByteString(b"pem".to_vec());
    secret.data = Some([("tls.crt".to_owned(), pem()), ("tls.key".to_owned(), pem())].into());
    secret
}

#[test]
fn authorities_are_exported_only_where_they_are_asked_for_and_then_all_of_them() {
    let mut guest = cluster(&full());
    guest.status = Some(guestcluster_api::GuestClusterStatus::default());
    let without = exported(&guest, ApiVersion::V1Beta2);
    assert!(without.secrets.is_empty());
    assert!(
        without
            .unmapped
            .iter()
            .any(|one| one.field == "authorities")
    );
    let names = ["prod-ca", "prod-etcd", "prod-proxy", "prod-sa"];
    let mut given: Vec<_> = names.map(secret).into();
    let with = export(&guest, &asking_for(&given)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(with.secrets.len(), 4);
    for secret in &with.secrets {
        assert_eq!(secret.type_.as_deref(), Some(capi::SECRET_TYPE));
        assert_eq!(
            secret.metadata.labels.as_ref().unwrap()[capi::CLUSTER_NAME],
            "prod"
        );
        assert!(secret.metadata.owner_references.is_none());
    }
    assert!(with.unmapped.iter().all(|one| one.field != "authorities"));
    given.pop();
    let missing = ExportError::MissingAuthority("prod-sa".to_owned());
    assert_eq!(export(&guest, &asking_for(&given)).err(), Some(missing));
}

#[test]
fn objects_of_other_makers_are_read_and_what_is_not_read_is_listed() {
    let mut objects = exported(&cluster(&full()), ApiVersion::V1Beta1).objects;
    objects[0]["metadata"]["annotations"] = Value::Null;
    for object in &mut objects {
        if object["kind"] == "KubeadmControlPlane" {
            object["spec"]["kubeadmConfigSpec"]["ntp"] = json!({ "enabled": true });
        }
    }
    objects.push(json!({ "kind": "ConfigMap", "metadata": { "name": "extra" } }));
    let import = import(&objects).unwrap();
    let unread: Vec<_> = import.unread.iter().map(ToString::to_string).collect();
    assert_eq!(
        unread,
        [
            "KubeadmControlPlane prod-control-plane /spec/kubeadmConfigSpec/ntp/enabled: true is not read",
            "ConfigMap extra : a GuestCluster has no counterpart of this object",
        ]
    );
}

#[test]
fn objects_that_are_missing_are_named() {
    let mut objects = exported(&cluster(&full()), ApiVersion::V1Beta2).objects;
    objects.retain(|object| object["kind"] != "KubevirtCluster");
    let missing = ImportError::Missing {
        kind: "KubevirtCluster",
        name: "prod".to_owned(),
    };
    assert_eq!(import(&objects).err(), Some(missing));
    assert_eq!(import(&[]).err(), Some(ImportError::NotOne(0)));
}

#[test]
fn a_single_machine_that_fails_is_replaced_too() {
    let objects = exported(&cluster(&full()), ApiVersion::V1Beta1).objects;
    let most = |name: &str| {
        let mut checks = objects
            .iter()
            .filter(|object| object["kind"] == "MachineHealthCheck");
        let check = checks.find(|check| check["metadata"]["name"] == name);
        check.unwrap()["spec"]["maxUnhealthy"].clone()
    };
    assert_eq!(
        most("prod-batch"),
        json!(1),
        "a share of few machines is none"
    );
    assert_eq!(most("prod-general"), json!("40%"));
}
