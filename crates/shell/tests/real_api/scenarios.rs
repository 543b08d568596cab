//! One function for each promise.

mod stores;
mod writes;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use guestcluster_real::Server;
use guestcluster_shell::apply::Writer;

/// Where a scenario takes place.
pub struct Place {
    pub admin: Client,
    pub nobody: Client,
    pub namespace: String,
}

impl Place {
    async fn new(server: &Server, name: &str) -> Self {
        let namespace = name.replace('_', "-");
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        let namespaces: Api<Namespace> = Api::all(server.admin());
        namespaces
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        Self {
            admin: server.admin(),
            nobody: server.nobody(),
            namespace,
        }
    }

    pub fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.admin.clone(), &self.namespace)
    }

    /// A config map as intended, with something in it.
    pub fn map(&self, name: &str, value: &str) -> serde_json::Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "namespace": self.namespace, "name": name,
                "labels": {"example.dev/cluster": "x"},
            },
            "data": {"key": value},
        })
    }

    pub async fn made(&self, name: &str) -> ConfigMap {
        writer()
            .apply(&self.maps(), &self.map(name, "made"))
            .await
            .unwrap()
    }
}

pub fn writer() -> Writer {
    Writer::new("shell-test", std::time::Duration::from_secs(20))
}

pub fn version(map: &ConfigMap) -> &str {
    map.metadata.resource_version.as_deref().unwrap()
}

pub fn uid(map: &ConfigMap) -> String {
    map.uid().unwrap()
}

/// Runs the scenarios one after the other; the last name printed is the one that failed.
macro_rules! scenarios {
    ($server:expr, $($module:ident :: $name:ident),+ $(,)?) => {
        $(
            eprintln!(concat!("scenario ", stringify!($name)));
            $module::$name(&Place::new($server, stringify!($name)).await).await;
        )+
    };
}

pub async fn run(server: &Server) {
    scenarios!(
        server,
        writes::an_apply_takes_fields_from_others_and_leaves_the_rest,
        writes::an_apply_with_a_uid_never_makes_an_object,
        writes::a_create_finds_its_own_object_and_refuses_anothers,
        writes::a_delete_hits_the_object_that_was_observed_or_none,
        writes::a_patch_whose_test_fails_is_a_conflict,
        writes::a_finalizer_patch_fits_the_list_that_was_seen_or_fails,
        writes::a_status_is_written_only_when_it_says_something_new,
        writes::an_unknown_field_fails_an_apply_and_is_lost_in_a_create,
        writes::who_may_not_is_denied_and_what_is_wrong_is_rejected,
        stores::a_store_follows_and_the_ledger_knows_when_it_has_caught_up,
        stores::secrets_come_without_content,
        stores::a_field_selector_keeps_pods_that_run_on_a_host,
        stores::of_two_candidates_one_leads_and_the_other_follows,
        stores::events_about_different_machines_are_told_apart,
    );
}
