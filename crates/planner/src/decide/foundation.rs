//! What a cluster needs before its machines: authorities, image, endpoint, kubeconfig; and the pod
//! network once it answers.

use guestcluster_api::Reason;
use guestcluster_api::labels::secret_purpose;
use guestcluster_api::names;
use guestcluster_api::spec::Cni;

use super::replace::delete;
use super::{Context, Draft, Flow};
use crate::action::{Action, Authority, Kind, Victim};
use crate::observed::Disk;
use crate::render;

/// A missing authority is made only while nothing depends on it. Afterwards a new one would not
/// match the certificates on the machines: a person must bring the old one back.
pub(super) fn authorities(context: &Context<'_>, draft: &mut Draft) -> Flow {
    let cluster = &context.wanted.identity.name;
    if let Some((name, complaint)) = context.seen.damaged_secrets.iter().next() {
        draft.hold_for_person(
            Reason::CertificateDamaged,
            format!("Secret {name} is damaged: {complaint}; restore it from a backup"),
        );
        return Flow::Stop;
    }
    let missing = Authority::ALL
        .into_iter()
        .filter(|authority| {
            !context
                .seen
                .secrets
                .contains_key(&authority.secret(cluster))
        })
        .collect::<Vec<_>>();
    let depended_on = context
        .machines
        .values()
        .any(|machine| machine.vm.is_some() || machine.user_data.is_some());
    if let (Some(authority), true) = (missing.first(), depended_on) {
        draft.hold_for_person(
            Reason::CertificateDamaged,
            format!(
                "Secret {} is gone while machines depend on it; restore it from a backup",
                authority.secret(cluster)
            ),
        );
        return Flow::Stop;
    }
    for authority in missing {
        let name = authority.secret(cluster);
        if is_taken(context, draft, &name) {
            return Flow::Stop;
        }
        let metadata = render::secret_metadata(context.wanted, &name, secret_purpose::AUTHORITY);
        draft.act(Action::MintAuthority {
            authority,
            metadata,
        });
    }
    Flow::Next
}

/// The golden image, unless the user brings a claim of their own.
pub(super) fn image(context: &Context<'_>, draft: &mut Draft) -> Flow {
    let ours = context.wanted.image.pvc.is_none();
    if ours
        && !context
            .seen
            .disks
            .contains_key(&render::golden_name(context.wanted))
    {
        draft.act(Action::Create(render::golden(context.wanted)));
    }
    // A clone that is under way needs its image, whatever the specification says by now.
    let is_filled = |disk: &Disk| disk.phase.as_deref() == Some("Succeeded");
    if context.initialised() && context.seen.disks.values().all(is_filled) {
        for (name, meta) in &context.seen.stale_images {
            let why = "no cluster of the namespace uses this image any more";
            delete(draft, (Kind::DataVolume, name, meta), why);
        }
    }
    Flow::Next
}

pub(super) fn endpoint(context: &Context<'_>, draft: &mut Draft) -> Flow {
    let name = names::endpoint_service(&context.wanted.identity.name);
    if is_taken(context, draft, &name) {
        return Flow::Stop;
    }
    let service = context.seen.services.get(&name);
    let digest = render::endpoint_digest(context.wanted);
    if service.and_then(|service| service.render.as_ref()) != Some(&digest) {
        draft.act(Action::Apply(render::endpoint_service(context.wanted)));
    }
    if context.endpoint().is_some() {
        return Flow::Next;
    }
    draft.hold(
        Reason::EndpointPending,
        format!(
            "Service {name} has no address yet: the infrastructure cluster's load balancer must \
             give it one, or choose another spec.controlPlane.endpoint.type"
        ),
    );
    Flow::Stop
}

pub(super) fn kubeconfig(context: &Context<'_>, draft: &mut Draft) -> Flow {
    let cluster = &context.wanted.identity.name;
    let name = names::secrets::kubeconfig(cluster);
    let authority = Authority::Kubernetes.secret(cluster);
    let ready = context.seen.secrets.contains_key(&authority);
    let endpoint = context.endpoint().filter(|_| ready);
    let former = context.seen.secrets.get(&name);
    let is_good = |server: &str| {
        former.is_some_and(|former| {
            let lasts = former.renew_at.is_none_or(|at| context.now < at);
            lasts && former.server.as_deref() == Some(server)
        })
    };
    let endpoint = endpoint.filter(|endpoint| !is_good(&super::endpoint::server(endpoint)));
    if let Some(endpoint) = endpoint {
        if is_taken(context, draft, &name) {
            return Flow::Stop;
        }
        let metadata = render::secret_metadata(context.wanted, &name, secret_purpose::KUBECONFIG);
        let former = former.map(|former| Victim {
            kind: Kind::Secret,
            name: name.clone(),
            uid: former.meta.uid.clone(),
            resource_version: former.meta.resource_version.clone(),
        });
        draft.act(Action::MintKubeconfig {
            endpoint,
            metadata,
            former,
        });
    }
    Flow::Next
}

pub(super) fn cni(context: &Context<'_>, draft: &mut Draft) -> Flow {
    let guest = context.seen.guest.known();
    let ours = guest.filter(|_| context.wanted.cni == Cni::Flannel);
    let (Some(guest), Some((host, port))) = (ours, context.endpoint()) else {
        return Flow::Next;
    };
    let digest = render::cni_digest(context.wanted, (&host, port));
    if guest.cni.as_ref() != Some(&digest) {
        draft.act(Action::ApplyCni {
            digest,
            objects: render::flannel(context.wanted, (&host, port)),
        });
    }
    Flow::Next
}

/// Somebody else holds a name that we need: said, and nothing of theirs is touched.
pub(super) fn is_taken(context: &Context<'_>, draft: &mut Draft, name: &str) -> bool {
    let Some(holder) = context.seen.taken.get(name) else {
        return false;
    };
    draft.hold_for_person(
        Reason::NameTaken,
        format!(
            "the name {name} is taken by {holder}, which does not belong to this cluster: remove \
             or rename it"
        ),
    );
    true
}
