//! Slim views of kinds of which only a few fields are kept.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::Resource;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

/// An EndpointSlice: its addresses.
#[derive(Resource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[resource(inherit = EndpointSlice)]
pub struct SlimSlice {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Endpoints; absent and empty are the same.
    #[serde(default)]
    pub endpoints: Option<Vec<SlimEndpoint>>,
}

/// An endpoint of a slice.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct SlimEndpoint {
    /// Addresses.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Whether connections are sent there.
    #[serde(default)]
    pub conditions: SlimEndpointConditions,
}

/// Conditions of an endpoint.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct SlimEndpointConditions {
    /// Absent means yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
}

/// Ranges from which Services of the infrastructure cluster get their addresses.
#[derive(Resource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[resource(inherit = ServiceCIDR)]
pub struct ServiceRange {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The ranges.
    #[serde(default)]
    pub spec: ServiceRangeSpec,
}

/// Part of a ServiceCIDR's spec.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ServiceRangeSpec {
    /// One range for each IP family.
    #[serde(default)]
    pub cidrs: Vec<String>,
}
