//! Carrying a plan out: one action after another, each as one or few calls.

mod departure;
mod first_boot;
mod mint;
mod objects;
#[cfg(test)]
mod tests;

use std::time::Duration;

use guestcluster_api::{GuestCluster, labels, names};
use guestcluster_pki::ServiceAccountKeys;
use guestcluster_planner::action::{Action, Authority};
use guestcluster_planner::observed::GuestPod;
use guestcluster_shell::clock::monotonic;
use guestcluster_shell::error::{Classify, Error as CallError};
use guestcluster_shell::metrics::ActionOutcome;
use kube::{Api, ResourceExt};
use tracing::warn;

use super::observe::endpoint_door;
use super::{Context, Round};
use crate::error::Error;
use crate::guest_api::GuestApi;
use crate::memory::Memory;
use first_boot::configuration;

/// The longest that one action may take, its calls together. A leader that is alive has more time
/// left than this at any moment.
pub(super) const ACTION: Duration = Duration::from_secs(8);

/// How long a visit waits for a service-account key. Other clusters may have work meanwhile.
const KEY: Duration = Duration::from_millis(250);

/// What became of a plan.
pub(super) struct Done<'a> {
    /// The actions that took effect.
    pub(super) actions: Vec<&'a Action>,
    /// An object could not be made because somebody else has its name.
    pub(super) taken: bool,
    /// A key is still being made for an action.
    pub(super) waits_for_key: bool,
    /// The failure that ended the round.
    pub(super) outcome: Result<(), Error>,
}

/// What became of one action.
enum Step {
    Done,
    WaitsForKey,
}

