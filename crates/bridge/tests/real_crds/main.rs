//! Exported manifests against the definitions of Cluster API and CAPK, on a real API server.
//!
//! Runs where `GUESTCLUSTER_TOOLS` names a folder with the programs, beside which the definitions lie.
//! They are those files that the projects keep, without a conversion, so that both versions are served
//! and each is held to its own schema. Fields that the schema does not know are refused.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::time::Duration;

use guestcluster_bridge::export::{ApiVersion, Options, export};
use guestcluster_real::Server;
use kube::Client;
use serde_json::{Value, json};

/// Folders with definitions: of Cluster API, and of CAPK.
const DEFINITIONS: [&str; 2] = ["cluster-api-crds", "capk-crds"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_exported_object_is_accepted_as_it_is() {
    let Some(tools) = guestcluster_real::tools() else {
        eprintln!("skipped: GUESTCLUSTER_TOOLS names no folder with the programs");
        return;
    };
    let server = Server::start(&tools, Path::new(env!("CARGO_TARGET_TMPDIR"))).await;
    let client = server.admin();
    let root = tools.parent().unwrap();
    for folder in DEFINITIONS {
        define(&client, &root.join(folder)).await;
    }
    post(
        &client,
        "/api/v1/namespaces",
        &json!({ "metadata": { "name": "tenant-a" } }),
    )
    .await
    .unwrap();
    let mut refused = Vec::new();
    for (name, spec) in support::variants() {
        let cluster = support::cluster(&spec);
        for api_version in [ApiVersion::V1Beta1, ApiVersion::V1Beta2] {
            let options = Options {
                api_version,
                authorities: None,
            };
            let export = export(&cluster, &options).unwrap_or_else(|error| panic!("{error}"));
            for object in &export.objects {
                if let Err(error) = try_out(&client, object).await {
                    refused.push(format!(
                        "{name} {api_version:?} {}: {error}",
                        object["kind"]
                    ));
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    an_unknown_field_is_refused(&client).await;
}

/// Without this the test above would prove little.
async fn an_unknown_field_is_refused(client: &Client) {
    let cluster = support::cluster(&support::full());
    let export = export(&cluster, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    for mut object in export.objects {
        object["spec"]["nobodyKnowsThis"] = json!(1);
        let error = try_out(client, &object).await.unwrap_err().to_string();
        assert!(error.contains("nobodyKnowsThis"), "{error}");
    }
}

/// Installs the definitions in a folder and waits until their kinds are served.
async fn define(client: &Client, folder: &Path) {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let files =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for file in files {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let definition: Value = serde_saphyr::from_str(&text).unwrap();
        post(client, path, &definition).await.unwrap();
        let name = definition["metadata"]["name"].as_str().unwrap();
        wait_until_served(client, &format!("{path}/{name}")).await;
    }
}

async fn wait_until_served(client: &Client, path: &str) {
    for _ in 0..150 {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let definition: Value = client.request(request).await.unwrap();
        let conditions = definition["status"]["conditions"].as_array();
        let is_served =
            |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
        if conditions.is_some_and(|all| all.iter().any(is_served)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("{path} is not served");
}

/// Creates an object without keeping it. A kind is served a moment after its definition says so.
async fn try_out(client: &Client, object: &Value) -> Result<Value, kube::Error> {
    let group = object["apiVersion"].as_str().unwrap();
    let plural = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
    let path =
        format!("/apis/{group}/namespaces/tenant-a/{plural}?dryRun=All&fieldValidation=Strict");
    for _ in 0..50 {
        match post(client, &path, object).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            answer => return answer,
        }
    }
    post(client, &path, object).await
}

async fn post(client: &Client, path: &str, object: &Value) -> Result<Value, kube::Error> {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes());
    client.request(request.unwrap()).await
}
