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
    let Some((host, port)) = guest::endpoint(cluster) else {
        verdict.say(
            Reason::Endpoint,
            title(cluster),
            "it has no controlPlaneEndpoint with host and port",
            "wait until CAPK has given it one",
        );
        return;
    };
    let Some(service) = case.seen.endpoint_service() else {
        let name = capi::endpoint_service(&case.seen.name);
        verdict.say(
            Reason::Endpoint,
            title(cluster),
            format!("its Service {name} is not there"),
            "have CAPK make it again, and see that the guest answers at its endpoint",
        );
        return;
    };
    selector(case, service, verdict);
    address(case, service, &(host, port), verdict);
}

/// A Service that was lost and made again has another address; one of its owner's before it does not
/// matter, as long as the guest answers there.
fn address(case: &Case<'_>, service: &Value, (host, port): &(String, i32), verdict: &mut Verdict) {
    if addresses(service).contains(host) {
        return;
    }
    let served = case.seen.guest.known();
    let answers = served.is_some_and(|guest| guest.server == format!("{host}:{port}"));
    let what = format!(
        "the endpoint {host}:{port} is no address of it ({})",
        addresses(service).join(", ")
    );
    let (reason, cure) = if host.parse::<IpAddr>().is_ok() && !answers {
        (
            Reason::Endpoint,
            "give it back the address that the guest's certificates and kubelets know",
        )
    } else {
        (
            Reason::ForeignEndpoint,
            "see to it that the endpoint goes on leading to the control plane; nobody else does",
        )
    };
    verdict.say(reason, title(service), what, cure);
}

/// Machines that come later are selected by the same labels.
fn selector(case: &Case<'_>, service: &Value, verdict: &mut Verdict) {
    let selector: BTreeMap<String, String> = parsed(service, "/spec/selector");
    let mut wanted = [
        (capi::ROLE, "control-plane"),
        (capi::CLUSTER_NAME, &*case.seen.name),
    ]
    .into_iter();
    if !wanted.all(|(key, value)| selector.get(key).is_some_and(|found| found == value)) {
        verdict.say(
            Reason::Endpoint,
            title(service),
            "it does not select the control plane of this Cluster by CAPK's labels",
            "give it CAPK's selector again",
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
