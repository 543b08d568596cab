//! Who talks to the infrastructure's API server, and how each of them proves it.
//!
//! Every component has its own user, so that the audit log says who wrote what. KubeVirt's
//! webhooks go further: they silently revert status writes to a virtual machine instance unless
//! the writer is one of KubeVirt's own service accounts.

use std::collections::BTreeMap;

use kube::config::AuthInfo;
use kube::{Client, Config};
use rand::Rng;

use crate::addresses::API_PORT;

/// A component that talks to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// The person at the keyboard, and the set-up itself.
    Admin,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// kube-proxy.
    Proxy,
    /// The stand-ins for the hosts' kubelets.
    Kubelet,
    /// The stand-in for the storage provisioner and CDI.
    Storage,
    /// The load-balancer allocator.
    LoadBalancer,
    /// virt-controller.
    VirtController,
    /// virt-api.
    VirtApi,
    /// The stand-ins for the hosts' virt-handlers.
    VirtHandler,
}

impl Identity {
    /// Every identity.
    pub const ALL: [Self; 10] = [
        Self::Admin,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Proxy,
        Self::Kubelet,
        Self::Storage,
        Self::LoadBalancer,
        Self::VirtController,
        Self::VirtApi,
        Self::VirtHandler,
    ];

    /// The name of its kubeconfig.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Proxy => "kube-proxy",
            Self::Kubelet => "kubelet",
            Self::Storage => "storage",
            Self::LoadBalancer => "load-balancer",
            Self::VirtController => "virt-controller",
            Self::VirtApi => "virt-api",
            Self::VirtHandler => "virt-handler",
        }
    }

    /// The user name that the API server sees.
    pub fn user(self) -> &'static str {
        match self {
            Self::Admin => "infra-admin",
            Self::ControllerManager => "system:kube-controller-manager",
            Self::Scheduler => "system:kube-scheduler",
            Self::Proxy => "system:kube-proxy",
            Self::Kubelet => "infra-kubelet",
            Self::Storage => "infra-storage",
            Self::LoadBalancer => "infra-load-balancer",
            Self::VirtController => "system:serviceaccount:kubevirt:kubevirt-controller",
            Self::VirtApi => "system:serviceaccount:kubevirt:kubevirt-apiserver",
            Self::VirtHandler => "system:serviceaccount:kubevirt:kubevirt-handler",
        }
    }

    /// The groups of that user: KubeVirt's identities get no more than the RBAC that KubeVirt
    /// ships, the programs of Kubernetes what its bootstrap policy gives them by name.
    fn groups(self) -> &'static str {
        match self {
            Self::Admin | Self::Kubelet | Self::Storage | Self::LoadBalancer => "system:masters",
            Self::ControllerManager | Self::Scheduler | Self::Proxy => "system:authenticated",
            Self::VirtController | Self::VirtApi | Self::VirtHandler => {
                "system:serviceaccounts,system:serviceaccounts:kubevirt"
            }
        }
    }
}

/// The bearer tokens of one infrastructure, new at each start.
#[derive(Debug, Clone)]
pub struct Tokens(BTreeMap<Identity, String>);

impl Tokens {
    /// Draws a token for every identity.
    pub fn generate() -> Self {
        let mut random = rand::thread_rng();
        Self(
            Identity::ALL
                .into_iter()
                .map(|identity| (identity, format!("{:032x}", random.r#gen::<u128>())))
                .collect(),
        )
    }

    fn token(&self, identity: Identity) -> &str {
        self.0.get(&identity).map_or("", String::as_str)
    }

    /// The file for kube-apiserver's `--token-auth-file`.
    pub fn auth_file(&self) -> String {
        let lines = Identity::ALL.map(|identity| {
            let (token, user) = (self.token(identity), identity.user());
            format!("{token},{user},{user},\"{}\"", identity.groups())
        });
        lines.join("\n") + "\n"
    }

    /// A kubeconfig for `identity`, with the authority's certificate (PEM) inside.
    pub fn kubeconfig(&self, identity: Identity, ca_file: &std::path::Path) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: infra\n\
             clusters:\n- name: infra\n  cluster:\n    server: {}\n    certificate-authority: {}\n\
             users:\n- name: {user}\n  user:\n    token: {}\n\
             contexts:\n- name: infra\n  context: {{cluster: infra, user: \"{user}\"}}\n",
            server(),
            ca_file.display(),
            self.token(identity),
            user = identity.user(),
        )
    }

    /// A client that speaks as `identity`; `ca` is the authority's certificate (DER).
    pub fn client(&self, identity: Identity, ca: &[u8]) -> anyhow::Result<Client> {
        let mut config = Config::new(server().parse()?);
        config.root_cert = Some(vec![ca.to_vec()]);
        config.auth_info = AuthInfo {
            token: Some(self.token(identity).to_owned().into()),
            ..AuthInfo::default()
        };
        // A stand-in must notice an outage that a test makes, not sit in retries for minutes.
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }
}

/// The API server as seen from the processes of the network namespace.
fn server() -> String {
    format!("https://127.0.0.1:{API_PORT}")
}

#[cfg(test)]
mod tests {
    use super::{Identity, Tokens};

    #[test]
    fn every_identity_has_a_token_of_its_own() {
        let tokens = Tokens::generate();
        let file = tokens.auth_file();
        assert_eq!(file.lines().count(), Identity::ALL.len());
        let distinct: std::collections::BTreeSet<_> = file
            .lines()
            .filter_map(|line| line.split(',').next())
            .collect();
        assert_eq!(distinct.len(), Identity::ALL.len());
    }

    #[test]
    fn kubevirt_gets_no_more_than_its_own_rights() {
        let tokens = Tokens::generate();
        let file = tokens.auth_file();
        let handler = file
            .lines()
            .find(|line| line.contains("kubevirt-handler"))
            .unwrap();
        assert!(handler.ends_with("\"system:serviceaccounts,system:serviceaccounts:kubevirt\""));
    }
}
