//! KubeVirt's limits of migrations, for the machines of clusters that can migrate.

use guestcluster_api::names;

use super::foundation::is_taken;
use super::replace::delete;
use super::{Context, Draft, Flow};
use crate::action::{Action, Kind};
use crate::render;

/// Never holds anything up: without a policy machines move under the limits of KubeVirt's own
/// installation.
pub(super) fn step(context: &Context<'_>, draft: &mut Draft) -> Flow {
    let (wanted, seen) = (context.wanted, context.seen);
    let Some(policies) = &seen.migration_policies else {
        return Flow::Next;
    };
    if !wanted
        .pools
        .iter()
        .any(|pool| render::can_migrate(wanted, pool))
    {
        for (name, policy) in policies {
            let why = "no machine of the cluster can migrate any more";
            delete(draft, (Kind::MigrationPolicy, name, &policy.meta), why);
        }
        return Flow::Next;
    }
    let identity = &wanted.identity;
    let name = names::migration_policy(&identity.namespace, &identity.name);
    if is_taken(context, draft, &name) {
        return Flow::Next;
    }
    let policy = policies.get(&name);
    let digest = render::migration_policy_digest(wanted);
    if policy.and_then(|policy| policy.render.as_ref()) != Some(&digest) {
        draft.act(Action::Apply(render::migration_policy(wanted)));
    }
    Flow::Next
}
