//! The endpoint stays what it is: it is in every kubeconfig and every certificate.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use super::{Case, Reason, Verdict};
use crate::adopt::guest;
use crate::adopt::seen::title;
use crate::capi;
use crate::import::value::{list, parsed, text};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    let Some(cluster) = case.seen.cluster() else {
        return;
    };
    let mut lost = |about: String, what: String, cure: &str| {
        verdict.say(Reason::Endpoint, about, what, cure);
    };
    let Some((host, port)) = guest::endpoint(cluster) else {
        lost(
            title(cluster),
            "it has no controlPlaneEndpoint with host and port".to_owned(),
            "wait until CAPK has given it one",
        );
        return;
    };
    let Some(service) = case.seen.endpoint_service() else {
        let name = capi::endpoint_service(&case.seen.name);
        let cure = "have CAPK make it again, and see that the guest answers at its endpoint";
        lost(
            title(cluster),
            format!("its Service {name} is not there"),
            cure,
        );
        return;
    };
    let selector: BTreeMap<String, String> = parsed(service, "/spec/selector");
    let mut wanted = [
        (capi::ROLE, "control-plane"),
        (capi::CLUSTER_NAME, &*case.seen.name),
    ]
    .into_iter();
    let leads = wanted.all(|(key, value)| selector.get(key).is_some_and(|found| found == value));
    if !leads {
        lost(
            title(service),
            format!(
                "it does not select {}: control-plane of this Cluster",
                capi::ROLE
            ),
            "give it CAPK's selector again",
        );
    }
    if addresses(service).contains(&host) {
        return;
    }
    let served = case.seen.guest.known();
    let answers = served.is_some_and(|guest| guest.server == format!("{host}:{port}"));
    if host.parse::<IpAddr>().is_ok() && !answers {
        lost(
            title(service),
            format!(
                "{host} is no address of it ({})",
                addresses(service).join(", ")
            ),
            "give it back the address that the guest's certificates and kubelets know",
        );
    } else {
        verdict.say(
            Reason::ForeignEndpoint,
            title(cluster),
            format!(
                "its endpoint {host}:{port} is no address of {}",
                title(service)
            ),
            "see to it that it goes on leading to the control plane; nobody else does",
        );
    }
}

/// Addresses and names under which a Service is reached.
fn addresses(service: &Value) -> Vec<String> {
    let own = text(service, "/spec/clusterIP");
    let balancers = list(service, "/status/loadBalancer/ingress").iter();
    let balancers = balancers.filter_map(|one| text(one, "/ip").or_else(|| text(one, "/hostname")));
    balancers.chain(own).collect()
}
