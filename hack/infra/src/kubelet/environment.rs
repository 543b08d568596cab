//! The environment of a container, from its spec and what the spec refers to.

use std::collections::BTreeMap;

use anyhow::Context;
use k8s_openapi::api::core::v1::{Container, EnvVar, ObjectFieldSelector, Pod};

use crate::addresses::KUBERNETES_SERVICE;

/// What environment variables can refer to.
pub trait Referents {
    /// The data of a ConfigMap of the Pod's namespace.
    fn config_map(&self, name: &str) -> Option<BTreeMap<String, String>>;
    /// The data of a Secret of the Pod's namespace.
    fn secret(&self, name: &str) -> Option<BTreeMap<String, String>>;
}

/// The complete environment of `container`.
pub fn environment(
    pod: &Pod,
    container: &Container,
    referents: &dyn Referents,
) -> anyhow::Result<Vec<(String, String)>> {
    let mut variables = vec![
        (
            "PATH".to_owned(),
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into(),
        ),
        (
            "HOSTNAME".to_owned(),
            pod.metadata.name.clone().unwrap_or_default(),
        ),
        (
            "KUBERNETES_SERVICE_HOST".to_owned(),
            KUBERNETES_SERVICE.to_string(),
        ),
        ("KUBERNETES_SERVICE_PORT".to_owned(), "443".to_owned()),
        ("KUBERNETES_SERVICE_PORT_HTTPS".to_owned(), "443".to_owned()),
    ];
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.clone().unwrap_or_default();
        let data = match (&source.config_map_ref, &source.secret_ref) {
            (Some(map), _) => required(referents.config_map(&map.name), map.optional, &map.name)?,
            (None, Some(secret)) => required(
                referents.secret(&secret.name),
                secret.optional,
                &secret.name,
            )?,
            (None, None) => BTreeMap::new(),
        };
        variables.extend(
            data.into_iter()
                .map(|(key, value)| (format!("{prefix}{key}"), value)),
        );
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value(pod, variable, referents)? {
            let value = expand(&value, &variables);
            variables.push((variable.name.clone(), value));
        }
    }
    // The last one of a name holds.
    let mut last = BTreeMap::new();
    last.extend(variables);
    Ok(last.into_iter().collect())
}

fn required(
    data: Option<BTreeMap<String, String>>,
    optional: Option<bool>,
    name: &str,
) -> anyhow::Result<BTreeMap<String, String>> {
    match (data, optional) {
        (Some(data), _) => Ok(data),
        (None, Some(true)) => Ok(BTreeMap::new()),
        (None, _) => anyhow::bail!("\"{name}\" not found"),
    }
}

fn value(
    pod: &Pod,
    variable: &EnvVar,
    referents: &dyn Referents,
) -> anyhow::Result<Option<String>> {
    let Some(source) = &variable.value_from else {
        return Ok(Some(variable.value.clone().unwrap_or_default()));
    };
    if let Some(field) = &source.field_ref {
        return field_value(pod, field).map(Some);
    }
    let (found, key, optional) = if let Some(secret) = &source.secret_key_ref {
        (referents.secret(&secret.name), &secret.key, secret.optional)
    } else if let Some(map) = &source.config_map_key_ref {
        (referents.config_map(&map.name), &map.key, map.optional)
    } else {
        anyhow::bail!(
            "variable {} comes from a source that is not supported",
            variable.name
        )
    };
    match found.and_then(|data| data.get(key).cloned()) {
        Some(value) => Ok(Some(value)),
        None if optional == Some(true) => Ok(None),
        None => anyhow::bail!("variable {}: key {key} not found", variable.name),
    }
}

