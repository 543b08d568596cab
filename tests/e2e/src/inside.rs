//! Looking at a guest's etcd from the console of one of its machines.

use anyhow::Context as _;
use serde::Deserialize;

use crate::cluster::Cluster;

/// A member as etcd lists it.
#[derive(Clone, Debug, Deserialize)]
pub struct Member {
    /// ID.
    #[serde(rename = "ID")]
    pub id: u64,
    /// Name; empty before its first start.
    #[serde(default)]
    pub name: String,
    /// Not a voter.
    #[serde(default, rename = "isLearner")]
    pub learner: bool,
}

#[derive(Deserialize)]
struct Added {
    member: Member,
}

#[derive(Deserialize)]
struct MemberList {
    members: Vec<Member>,
}

#[derive(Deserialize)]
struct EndpointStatus {
    #[serde(rename = "Status")]
    status: Status,
}

#[derive(Deserialize)]
struct Status {
    leader: u64,
}

impl Cluster<'_> {
    async fn etcdctl(&self, machine: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let mut argv = vec![
            "etcdctl",
            "--endpoints=https://127.0.0.1:2379",
            "--cacert=/etc/kubernetes/pki/etcd/ca.crt",
            "--cert=/etc/kubernetes/pki/etcd/peer.crt",
            "--key=/etc/kubernetes/pki/etcd/peer.key",
        ];
        argv.extend(arguments);
        self.stage.on_console(self.target(machine), &argv).await
    }

    /// The members of the guest's etcd, asked on one machine.
    pub async fn etcd_members(&self, machine: &str) -> anyhow::Result<Vec<Member>> {
        let text = self
            .etcdctl(machine, &["member", "list", "-w", "json"])
            .await?;
        Ok(serde_json::from_str::<MemberList>(&text)?.members)
    }

    /// Adds a member that nobody will ever start, as a person might, and returns its ID.
    pub async fn gets_a_stranger(&self, address: &str, learner: bool) -> anyhow::Result<u64> {
        let machine = self.control_plane().await?.pop().context("no machine")?;
        let url = format!("--peer-urls=https://{address}:2380");
        let mut arguments = vec!["member", "add", "stranger", &url, "-w", "json"];
        arguments.extend(learner.then_some("--learner"));
        let text = self.etcdctl(&machine, &arguments).await?;
        Ok(serde_json::from_str::<Added>(&text)?.member.id)
    }

    /// The machine whose member leads.
    pub async fn etcd_leader(&self) -> anyhow::Result<String> {
        let machine = self
            .control_plane()
            .await?
            .into_iter()
            .next()
            .context("no machine")?;
        let text = self
            .etcdctl(&machine, &["endpoint", "status", "-w", "json"])
            .await?;
        let status = serde_json::from_str::<Vec<EndpointStatus>>(&text)?;
        let leader = status.first().context("no status")?.status.leader;
        let members = self.etcd_members(&machine).await?;
        let member = members
            .into_iter()
            .find(|member| member.id == leader)
            .context("no leader")?;
        Ok(member.name)
    }

    /// ID of a machine's member.
    pub async fn member_id(&self, machine: &str) -> anyhow::Result<u64> {
        let members = self.etcd_members(machine).await?;
        let own = members.into_iter().find(|member| member.name == machine);
        Ok(own.with_context(|| format!("{machine} is no member"))?.id)
    }

    /// Fails unless every control-plane machine has one voting, answering member.
    pub async fn etcd_is_whole(&self) -> anyhow::Result<()> {
        let machines = self.control_plane().await?;
        let first = machines.first().context("no machine")?;
        let mut voters: Vec<String> = self
            .etcd_members(first)
            .await?
            .into_iter()
            .filter(|m| !m.learner)
            .map(|m| m.name)
            .collect();
        voters.sort();
        anyhow::ensure!(
            voters == machines,
            "voters are {voters:?}, machines {machines:?}"
        );
        self.etcd_answers(first).await
    }

    /// Fails unless every member answers for itself, asked from one machine.
    pub async fn etcd_answers(&self, machine: &str) -> anyhow::Result<()> {
        let arguments = ["endpoint", "health", "--cluster"];
        self.etcdctl(machine, &arguments).await.map(drop)
    }
}
