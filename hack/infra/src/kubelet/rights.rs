//! As whom a container runs.

use k8s_openapi::api::core::v1::{Container, PodSpec};

/// The user of the operator's image.
const IMAGE_USER: u32 = 65532;

/// What a container may do, from its security context and its Pod's.
pub struct Rights {
    /// The user.
    pub user: u32,
    /// The group.
    pub group: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// It cannot write to its root.
    pub read_only_root: bool,
}

impl Rights {
    /// Reads both contexts; an error says why the container must not start.
    pub fn read(spec: &PodSpec, container: &Container) -> anyhow::Result<Self> {
        let pod = spec.security_context.clone().unwrap_or_default();
        let own = container.security_context.clone().unwrap_or_default();
        let number = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok());
        let user = number(own.run_as_user.or(pod.run_as_user)).unwrap_or(IMAGE_USER);
        if own.run_as_non_root.or(pod.run_as_non_root).unwrap_or(false) {
            anyhow::ensure!(
                user != 0,
                "container has runAsNonRoot and would run as root"
            );
        }
        let group = number(own.run_as_group.or(pod.run_as_group)).unwrap_or(user);
        let supplemental = pod
            .supplemental_groups
            .unwrap_or_default()
            .into_iter()
            .map(Some);
        let groups = supplemental
            .chain([pod.fs_group])
            .filter_map(number)
            .collect();
        let read_only_root = own.read_only_root_filesystem.unwrap_or(false);
        Ok(Self {
            user,
            group,
            groups,
            read_only_root,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Rights;
    use k8s_openapi::api::core::v1::{Container, PodSpec};
    use serde_json::json;

    #[test]
    fn a_container_runs_as_its_context_says_and_never_as_a_forbidden_root() {
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [],
            "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "fsGroup": 2000},
        }))
        .unwrap();
        let container = |context| -> Container {
            serde_json::from_value(json!({"name": "c", "securityContext": context})).unwrap()
        };
        let rights = Rights::read(&spec, &container(json!({}))).unwrap();
        assert_eq!(
            (rights.user, rights.group, rights.groups),
            (1000, 1000, vec![2000])
        );
        assert!(Rights::read(&spec, &container(json!({"runAsUser": 0}))).is_err());
    }
}
