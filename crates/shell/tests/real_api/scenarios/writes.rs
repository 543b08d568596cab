//! Apply, create, delete, finalizers, status.

use guestcluster_shell::apply::{Created, Deleted, StatusWrite, Target, Writer};
use guestcluster_shell::error::Error;
use guestcluster_shell::{Class, Classify};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PropagationPolicy;
use kube::runtime::{conditions, wait::await_condition};
use kube::{Api, CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Place, uid, version, writer};

pub async fn an_apply_takes_fields_from_others_and_leaves_the_rest(place: &Place) {
    let other = Writer::new("other", writer().timeout());
    let mut theirs = place.map("a", "theirs");
    theirs["data"]["more"] = json!("theirs alone");
    other.apply(&place.maps(), &theirs).await.unwrap();

    let live = writer()
        .apply(&place.maps(), &place.map("a", "ours"))
        .await
        .unwrap();
    let data = live.data.unwrap();
    assert_eq!(
        (data["key"].as_str(), data["more"].as_str()),
        ("ours", "theirs alone")
    );
}

pub async fn an_apply_with_a_uid_never_makes_an_object(place: &Place) {
    let mut intent = place.map("a", "x");
    intent["metadata"]["uid"] = json!("6b6b6a39-0000-4000-8000-000000000000");
    let error = writer().apply(&place.maps(), &intent).await.unwrap_err();
    assert_eq!(error.class(), Class::Conflict, "{error}");
    assert!(writer().read(&place.maps(), "a").await.unwrap().is_none());
}

pub async fn a_create_finds_its_own_object_and_refuses_anothers(place: &Place) {
    let owner = place.made("owner").await;
    let owned_by = |uid: &str| {
        let mut intent = place.map("child", "x");
        intent["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid,
            "controller": true,
        }]);
        intent
    };
    let intent = owned_by(&uid(&owner));
    let maps = place.maps();
    let Created::New(first) = writer()
        .create::<ConfigMap, _>(&maps, &intent)
        .await
        .unwrap()
    else {
        panic!("it was not there");
    };
    let Created::Existing(second) = writer().create(&maps, &intent).await.unwrap() else {
        panic!("it was made twice");
    };
    assert_eq!(
        (uid(&first), version(&first)),
        (uid(&second), version(&second))
    );

    let error = writer()
        .create(&maps, &owned_by("another"))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::Taken { owner, .. } if owner == "ConfigMap owner"),
        "{error}"
    );
    let error = writer()
        .create(&maps, &place.map("child", "x"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Taken { .. }), "{error}");
}

pub async fn a_delete_hits_the_object_that_was_observed_or_none(place: &Place) {
    let maps = place.maps();
    let seen = place.made("a").await;
    let newer = writer()
        .apply(&maps, &place.map("a", "newer"))
        .await
        .unwrap();
    let (seen_uid, other) = (uid(&seen), "6b6b6a39-0000-4000-8000-000000000000");
    let target = |uid, resource_version| Target {
        name: "a",
        uid,
        resource_version,
        propagation: PropagationPolicy::Background,
    };
    for target in [target(other, None), target(&seen_uid, Some(version(&seen)))] {
        let error = writer().delete(&maps, target).await.unwrap_err();
        assert_eq!(error.class(), Class::Conflict, "{error}");
    }
    let kept = writer()
        .add_finalizer(&maps, &newer, "example.dev/keep")
        .await
        .unwrap()
        .unwrap();
    let marked = writer()
        .delete(&maps, target(&seen_uid, Some(version(&kept))))
        .await
        .unwrap();
    let Deleted::Terminating(marked) = marked else {
        panic!("a finalizer keeps it")
    };
    writer()
        .remove_finalizer(&maps, &*marked, "example.dev/keep")
        .await
        .unwrap();
    assert!(writer().read(&maps, "a").await.unwrap().is_none());
    assert_eq!(
        writer()
            .delete(&maps, target(&seen_uid, None))
            .await
            .unwrap(),
        Deleted::Gone
    );

    let plain = place.made("a").await;
    let uid = uid(&plain);
    assert_eq!(
        writer().delete(&maps, target(&uid, None)).await.unwrap(),
        Deleted::Gone
    );
}

pub async fn a_patch_whose_test_fails_is_a_conflict(place: &Place) {
    let maps = place.maps();
    place.made("a").await;
    let steps = |seen: &str| {
        json!([
            { "op": "test", "path": "/data/key", "value": seen },
            { "op": "add", "path": "/data/key", "value": "new" },
        ])
    };
    let failed = writer()
        .patch(&maps, "a", steps("other"))
        .await
        .unwrap_err();
    assert_eq!(failed.class(), Class::Conflict, "{failed}");
    let value = maps.get("a").await.unwrap().data.unwrap()["key"].clone();
    let patched = writer().patch(&maps, "a", steps(&value)).await.unwrap();
    assert_eq!(patched.data.unwrap()["key"], "new");
    // What the server finds wrong in the outcome is no change by others.
    let wrong = json!([{ "op": "add", "path": "/metadata/labels", "value": { "no label": "" } }]);
    let refused = writer().patch(&maps, "a", wrong).await.unwrap_err();
    assert_eq!(refused.class(), Class::Rejected, "{refused}");
}