impl Context {
    /// Carries out a plan until something fails.
    pub(super) async fn execute<'a>(&self, round: &Round<'a>, memory: &mut Memory) -> Done<'a> {
        let mut done = Done {
            actions: Vec::new(),
            taken: false,
            waits_for_key: false,
            outcome: Ok(()),
        };
        for action in &round.plan.actions {
            match self.timed(round, action, memory).await {
                Ok(Step::Done) => done.actions.push(action),
                Ok(Step::WaitsForKey) => {
                    done.waits_for_key = true;
                    break;
                }
                Err(Error::Infra(CallError::Taken { call, owner })) => {
                    warn!(cluster = %round.subject.key, %call, %owner, "name taken");
                    let time = monotonic();
                    for name in names_of(action, &round.subject.wanted.identity.name) {
                        memory.taken.insert(name, (owner.clone(), time));
                    }
                    done.taken = true;
                    break;
                }
                Err(error) => {
                    done.outcome = Err(error);
                    break;
                }
            }
        }
        done
    }

    async fn timed(
        &self,
        round: &Round<'_>,
        action: &Action,
        memory: &mut Memory,
    ) -> Result<Step, Error> {
        let key = if needs_key(action) {
            match tokio::time::timeout(KEY, self.keys.take()).await {
                Ok(key) => Some(key.ok_or(Error::NotLeading)?.map_err(Error::Minting)?),
                Err(_elapsed) => return Ok(Step::WaitsForKey),
            }
        } else {
            None
        };
        let begun = monotonic();
        let result = if self.leader.allows(begun, ACTION) {
            let act = Box::pin(self.carry_out(round, action, (key, memory)));
            match tokio::time::timeout(ACTION, act).await {
                Ok(result) => result,
                Err(_elapsed) => {
                    let call = format!("{} {}", action.kind(), action.subject());
                    Err(CallError::Timeout {
                        call,
                        limit: ACTION,
                    }
                    .into())
                }
            }
        } else {
            Err(Error::NotLeading)
        };
        let outcome = match &result {
            Ok(()) => ActionOutcome::Done,
            Err(Error::NotLeading) => ActionOutcome::NotLeading,
            Err(error) => ActionOutcome::Failed(error.class()),
        };
        let took = monotonic().saturating_duration_since(begun);
        self.metrics.acted(action.kind(), took, outcome);
        result.map(|()| Step::Done)
    }

    async fn carry_out(
        &self,
        round: &Round<'_>,
        action: &Action,
        (key, memory): (Option<ServiceAccountKeys>, &mut Memory),
    ) -> Result<(), Error> {
        match action {
            Action::AddFinalizer => self.add_finalizer(round).await,
            Action::RemoveFinalizer => self.remove_finalizer(round).await,
            Action::RecordOrdinals(_) | Action::RecordDeparture { .. } => {
                self.write_status(round.subject, round.status, memory).await
            }
            Action::SetServing { pod, out_since, .. } => {
                self.set_serving(round, pod, *out_since).await
            }
            Action::RuleOutMigration { pod, .. } => self.rule_out_migration(round, pod).await,
            Action::MoveLeader { from, to } => self.move_leader(round, from, *to).await,
            Action::MintAuthority {
                authority,
                metadata,
            } => {
                self.mint_authority(round, (*authority, key), metadata)
                    .await
            }
            Action::MintKubeconfig {
                endpoint,
                metadata,
                former,
            } => {
                self.mint_kubeconfig(round, (endpoint, former.as_ref()), metadata)
                    .await
            }
            Action::Create(object) => self.create(round, object).await,
            Action::Apply(object) => self.apply(round, object).await,
            Action::WriteUserData(recipe) => self.write_user_data(round, recipe).await,
            Action::ScrubUserData {
                machine,
                role,
                secret,
            } => self.scrub_user_data(round, (machine, *role), secret).await,
            Action::Delete { object, why: _ } => self.delete(round, object).await,
            Action::RetainDisk { object, labels } => self.retain(round, object, labels).await,
            Action::RemoveEtcdMember { id, machine } => {
                self.remove_etcd_member(round, *id, machine).await
            }
            Action::ExtendToken { .. }
            | Action::DeleteToken { .. }
            | Action::LabelNode { .. }
            | Action::SetDrain { .. }
            | Action::Evict { .. }
            | Action::DeleteNode { .. }
            | Action::WriteConfiguration { .. }
            | Action::MoveEndpoint { .. }
            | Action::UpgradeAddons { .. }
            | Action::ApplyCni { .. } => self.change_guest(round, action, memory).await,
        }
    }

    /// What is written into the guest itself.
    async fn change_guest(
        &self,
        round: &Round<'_>,
        action: &Action,
        memory: &mut Memory,
    ) -> Result<(), Error> {
        // Whatever comes of it, what the guest said before is out of date.
        self.memories.invalidate(round.subject.key);
        let door = endpoint_door(round.subject, round.seen)
            .ok_or_else(|| Error::Gone("the guest has no endpoint any more".to_owned()))?;
        let guest = self.guest_api(&door);
        match action {
            Action::ExtendToken { token } => {
                let expires = round.now.as_second() + guestcluster_bootstrap::TOKEN_LIFETIME;
                guest.extend_token(token, expires).await
            }
            Action::DeleteToken { token } => guest.delete_token(token).await,
            Action::LabelNode {
                node,
                labels,
                taint_control_plane,
            } => guest.label_node(node, labels, *taint_control_plane).await,
            Action::ApplyCni { digest: _, objects } => guest.apply(objects).await,
            Action::WriteConfiguration {
                digest,
                endpoint,
                names,
            } => {
                let text = configuration(round.subject.wanted, endpoint, names)?;
                guest.write_configuration(digest, &text).await
            }
            Action::MoveEndpoint { server } => guest.move_endpoint(server).await,
            Action::UpgradeAddons { version } => guest.upgrade_addons(version).await,
            Action::SetDrain { node, uid, since } => guest.set_drain(node, uid, *since).await,
            Action::DeleteNode { node, uid } => guest.delete_node(node, uid).await,
            Action::Evict { pods, .. } => evict(&guest, pods, memory).await,
            Action::AddFinalizer
            | Action::RemoveFinalizer
            | Action::RecordOrdinals(_)
            | Action::MintAuthority { .. }
            | Action::MintKubeconfig { .. }
            | Action::Create(_)
            | Action::Apply(_)
            | Action::WriteUserData(_)
            | Action::ScrubUserData { .. }
            | Action::Delete { .. }
            | Action::RetainDisk { .. }
            | Action::RecordDeparture { .. }
            | Action::SetServing { .. }
            | Action::RuleOutMigration { .. }
            | Action::MoveLeader { .. }
            | Action::RemoveEtcdMember { .. } => Err(Error::Malformed(format!(
                "{} is no change of a guest",
                action.kind()
            ))),
        }
    }

    async fn add_finalizer(&self, round: &Round<'_>) -> Result<(), Error> {
        let (api, cluster) = (self.clusters(round), round.subject.cluster);
        if let Some(written) = self
            .writer
            .add_finalizer(&api, cluster, labels::FINALIZER)
            .await?
        {
            self.ledger.wrote(round.subject.key, &written, monotonic());
        }
        Ok(())
    }

    async fn remove_finalizer(&self, round: &Round<'_>) -> Result<(), Error> {
        let (api, cluster) = (self.clusters(round), round.subject.cluster);
        let removed = self
            .writer
            .remove_finalizer(&api, cluster, labels::FINALIZER)
            .await?;
        match removed {
            // The last finalizer: the server has removed the object instead of changing it.
            Some(written) if written.finalizers().is_empty() => {
                self.ledger
                    .removed(round.subject.key, &written, monotonic());
            }
            Some(written) => self.ledger.wrote(round.subject.key, &written, monotonic()),
            None => {}
        }
        Ok(())
    }

    fn clusters(&self, round: &Round<'_>) -> Api<GuestCluster> {
        Api::namespaced(self.client.clone(), &round.subject.key.namespace)
    }
}

