//! Whether the authorities' Secrets are what they should be: read when they have changed.

use std::collections::BTreeMap;

use guestcluster_pki::{CertificateAuthority, SecretData, ServiceAccountKeys};
use guestcluster_planner::Observed;
use guestcluster_planner::action::Authority;
use tracing::debug;

use super::Subject;
use crate::error::Error;
use crate::guest_cluster::Context;
use crate::memory::Memory;

impl Context {
    /// What is wrong with the authorities' Secrets, by name. One that cannot be read now counts as
    /// it did when it was last read: unknown is not damaged.
    pub(super) async fn check_authorities(
        &self,
        subject: &Subject<'_>,
        seen: &Observed,
        memory: &mut Memory,
    ) -> BTreeMap<String, String> {
        let cluster = &subject.wanted.identity.name;
        let changed = Authority::ALL.into_iter().filter_map(|authority| {
            let name = authority.secret(cluster);
            let version = seen.secrets.get(&name)?.meta.resource_version.clone();
            let known = memory
                .authorities
                .get(&name)
                .is_some_and(|(v, _)| *v == version);
            (!known).then_some((authority, name, version))
        });
        let read = changed.map(|(authority, name, version)| async move {
            let data = self.secrets.read(&subject.key.namespace, &name).await;
            (authority, name, version, data)
        });
        for (authority, name, version, data) in futures::future::join_all(read).await {
            match data {
                Ok(data) => {
                    memory
                        .authorities
                        .insert(name, (version, complaint(authority, &data)));
                }
                Err(Error::NoSecret(_)) => {}
                Err(error) => debug!(%error, secret = name, "authority not read"),
            }
        }
        memory
            .authorities
            .retain(|name, _| seen.secrets.contains_key(name));
        let damaged = |(name, (_, complaint)): (&String, &(String, Option<String>))| {
            complaint.clone().map(|complaint| (name.clone(), complaint))
        };
        memory.authorities.iter().filter_map(damaged).collect()
    }
}

fn complaint(authority: Authority, data: &SecretData) -> Option<String> {
    let checked = match authority {
        Authority::Kubernetes | Authority::Etcd | Authority::FrontProxy => {
            CertificateAuthority::from_secret(data).map(drop)
        }
        Authority::ServiceAccount => ServiceAccountKeys::from_secret(data).map(drop),
    };
    checked.err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use guestcluster_pki::{Authority as Kind, Validity};

    use super::*;

    #[test]
    fn a_sound_authority_draws_no_complaint_and_another_key_does() {
        let validity = Validity {
            not_before: 0,
            not_after: 4_000_000_000,
        };
        let make = || {
            CertificateAuthority::generate(Kind::Etcd, validity)
                .unwrap()
                .to_secret()
        };
        let (one, other) = (make(), make());
        assert_eq!(complaint(Authority::Etcd, &one), None);
        let mixed = SecretData::from_iter([
            ("tls.crt", one.get("tls.crt").unwrap().to_vec()),
            ("tls.key", other.get("tls.key").unwrap().to_vec()),
        ]);
        assert!(
            complaint(Authority::Etcd, &mixed)
                .unwrap()
                .contains("does not belong")
        );
    }
}