pub async fn a_finalizer_patch_fits_the_list_that_was_seen_or_fails(place: &Place) {
    let (maps, ours) = (place.maps(), "example.dev/ours");
    let bare = place.made("a").await;
    let with_ours = writer()
        .add_finalizer(&maps, &bare, ours)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(with_ours.finalizers(), [ours]);
    assert!(
        writer()
            .add_finalizer(&maps, &with_ours, ours)
            .await
            .unwrap()
            .is_none()
    );

    // Somebody who saw the empty list, and somebody who saw another object of that name.
    let late = writer()
        .add_finalizer(&maps, &bare, "example.dev/late")
        .await
        .unwrap_err();
    assert!(matches!(late, Error::Changed { .. }), "{late}");
    let mut namesake = with_ours.clone();
    namesake.metadata.uid = Some("6b6b6a39-0000-4000-8000-000000000000".to_owned());
    let wrong = writer()
        .remove_finalizer(&maps, &namesake, ours)
        .await
        .unwrap_err();
    assert!(matches!(wrong, Error::Changed { .. }), "{wrong}");

    let both = writer()
        .add_finalizer(&maps, &with_ours, "example.dev/more")
        .await
        .unwrap()
        .unwrap();
    let left = writer()
        .remove_finalizer(&maps, &both, ours)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(left.finalizers(), ["example.dev/more"]);
    let gone = writer()
        .remove_finalizer(&maps, &both, ours)
        .await
        .unwrap_err();
    assert!(
        matches!(gone, Error::Changed { .. }),
        "its place is taken: {gone}"
    );

    // What the server finds wrong in the finalizer itself is no change by others.
    let refused = writer()
        .add_finalizer(&maps, &left, "no finalizer")
        .await
        .unwrap_err();
    assert_eq!(refused.class(), Class::Rejected, "{refused}");
    writer()
        .remove_finalizer(&maps, &left, "example.dev/more")
        .await
        .unwrap();
}

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "shell.example.dev",
    version = "v1",
    kind = "Widget",
    namespaced
)]
#[kube(status = "WidgetStatus")]
pub struct WidgetSpec {
    size: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WidgetStatus {
    message: String,
    last_transition_time: String,
}

pub async fn a_status_is_written_only_when_it_says_something_new(place: &Place) {
    let crds: Api<CustomResourceDefinition> = Api::all(place.admin.clone());
    let crd = writer().apply(&crds, &Widget::crd()).await.unwrap();
    await_condition(crds, &crd.name_any(), conditions::is_crd_established())
        .await
        .unwrap();

    let widgets: Api<Widget> = Api::namespaced(place.admin.clone(), &place.namespace);
    let mut intent = Widget::new("a", WidgetSpec { size: 1 });
    intent.metadata.namespace = Some(place.namespace.clone());
    let seen = writer().apply(&widgets, &intent).await.unwrap();
    let status = |message: &str, time: &str| WidgetStatus {
        message: message.to_owned(),
        last_transition_time: time.to_owned(),
    };

    let first = writer()
        .apply_status(&widgets, &seen, &status("new", "1"))
        .await
        .unwrap();
    let StatusWrite::Written(first) = first else {
        panic!("there was no status")
    };
    assert_eq!(first.status, Some(status("new", "1")));
    let again = writer()
        .apply_status(&widgets, &*first, &status("new", "2"))
        .await
        .unwrap();
    assert!(matches!(again, StatusWrite::Unchanged));
    let live = writer().read(&widgets, "a").await.unwrap().unwrap();
    assert_eq!(live.resource_version(), first.resource_version());

    let other = writer()
        .apply_status(&widgets, &*first, &status("other", "3"))
        .await
        .unwrap();
    assert!(matches!(other, StatusWrite::Written(_)));
}

pub async fn an_unknown_field_fails_an_apply_and_is_lost_in_a_create(place: &Place) {
    let widgets: Api<Widget> = Api::namespaced(place.admin.clone(), &place.namespace);
    let mut intent = serde_json::to_value(Widget::new("a", WidgetSpec { size: 1 })).unwrap();
    intent["spec"]["unknown"] = json!(true);
    let error = writer().apply(&widgets, &intent).await.unwrap_err();
    assert_eq!(error.class(), Class::Rejected, "{error}");
    let made = writer()
        .create::<Widget, _>(&widgets, &intent)
        .await
        .unwrap();
    assert_eq!(made.into_object().spec.size, 1);
}

pub async fn who_may_not_is_denied_and_what_is_wrong_is_rejected(place: &Place) {
    let denied: Api<ConfigMap> = Api::namespaced(place.nobody.clone(), &place.namespace);
    let error = writer()
        .apply(&denied, &place.map("a", "x"))
        .await
        .unwrap_err();
    assert_eq!(error.class(), Class::Denied, "{error}");

    let mut intent = place.map("a", "x");
    intent["unknown"] = json!(true);
    let error = writer().apply(&place.maps(), &intent).await.unwrap_err();
    assert_eq!(error.class(), Class::Rejected, "{error}");

    let mut intent = place.map("a", "x");
    intent["metadata"]["name"] = json!("NotLowerCase");
    let error = writer().apply(&place.maps(), &intent).await.unwrap_err();
    assert_eq!(error.class(), Class::Rejected, "{error}");

    let nowhere: Api<ConfigMap> = Api::namespaced(place.admin.clone(), "no-such-namespace");
    intent["metadata"] = json!({"name": "a", "namespace": "no-such-namespace"});
    let error = writer().apply(&nowhere, &intent).await.unwrap_err();
    assert_eq!(error.class(), Class::Transient, "{error}");
}
