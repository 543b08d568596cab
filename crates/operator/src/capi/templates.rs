//! The schema of the provider's kinds, and what machines of a template offer.

use guestcluster_bridge::capi as names;
use guestcluster_bridge::serve::{Dialect, capacity};
use guestcluster_foreign::capk::{KubevirtMachineTemplate, KubevirtMachineTemplateStatus};
use guestcluster_shell::NamespacedName;
use guestcluster_shell::clock::monotonic;
use guestcluster_shell::queue::Requeue;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};

use super::{ACTION, Context, RIVAL};
use crate::error::Error;

/// Which of the two schemas the cluster has for KubevirtMachine; `None` if it has no such kind.
///
/// # Errors
/// If the API server does not tell.
pub(super) async fn dialect(client: &Client) -> Result<Option<Dialect>, kube::Error> {
    let name = format!("kubevirtmachines.{}", names::INFRASTRUCTURE);
    let definition = Api::<CustomResourceDefinition>::all(client.clone())
        .get_opt(&name)
        .await?;
    Ok(definition.map(|definition| of(&definition)))
}

fn of(definition: &CustomResourceDefinition) -> Dialect {
    let versions = definition.spec.versions.iter();
    let mut schemas = versions.filter_map(|version| {
        version
            .schema
            .as_ref()?
            .open_api_v3_schema
            .as_ref()?
            .properties
            .as_ref()?
            .get("status")
    });
    let has_initialization = schemas.any(|status| {
        status
            .properties
            .as_ref()
            .is_some_and(|fields| fields.contains_key("initialization"))
    });
    if has_initialization {
        Dialect::V1Beta2
    } else {
        Dialect::V1Beta1
    }
}

impl Context {
    /// Visits a template: an autoscaler that begins at no machine asks what one would offer.
    ///
    /// # Errors
    /// If the write fails, or this replica does not lead for long enough.
    pub(super) async fn measure(&self, key: &NamespacedName) -> Result<Requeue, Error> {
        let Some(template) = self.stores.templates.get(key) else {
            return Ok(Requeue::Gone);
        };
        // The other schema has no place for it.
        if self.dialect == Dialect::V1Beta1 {
            return Ok(Requeue::OnChange);
        }
        if self.rival.obstacle().is_some() {
            return Ok(Requeue::After(RIVAL));
        }
        if !self.leader.allows(monotonic(), ACTION) {
            return Err(Error::NotLeading);
        }
        let machine = &template.spec.template.spec.virtual_machine_template.spec;
        let status = KubevirtMachineTemplateStatus {
            capacity: capacity::of_machine(machine),
        };
        let api = self.api::<KubevirtMachineTemplate>(&key.namespace);
        self.status_writer
            .apply_status(&api, &template, &status)
            .await?;
        Ok(Requeue::OnChange)
    }
}
