//! Devices of hosts that machines hold.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Devices of one name that each machine of a pool holds, and no other machine with it. A machine
/// that holds any never moves to another host while it runs.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// The resource as which hosts offer the device, such as `nvidia.com/GA102GL_A10`: a
    /// `resourceName` of `permittedHostDevices` in the KubeVirt object, and the `deviceName` of the
    /// VirtualMachine.
    #[schemars(length(min = 1, max = 308))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && !self.contains('kubernetes.io/') && !self.startsWith('devices.kubevirt.io/') && !self.startsWith('requests.')")
        .message("deviceName must be a resourceName of permittedHostDevices in the KubeVirt object, written like nvidia.com/GA102GL_A10"))]
    pub device_name: String,
    /// `GPU`, one of the VirtualMachine's `gpus`, without a display; or `HostDevice`, one of its
    /// `hostDevices`, which may be any other PCI, mediated or USB device.
    #[serde(default)]
    pub kind: DeviceKind,
    /// How many each machine holds.
    #[serde(default = "one")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 16")
        .message("count must be a whole number from 1 to 16: each machine of the pool holds so many"))]
    pub count: i32,
}

/// As what a machine gets a device.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceKind {
    /// A graphics processor, whole or a share of one (vGPU).
    #[default]
    #[serde(rename = "GPU")]
    Gpu,
    /// Any other device.
    HostDevice,
}

const fn one() -> i32 {
    1
}
