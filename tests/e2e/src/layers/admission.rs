//! What the infrastructure's API server refuses as a guest's machine, whoever makes it.

mod table;

pub(super) use table::wanted;

use std::time::Duration;

use anyhow::Context as _;
use guestcluster_api::labels;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::stage::{RELEASE, SYSTEM, Stage};
use crate::wait::until;

/// The policies of the chart.
const POLICIES: [&str; 3] = ["deletion", "guests", "guests-instances"];
/// Policies are in force within seconds of their writing.
const IN_FORCE: Duration = Duration::from_secs(30);
/// A namespace of guests.
const GUESTS: &str = "judged";
/// A namespace that becomes one.
const LATER: &str = "judged-later";
/// Who makes an instance of each VirtualMachine.
const VIRT_CONTROLLER: &str = "system:serviceaccount:kubevirt:kubevirt-controller";

/// Each rule is tried with a machine that breaks this rule alone, and every machine that the operator
/// renders passes; then the same with rules that only warn.
pub async fn machines_of_guests_are_held_to_the_rules(stage: &Stage) -> anyhow::Result<()> {
    Cluster::new(stage, GUESTS, "g").namespace().await?;
    every_field_of_the_rules_exists(stage).await?;
    let refused = table::refused()?;
    let bad = refused.first().context("the table is empty")?;
    until("the rules are in force", IN_FORCE, || async {
        let complaint = create(stage, GUESTS, &bad.document, &[]).await.err();
        Ok(complaint.filter(|error| error.to_string().contains(&bad.says)))
    })
    .await?;
    let mut faults = Vec::new();
    for case in &refused {
        match create(stage, GUESTS, &case.document, &[]).await {
            Ok(_) => faults.push(format!("{}: accepted", case.what)),
            Err(error) if error.to_string().contains(&case.says) => {}
            Err(error) => faults.push(format!("{}: {error}", case.what)),
        }
    }
    for (what, document) in table::accepted()? {
        if let Err(error) = create(stage, GUESTS, &document, &[]).await {
            faults.push(format!("{what}: {error}"));
        }
    }
    anyhow::ensure!(faults.is_empty(), "{faults:#?}");
    an_instance_of_a_machine_passes(stage).await?;
    audit_warns_and_lets_pass(stage, bad).await
}

async fn create(
    stage: &Stage,
    namespace: &str,
    document: &Value,
    more: &[&str],
) -> anyhow::Result<String> {
    let arguments = ["-n", namespace, "create", "--dry-run=server", "-f", "-"];
    let arguments = [&arguments[..], more].concat();
    stage.kubectl_with(&arguments, &document.to_string()).await
}

/// A field that no schema knows would make a rule that never holds, or always.
async fn every_field_of_the_rules_exists(stage: &Stage) -> anyhow::Result<()> {
    for policy in POLICIES {
        let name = format!("{RELEASE}-{policy}");
        let look = ["get", "validatingadmissionpolicy", &name, "-o", "json"];
        let checked = until("a policy's types are checked", IN_FORCE, || async {
            let policy: Value = serde_json::from_str(&stage.kubectl(&look).await?)?;
            let seen = &policy["status"]["observedGeneration"];
            Ok((*seen == policy["metadata"]["generation"]).then_some(policy))
        })
        .await?;
        let warnings = &checked["status"]["typeChecking"]["expressionWarnings"];
        anyhow::ensure!(warnings.is_null(), "{name}: {warnings:#}");
    }
    Ok(())
}

