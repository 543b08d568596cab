#![allow(unreachable_pub, reason = "a module of a test program has no outside")]
//! First-boot documents for a small cluster, as a bootstrap provider writes them.
//!
//! Control planes are known by addresses of their own on `lo`, to which the router has routes, so that a
//! machine may come back with another address.

/// What a machine becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The first control plane.
    Init,
    /// Another control plane.
    JoinControlPlane,
    /// A worker.
    JoinWorker,
}

/// The first control plane's address, which is also the cluster's endpoint.
pub const ENDPOINT: &str = "10.96.0.10";

const TOKEN: &str = "abcdef.0123456789abcdef";
const CERTIFICATE_KEY: &str = "e6a2eb8581237ab72a4f494f30285ec12a9694d750b9785706a83bfcbbbd2204";

/// The address that control plane `number` keeps.
pub fn service_address(number: u8) -> String {
    format!("10.96.0.{}", 10 + number)
}

/// The user-data of machine `name`, the `number`th of the cluster counted from 0.
pub fn document(role: Role, name: &str, number: u8, kubernetes: &str) -> String {
    let verb = if role == Role::Init {
        "init --upload-certs"
    } else {
        "join"
    };
    format!(
        r#"#cloud-config
bootcmd:
{address}write_files:
- path: /etc/cni/net.d/10-test.conflist
  content: |
    {{"cniVersion": "1.0.0", "name": "test", "plugins": [{{"type": "ptp", "ipam": {{"type": "host-local",
      "ranges": [[{{"subnet": "10.200.{number}.0/24"}}]], "routes": [{{"dst": "0.0.0.0/0"}}]}}}}]}}
- path: /etc/kubeadm.yaml
  content: |
{configuration}
runcmd:
- sysctl -w net.ipv4.ip_forward=1
- echo $(($(cat /var/lib/boots 2>/dev/null || echo 0) + 1)) > /var/lib/boots
- systemctl enable --now containerd kubelet
- kubeadm {verb} --config /etc/kubeadm.yaml && touch /run/bootstrapped || touch /run/failed
"#,
        address = address_command(role, number),
        configuration = indent(&configuration(role, name, number, kubernetes)),
    )
}

fn address_command(role: Role, number: u8) -> String {
    if role == Role::JoinWorker {
        return "- [\"true\"]\n".to_owned();
    }
    format!(
        "- [ip, addr, replace, {}/32, dev, lo]\n",
        service_address(number)
    )
}

fn configuration(role: Role, name: &str, number: u8, kubernetes: &str) -> String {
    let service = service_address(number);
    let node = format!(
        "nodeRegistration: {{name: {name}, criSocket: \"unix:///run/containerd/containerd.sock\"}}"
    );
    let control_plane = match role {
        Role::Init => return init_configuration(&service, &node, kubernetes),
        Role::JoinControlPlane => format!(
            "controlPlane:\n  localAPIEndpoint: {{advertiseAddress: {service}}}\n  \
             certificateKey: {CERTIFICATE_KEY}\n"
        ),
        Role::JoinWorker => String::new(),
    };
    format!(
        "apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
{control_plane}{node}
discovery:
  bootstrapToken:
    apiServerEndpoint: {ENDPOINT}:6443
    token: {TOKEN}
    unsafeSkipCAVerification: true
"
    )
}

fn init_configuration(service: &str, node: &str, kubernetes: &str) -> String {
    format!(
        "apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens: [{{token: {TOKEN}}}]
certificateKey: {CERTIFICATE_KEY}
localAPIEndpoint: {{advertiseAddress: {service}, bindPort: 6443}}
{node}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: {kubernetes}
controlPlaneEndpoint: {ENDPOINT}:6443
networking: {{podSubnet: 10.200.0.0/16, serviceSubnet: 10.201.0.0/16}}
etcd:
  local:
    extraArgs:
    - {{name: listen-client-urls, value: \"https://0.0.0.0:2379\"}}
    - {{name: listen-peer-urls, value: \"https://0.0.0.0:2380\"}}
    - {{name: peer-skip-client-san-verification, value: \"true\"}}
"
    )
}

fn indent(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("    {line}")).collect();
    lines.join("\n")
}
