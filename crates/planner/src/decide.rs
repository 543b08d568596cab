//! The steps of a plan, in order.

mod acceptance;
mod addresses;
mod configuration;
mod deletion;
mod depart;
pub mod endpoint;
mod foundation;
mod joined;
mod machines;
mod policy;
mod replace;
pub(crate) mod rollout;
mod room;

use std::collections::BTreeMap;

use guestcluster_api::names;
use guestcluster_api::{GuestClusterStatus, Reason};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::action::{Action, Hold, Plan, Requeue};
use crate::machines::MachineView;
use crate::observed::Observed;
use crate::ordinals::Ordinals;
use crate::wanted::Wanted;

pub(crate) use acceptance::parts;
pub use acceptance::{Objection, host_refusals, objection};
pub(crate) use deletion::remaining;
pub(crate) use depart::{CALM, MIGRATION_LIMIT, WAITS, repairs};

/// Everything that a step may look at.
pub(crate) struct Context<'a> {
    pub(crate) wanted: &'a Wanted,
    pub(crate) seen: &'a Observed,
    pub(crate) previous: &'a GuestClusterStatus,
    pub(crate) now: Timestamp,
    pub(crate) machines: BTreeMap<String, MachineView<'a>>,
}

/// A plan in the making.
#[derive(Default)]
pub(crate) struct Draft {
    plan: Plan,
}

/// Whether later steps run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Next,
    Stop,
}

type Step = fn(&Context<'_>, &mut Draft) -> Flow;

/// The order matters:
/// - `pause` comes first, since it promises that nothing is written.
/// - `deletion` comes before anything that makes objects.
/// - `finalizer` comes before the first object, so that none can be left behind.
/// - `addresses` and `joined` serve machines that exist, and must not wait for what new ones need.
/// - `depart` comes before `acceptance` as well: a host that is being drained waits for it.
/// - `acceptance` guards all that follows: what cannot be carried out is not begun.
/// - `image` comes before `endpoint`, which may wait: an import takes minutes.
/// - `policy` comes before `endpoint`, since no machine should move without it.
/// - `replace` comes before `machines`, so that a failed machine is not counted as one on its way.
const STEPS: &[(&str, Step)] = &[
    ("pause", pause),
    ("deletion", deletion::step),
    ("finalizer", finalizer),
    ("addresses", addresses::step),
    ("joined", joined::step),
    ("depart", depart::step),
    ("acceptance", acceptance::step),
    ("authorities", foundation::authorities),
    ("image", foundation::image),
    ("policy", policy::step),
    ("endpoint", foundation::endpoint),
    ("kubeconfig", foundation::kubeconfig),
    ("cni", foundation::cni),
    ("server", endpoint::step),
    ("addons", configuration::addons),
    ("replace", replace::step),
    ("machines", machines::step),
];

/// What to do next for one guest cluster.
pub fn plan(
    wanted: &Wanted,
    seen: &Observed,
    previous: &GuestClusterStatus,
    now: Timestamp,
) -> Plan {
    let machines = crate::machines::machines(wanted, seen, previous, now);
    let context = Context {
        wanted,
        seen,
        previous,
        now,
        machines,
    };
    let mut draft = Draft::default();
    for (_, step) in STEPS {
        if step(&context, &mut draft) == Flow::Stop {
            break;
        }
    }
    // A guest has no watch: whatever holds a plan back, what is said of it must not grow old.
    if context.initialised() && !wanted.identity.deleting {
        draft.look_again(context.in_seconds(60), "the guest");
    }
    draft.plan
}

impl Draft {
    pub(crate) fn act(&mut self, action: Action) {
        self.plan.actions.push(action);
    }

    pub(crate) fn has_disruption(&self) -> bool {
        self.plan.actions.iter().any(Action::disruptive)
    }

    /// A machine of this pool begins its first boot in this plan.
    pub(crate) fn begins_join(&self, pool: &str) -> bool {
        let begins =
            |action: &Action| matches!(action, Action::WriteUserData(data) if data.pool == pool);
        self.plan.actions.iter().any(begins)
    }

    /// So many machines a pool is to have now.
    pub(crate) fn size(&mut self, pool: &str, size: u32) {
        self.plan.sizes.insert(pool.to_owned(), size);
    }

    pub(crate) fn hold(&mut self, reason: Reason, message: impl Into<String>) {
        let message = message.into();
        self.plan.holds.push(Hold {
            reason,
            message,
            needs_person: false,
        });
    }

    pub(crate) fn hold_for_person(&mut self, reason: Reason, message: impl Into<String>) {
        let message = message.into();
        self.plan.holds.push(Hold {
            reason,
            message,
            needs_person: true,
        });
    }

    pub(crate) fn look_again(&mut self, at: Timestamp, who: &'static str) {
        let requeue = std::mem::take(&mut self.plan.requeue);
        self.plan.requeue = requeue.sooner(Requeue::At(at, who));
    }
}

impl Context<'_> {
    /// The control plane has answered once; from then on machines join, none initialises.
    pub(crate) fn initialised(&self) -> bool {
        initialised(self.previous, &self.machines)
    }

    pub(crate) fn in_seconds(&self, seconds: i64) -> Timestamp {
        self.now + SignedDuration::from_secs(seconds)
    }

    /// `host:port` under which the guest's API is reached now, once it is known.
    pub(crate) fn endpoint(&self) -> Option<(String, u16)> {
        endpoint::in_use(self.wanted, self.seen, self.previous, &self.machines)
    }

    pub(crate) fn ordinals(&self) -> Ordinals<'_> {
        Ordinals {
            cluster: &self.wanted.identity.name,
            seen: self.seen,
            previous: self.previous,
            machines: &self.machines,
        }
    }
}

/// The control plane has answered once: status says so, or a control-plane machine has joined.
pub(crate) fn initialised(
    previous: &GuestClusterStatus,
    machines: &BTreeMap<String, MachineView<'_>>,
) -> bool {
    let member = |m: &MachineView<'_>| {
        m.pool == names::CONTROL_PLANE_POOL && (m.has_joined() || m.is_settled())
    };
    previous.initialised || machines.values().any(member)
}

fn pause(context: &Context<'_>, draft: &mut Draft) -> Flow {
    if !context.wanted.paused {
        return Flow::Next;
    }
    draft.hold_for_person(
        Reason::PausedByUser,
        "spec.paused is true: nothing is written until it is false again",
    );
    Flow::Stop
}

fn finalizer(context: &Context<'_>, draft: &mut Draft) -> Flow {
    if context.wanted.identity.finalizer {
        return Flow::Next;
    }
    draft.act(Action::AddFinalizer);
    Flow::Stop
}
