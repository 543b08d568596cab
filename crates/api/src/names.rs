//! Names of objects, all functions of cluster, pool and ordinal. Lengths are checked once, at
//! admission: a cluster's name has at most [`MAX_CLUSTER`] letters and a pool's at most
//! [`MAX_POOL`], so that every name below is a valid host name and label value (63 letters).

/// Longest name of a GuestCluster.
pub const MAX_CLUSTER: usize = 30;
/// Longest name of a pool.
pub const MAX_POOL: usize = 20;
/// Pool name of the control plane; users cannot take it.
pub const CONTROL_PLANE_POOL: &str = "cp";

/// `<cluster>-<pool>-<n>`: VM, address Service, root disk, guest Node, host name and etcd member.
/// `ordinal` counts up per pool and is never used twice.
pub fn machine(cluster: &str, pool: &str, ordinal: u32) -> String {
    format!("{cluster}-{pool}-{ordinal}")
}

/// The ordinal in `name`, if it is the name of a machine of this cluster and pool.
pub fn ordinal(cluster: &str, pool: &str, name: &str) -> Option<u32> {
    let rest = name.strip_prefix(cluster)?.strip_prefix('-')?;
    let digits = rest.strip_prefix(pool)?.strip_prefix('-')?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    plain.then(|| digits.parse().ok()).flatten()
}

/// The guest API's endpoint Service.
pub fn endpoint_service(cluster: &str) -> String {
    format!("{cluster}-api")
}

/// KubeVirt's MigrationPolicy for the machines of a cluster. It is in no namespace: neither part has a
/// dot, so that no two clusters share a name, and both together stay far below 253 letters.
pub fn migration_policy(namespace: &str, cluster: &str) -> String {
    format!("{namespace}.{cluster}")
}

/// First-boot document of a machine.
pub fn user_data_secret(machine: &str) -> String {
    format!("{machine}-user-data")
}

/// Root disk of a machine: a DataVolume and its claim.
pub fn root_disk(machine: &str) -> String {
    format!("{machine}-root")
}

/// The separate etcd disk of a control-plane machine.
pub fn etcd_disk(machine: &str) -> String {
    format!("{machine}-etcd")
}

/// Golden claim of an image source in a namespace; `digest` is the hexadecimal digest of the source.
pub fn golden_image(digest: &str) -> String {
    format!("guest-image-{}", digest.get(..16).unwrap_or(digest))
}

/// Secrets with Cluster API's names and formats.
pub mod secrets {
    /// Certificate authority of the guest's API.
    pub fn ca(cluster: &str) -> String {
        format!("{cluster}-ca")
    }
    /// Certificate authority of etcd.
    pub fn etcd(cluster: &str) -> String {
        format!("{cluster}-etcd")
    }
    /// Certificate authority of the front proxy.
    pub fn proxy(cluster: &str) -> String {
        format!("{cluster}-proxy")
    }
    /// Key pair that signs service-account tokens.
    pub fn service_account(cluster: &str) -> String {
        format!("{cluster}-sa")
    }
    /// Administrator's kubeconfig, key `value`.
    pub fn kubeconfig(cluster: &str) -> String {
        format!("{cluster}-kubeconfig")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_names_round_trip_and_foreign_names_do_not_parse() {
        assert_eq!(ordinal("prod", "cp", &machine("prod", "cp", 12)), Some(12));
        for foreign in [
            "prod-cp-",
            "prod-cp-01",
            "prod-cp-1a",
            "prod-general-1",
            "prod2-cp-1",
            "prod-cp-+1",
        ] {
            assert_eq!(ordinal("prod", "cp", foreign), None, "{foreign}");
        }
    }

    #[test]
    fn the_longest_names_fit_a_label_value() {
        let name = machine(&"c".repeat(MAX_CLUSTER), &"p".repeat(MAX_POOL), 99_999);
        assert!(name.len() <= 63 && root_disk(&name).len() <= 63, "{name}");
    }
}