/// virt-controller's own is not judged again; the same by anybody else is.
async fn an_instance_of_a_machine_passes(stage: &Stage) -> anyhow::Result<()> {
    let mut instance = table::instance(&json!({ "metadata": { "labels": null } }))?;
    instance["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "t-cp-1", "uid": "u",
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let named = format!("--as={VIRT_CONTROLLER}");
    create(stage, GUESTS, &instance, &[&named]).await?;
    let complaint = create(stage, GUESTS, &instance, &[]).await.err();
    let complaint = complaint.context("anybody's instance passes")?.to_string();
    anyhow::ensure!(complaint.contains("belongs to no guest"), "{complaint}");
    Ok(())
}

/// `admission.guests: Audit` and back: the sentence comes as a warning.
async fn audit_warns_and_lets_pass(stage: &Stage, bad: &table::Refused) -> anyhow::Result<()> {
    set_rules(stage, "Audit").await?;
    let warned = until("the rules only warn", IN_FORCE, || async {
        create(stage, GUESTS, &bad.document, &[]).await?;
        let strictly = ["--warnings-as-errors"];
        let warning = create(stage, GUESTS, &bad.document, &strictly).await.err();
        Ok(warning.filter(|warning| warning.to_string().contains(&bad.says)))
    })
    .await;
    set_rules(stage, "Enforce").await?;
    warned?;
    until("the rules are in force again", IN_FORCE, || async {
        let complaint = create(stage, GUESTS, &bad.document, &[]).await.err();
        Ok(complaint.map(drop))
    })
    .await
}

async fn set_rules(stage: &Stage, rules: &str) -> anyhow::Result<()> {
    let chart = stage.file("charts/guestcluster-operator");
    let chart = chart.display().to_string();
    let value = format!("admission.guests={rules}");
    let arguments = ["upgrade", "--namespace", SYSTEM, RELEASE, &chart];
    let values = ["--reset-then-reuse-values", "--set", &value];
    // A group before this one may have changed the operator's arguments by hand.
    let force = ["--force-conflicts", "--wait", "--timeout", "120s"];
    stage
        .helm(&[&arguments[..], &values, &force].concat())
        .await?;
    Ok(())
}

/// A machine from before the rules is not judged until its template or its place in a guest changes:
/// it can be labelled, stopped and deleted.
pub async fn machines_from_before_the_rules_stay_usable(stage: &Stage) -> anyhow::Result<()> {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": LATER } });
    let apply = ["apply", "-f", "-"];
    stage.kubectl_with(&apply, &namespace.to_string()).await?;
    let old = table::changed(&json!({ "spec": {
        "runStrategy": "Halted",
        "template": { "spec": { "affinity": null } },
    }}))?;
    let make = ["-n", LATER, "apply", "-f", "-"];
    stage.kubectl_with(&make, &old.to_string()).await?;
    let label = format!("{}=true", labels::GUESTS_NAMESPACE);
    stage
        .kubectl(&["label", "namespace", LATER, &label])
        .await?;
    let judged =
        json!({ "spec": { "template": { "spec": { "terminationGracePeriodSeconds": 9 } } } });
    let moved = json!({ "metadata": { "labels": { labels::TENANT: "other" } } });
    for (change, says) in [(judged, "may share a host"), (moved, "belongs to no guest")] {
        until("a change is judged", IN_FORCE, || async {
            let complaint = patch(stage, &change, true).await.err();
            Ok(complaint.filter(|error| error.to_string().contains(says)))
        })
        .await?;
    }
    let finalizer =
        json!({ "metadata": { "finalizers": ["example.com/wait"], "labels": { "a": "b" } } });
    patch(stage, &finalizer, false).await?;
    patch(
        stage,
        &json!({ "spec": { "runStrategy": "Manual" } }),
        false,
    )
    .await?;
    let delete = ["-n", LATER, "delete", "vm", "t-cp-1"];
    stage
        .kubectl(&[&delete[..], &["--wait=false"]].concat())
        .await?;
    patch(stage, &json!({ "metadata": { "finalizers": null } }), false).await?;
    stage
        .kubectl(&[&delete[..], &["--ignore-not-found"]].concat())
        .await?;
    stage
        .kubectl(&["delete", "namespace", LATER, "--wait=false"])
        .await?;
    Ok(())
}

async fn patch(stage: &Stage, change: &Value, dry: bool) -> anyhow::Result<String> {
    let change = change.to_string();
    let dry = if dry {
        "--dry-run=server"
    } else {
        "--dry-run=none"
    };
    let arguments = [
        "-n",
        LATER,
        "patch",
        "vm",
        "t-cp-1",
        "--type=merge",
        dry,
        "-p",
        &change,
    ];
    stage.kubectl(&arguments).await
}