/// The value of a field of the Pod, as the downward API names it.
pub fn field_value(pod: &Pod, field: &ObjectFieldSelector) -> anyhow::Result<String> {
    let (metadata, spec) = (&pod.metadata, pod.spec.as_ref());
    let status = pod.status.as_ref();
    let path = field.field_path.as_str();
    let found = match path {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => metadata.namespace.clone(),
        "metadata.uid" => metadata.uid.clone(),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        "status.podIP" | "status.podIPs" => status.and_then(|status| status.pod_ip.clone()),
        "status.hostIP" => status.and_then(|status| status.host_ip.clone()),
        _ => {
            let entry = |prefix: &str, map: &Option<BTreeMap<String, String>>| {
                let key = path.strip_prefix(prefix)?.strip_suffix("']")?;
                Some(
                    map.as_ref()
                        .and_then(|map| map.get(key).cloned())
                        .unwrap_or_default(),
                )
            };
            entry("metadata.labels['", &metadata.labels)
                .or_else(|| entry("metadata.annotations['", &metadata.annotations))
        }
    };
    found.with_context(|| format!("field {path} is not supported or not set"))
}

/// Replaces `$(NAME)` by the variable's value; what names no variable stays, `$$` is one `$`.
pub fn expand(text: &str, variables: &[(String, String)]) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let reference = after
            .strip_prefix('(')
            .and_then(|inner| inner.split_once(')'));
        if let Some(tail) = after.strip_prefix('$') {
            expanded.push('$');
            rest = tail;
        } else if let Some((name, tail)) = reference {
            match variables.iter().rev().find(|(known, _)| known == name) {
                Some((_, value)) => expanded.push_str(value),
                None => expanded.push_str(&rest[at..rest.len() - tail.len()]),
            }
            rest = tail;
        } else {
            expanded.push('$');
            rest = after;
        }
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use super::{Referents, environment, expand};
    use k8s_openapi::api::core::v1::{Container, Pod};
    use serde_json::json;
    use std::collections::BTreeMap;

    struct Nothing;

    impl Referents for Nothing {
        fn config_map(&self, _: &str) -> Option<BTreeMap<String, String>> {
            None
        }

        fn secret(&self, name: &str) -> Option<BTreeMap<String, String>> {
            (name == "s").then(|| [("key".to_owned(), "value".to_owned())].into())
        }
    }

    fn read(env: &serde_json::Value) -> anyhow::Result<BTreeMap<String, String>> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "pod", "namespace": "ns", "labels": {"a/b": "c"}},
            "status": {"podIP": "10.244.0.10"},
        }))?;
        let container: Container = serde_json::from_value(json!({"name": "c", "env": env}))?;
        Ok(environment(&pod, &container, &Nothing)?
            .into_iter()
            .collect())
    }

    #[test]
    fn variables_come_from_values_fields_and_secrets() {
        let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
        let found = read(&json!([
            {"name": "PLAIN", "value": "x"},
            {"name": "POD_NAME", "valueFrom": field("metadata.name")},
            {"name": "POD_IP", "valueFrom": field("status.podIP")},
            {"name": "LABEL", "valueFrom": field("metadata.labels['a/b']")},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}},
            {"name": "BOTH", "value": "$(PLAIN)-$(POD_NAME)-$(NONE)"},
        ]))
        .unwrap();
        let expected = [
            ("PLAIN", "x"),
            ("POD_NAME", "pod"),
            ("POD_IP", "10.244.0.10"),
            ("LABEL", "c"),
            ("SECRET", "value"),
            ("BOTH", "x-pod-$(NONE)"),
            ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
        ];
        for (name, value) in expected {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    #[test]
    fn a_missing_secret_is_an_error_unless_it_is_optional() {
        let reference = |optional: bool| {
            json!([{"name": "A", "valueFrom":
                {"secretKeyRef": {"name": "none", "key": "key", "optional": optional}}}])
        };
        assert!(read(&reference(false)).is_err());
        assert!(!read(&reference(true)).unwrap().contains_key("A"));
    }

    #[test]
    fn a_doubled_dollar_is_a_dollar() {
        assert_eq!(
            expand("$$(A) $ $(A)", &[("A".into(), "1".into())]),
            "$(A) $ 1"
        );
    }
}
