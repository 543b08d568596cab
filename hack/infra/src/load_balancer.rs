//! Gives Services of type LoadBalancer an address, as a data centre's load balancer would.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::addresses;
use crate::data_centre::DataCentre;
use crate::informer::{Change, Informer};

/// How long to wait before an answer is written again that the API server did not take.
const RETRY: Duration = Duration::from_millis(500);

/// Which Service has which address of 10.79.0.0/24.
#[derive(Debug, Default)]
struct Pool(BTreeMap<u8, String>);

impl Pool {
    /// The address of the Service `uid`: its own, or the lowest that is free.
    fn take(&mut self, uid: &str) -> Option<Ipv4Addr> {
        let own = self
            .0
            .iter()
            .find(|(_, owner)| *owner == uid)
            .map(|(index, _)| *index);
        let index = own.or_else(|| (1..=254).find(|index| !self.0.contains_key(index)))?;
        self.0.insert(index, uid.to_owned());
        Some(addresses::load_balancer(index))
    }

    fn release(&mut self, uid: &str) {
        self.0.retain(|_, owner| owner != uid);
    }
}

/// Answers Services until it is dropped.
pub async fn run(centre: Arc<DataCentre>) {
    let services: Informer<Service> =
        Informer::start(Api::all(centre.clients.load_balancer.clone()));
    let mut feed = services.subscribe();
    let mut muted = centre.muted.subscribe();
    let mut pool = Pool::default();
    let mut failed = false;
    loop {
        let waiting = tokio::select! {
            Some(change) = feed.recv() => match change {
                Change::Applied(service) => vec![service],
                Change::Deleted(service) => {
                    pool.release(&service.uid().unwrap_or_default());
                    continue;
                }
            },
            Ok(()) = muted.changed() => services.list(|_| true),
            () = tokio::time::sleep(RETRY), if failed => services.list(|_| true),
            else => return,
        };
        failed = false;
        for service in waiting {
            if wants_address(&service) && !is_muted(&service, &muted.borrow()) {
                failed |= !answer(&centre, &service, &mut pool).await;
            } else if !is_of_type(&service) {
                pool.release(&service.uid().unwrap_or_default());
            }
        }
    }
}

async fn answer(centre: &DataCentre, service: &Service, pool: &mut Pool) -> bool {
    let Some(address) = pool.take(&service.uid().unwrap_or_default()) else {
        tracing::warn!(
            service = service.name_any(),
            "every load balancer address is in use"
        );
        return true;
    };
    let api: Api<Service> = Api::namespaced(
        centre.clients.load_balancer.clone(),
        &service.namespace().unwrap_or_default(),
    );
    let ingress = json!([{"ip": address.to_string(), "ipMode": "VIP"}]);
    let patch = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": ingress}}}));
    match api
        .patch_status(&service.name_any(), &PatchParams::default(), &patch)
        .await
    {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.is_not_found() => true,
        Err(error) => {
            tracing::debug!(service = service.name_any(), %error, "no answer written");
            false
        }
    }
}

fn is_of_type(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| {
        spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none()
    })
}

/// A Service of another class belongs to another load balancer.
fn wants_address(service: &Service) -> bool {
    let status = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref());
    let has_one = status
        .and_then(|status| status.ingress.as_ref())
        .is_some_and(|i| !i.is_empty());
    is_of_type(service) && !has_one && service.metadata.deletion_timestamp.is_none()
}

fn is_muted(service: &Service, muted: &BTreeSet<String>) -> bool {
    let namespace = service.namespace().unwrap_or_default();
    muted.contains(&format!("{namespace}/{}", service.name_any())) || muted.contains(&namespace)
}

#[cfg(test)]
mod tests {
    use super::{Pool, is_muted, wants_address};
    use k8s_openapi::api::core::v1::Service;
    use serde_json::json;

    fn service(spec: &serde_json::Value) -> Service {
        serde_json::from_value(
            json!({"metadata": {"name": "api", "namespace": "guests"}, "spec": spec}),
        )
        .unwrap()
    }

    #[test]
    fn a_service_keeps_its_address_and_a_released_one_is_free() {
        let mut pool = Pool::default();
        let first = pool.take("a");
        assert_eq!(pool.take("a"), first);
        assert_ne!(pool.take("b"), first);
        pool.release("a");
        assert_eq!(pool.take("c"), first);
    }

    #[test]
    fn only_load_balancers_of_no_class_are_answered() {
        assert!(wants_address(&service(&json!({"type": "LoadBalancer"}))));
        assert!(!wants_address(&service(&json!({"type": "ClusterIP"}))));
        let classed = json!({"type": "LoadBalancer", "loadBalancerClass": "x/y"});
        assert!(!wants_address(&service(&classed)));
    }

    #[test]
    fn a_namespace_or_one_service_can_be_muted() {
        let service = service(&json!({"type": "LoadBalancer"}));
        assert!(is_muted(&service, &["guests".to_owned()].into()));
        assert!(is_muted(&service, &["guests/api".to_owned()].into()));
        assert!(!is_muted(&service, &["guests/other".to_owned()].into()));
    }
}
