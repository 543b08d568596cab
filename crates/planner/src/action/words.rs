//! What is said of an action, and what it may cost.

use super::{Action, Kind, Object, Victim};

impl Action {
    /// Name for events, metrics and logs.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::AddFinalizer => "AddFinalizer",
            Self::RemoveFinalizer => "RemoveFinalizer",
            Self::RecordOrdinals(_) => "RecordOrdinals",
            Self::MintAuthority { .. } => "MintAuthority",
            Self::MintKubeconfig { .. } => "MintKubeconfig",
            Self::Create(_) => "Create",
            Self::Apply(_) => "Apply",
            Self::WriteUserData(_) => "WriteUserData",
            Self::ScrubUserData { .. } => "ScrubUserData",
            Self::ExtendToken { .. } => "ExtendToken",
            Self::DeleteToken { .. } => "DeleteToken",
            Self::LabelNode { .. } => "LabelNode",
            Self::ApplyCni { .. } => "ApplyCni",
            Self::WriteConfiguration { .. } => "WriteConfiguration",
            Self::MoveEndpoint { .. } => "MoveEndpoint",
            Self::UpgradeAddons { .. } => "UpgradeAddons",
            Self::RecordDeparture { .. } => "RecordDeparture",
            Self::SetServing { .. } => "SetServing",
            Self::RuleOutMigration { .. } => "RuleOutMigration",
            Self::MoveLeader { .. } => "MoveLeader",
            Self::SetDrain { .. } => "SetDrain",
            Self::Evict { .. } => "Evict",
            Self::DeleteNode { .. } => "DeleteNode",
            Self::RemoveEtcdMember { .. } => "RemoveEtcdMember",
            Self::Delete { .. } => "Delete",
            Self::RetainDisk { .. } => "RetainDisk",
        }
    }

    /// Takes something away that a running guest may use.
    pub const fn disruptive(&self) -> bool {
        matches!(
            self,
            Self::RemoveEtcdMember { .. }
                | Self::Create(Object {
                    kind: Kind::Migration,
                    ..
                })
                | Self::Delete {
                    object: Victim {
                        kind: Kind::VirtualMachine | Kind::Instance,
                        ..
                    },
                    ..
                }
        )
    }

    /// What it acts on, for people.
    pub fn subject(&self) -> String {
        match self {
            Self::AddFinalizer | Self::RemoveFinalizer | Self::RecordOrdinals(_) => {
                "GuestCluster".to_owned()
            }
            Self::MintAuthority { authority, .. } => format!("authority {authority:?}"),
            Self::MintKubeconfig { .. } => "kubeconfig".to_owned(),
            Self::Create(object) | Self::Apply(object) => {
                format!("{} {}", object.kind.name(), object.name)
            }
            Self::WriteUserData(data) => format!("first boot of {}", data.machine),
            Self::ScrubUserData { machine, .. } => format!("first boot of {machine}"),
            Self::ExtendToken { token } | Self::DeleteToken { token } => {
                format!("bootstrap token {token}")
            }
            Self::LabelNode { node, .. } | Self::DeleteNode { node, .. } => {
                format!("guest Node {node}")
            }
            Self::ApplyCni { .. } => "pod network of the guest".to_owned(),
            Self::WriteConfiguration { .. } => "kubeadm-config of the guest".to_owned(),
            Self::MoveEndpoint { server } => format!("joins and kube-proxy to {server}"),
            Self::UpgradeAddons { version } => format!("kube-proxy and CoreDNS for {version}"),
            Self::RecordDeparture { machine, why } => format!("{machine}: {}", why.as_str()),
            Self::SetServing {
                machine, out_since, ..
            } => match out_since {
                Some(_) => format!("{machine} leaves the endpoint"),
                None => format!("{machine} enters the endpoint"),
            },
            Self::RuleOutMigration { machine, .. } => format!("no migration of {machine}"),
            Self::MoveLeader { from, to } => format!("leadership of {from} to {to:x}"),
            Self::SetDrain { node, since, .. } => match since {
                Some(_) => format!("drain of guest Node {node} begins"),
                None => format!("drain of guest Node {node} ends"),
            },
            Self::Evict { node, pods } => format!("{} Pods of guest Node {node}", pods.len()),
            Self::RemoveEtcdMember { id, machine } => format!("etcd member {id:x} of {machine}"),
            Self::Delete { object, .. } | Self::RetainDisk { object, .. } => {
                format!("{} {}", object.kind.name(), object.name)
            }
        }
    }
}