/// Asks for evictions, and remembers what was refused.
async fn evict(guest: &GuestApi<'_>, pods: &[GuestPod], memory: &mut Memory) -> Result<(), Error> {
    for pod in pods {
        let refused = guest.evict(pod).await?;
        memory.refused(pod, refused, monotonic());
    }
    Ok(())
}

/// A service-account key takes long to make, so it is fetched before the action's time runs.
fn needs_key(action: &Action) -> bool {
    matches!(
        action,
        Action::MintAuthority {
            authority: Authority::ServiceAccount,
            ..
        }
    )
}

/// The names under which a plan finds out that somebody holds what an action needs: that of the
/// object, and that of its machine.
fn names_of(action: &Action, cluster: &str) -> Vec<String> {
    match action {
        Action::MintAuthority { authority, .. } => vec![authority.secret(cluster)],
        Action::MintKubeconfig { .. } => vec![names::secrets::kubeconfig(cluster)],
        Action::WriteUserData(recipe) => {
            vec![
                names::user_data_secret(&recipe.machine),
                recipe.machine.clone(),
            ]
        }
        Action::Create(object) | Action::Apply(object) => {
            let label = object.body.get("metadata").and_then(|m| m.get("labels"));
            let machine = label.and_then(|labels| labels.get(labels::MACHINE)?.as_str());
            [Some(object.name.clone()), machine.map(str::to_owned)]
                .into_iter()
                .flatten()
                .collect()
        }
        Action::AddFinalizer
        | Action::RemoveFinalizer
        | Action::RecordOrdinals(_)
        | Action::ScrubUserData { .. }
        | Action::ExtendToken { .. }
        | Action::DeleteToken { .. }
        | Action::LabelNode { .. }
        | Action::ApplyCni { .. }
        | Action::RecordDeparture { .. }
        | Action::SetServing { .. }
        | Action::RuleOutMigration { .. }
        | Action::MoveLeader { .. }
        | Action::SetDrain { .. }
        | Action::Evict { .. }
        | Action::DeleteNode { .. }
        | Action::WriteConfiguration { .. }
        | Action::MoveEndpoint { .. }
        | Action::UpgradeAddons { .. }
        | Action::RemoveEtcdMember { .. }
        | Action::Delete { .. }
        | Action::RetainDisk { .. } => Vec::new(),
    }
}
