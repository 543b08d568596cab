//! Kubeconfigs that others wrote into Secrets, read as data: one that names a program to run or a file
//! to read is refused, since whoever may write that Secret could have its reader run or read anything.

use kube::Config;
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig};

/// The way that a kubeconfig describes, by its current context.
///
/// # Errors
/// If it is no kubeconfig, or uses what is not followed; the text says what to write.
pub async fn config(text: &str) -> Result<Config, String> {
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|error| error.to_string())?;
    refuse(&kubeconfig)?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    config.map_err(|error| error.to_string())
}

/// Only what is written in the kubeconfig itself is used.
fn refuse(kubeconfig: &Kubeconfig) -> Result<(), String> {
    let users = kubeconfig
        .auth_infos
        .iter()
        .filter_map(|named| named.auth_info.as_ref());
    let clusters = kubeconfig
        .clusters
        .iter()
        .filter_map(|named| named.cluster.as_ref());
    let foreign = users
        .filter_map(of_user)
        .chain(clusters.filter_map(of_cluster))
        .next();
    foreign.map_or(Ok(()), |field| {
        Err(format!(
            "its kubeconfig uses {field}, which is not followed: write certificates, keys or a token \
             into it"
        ))
    })
}

fn of_user(user: &AuthInfo) -> Option<&'static str> {
    [
        ("exec", user.exec.is_some()),
        ("auth-provider", user.auth_provider.is_some()),
        ("tokenFile", user.token_file.is_some()),
        ("client-certificate", user.client_certificate.is_some()),
        ("client-key", user.client_key.is_some()),
    ]
    .into_iter()
    .find_map(|(field, is_used)| is_used.then_some(field))
}

fn of_cluster(cluster: &Cluster) -> Option<&'static str> {
    [
        (
            "certificate-authority",
            cluster.certificate_authority.is_some(),
        ),
        ("proxy-url", cluster.proxy_url.is_some()),
    ]
    .into_iter()
    .find_map(|(field, is_used)| is_used.then_some(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(user: &str, cluster: &str) -> Kubeconfig {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n\
             - name: c\n  context: {{ cluster: k, user: u }}\n\
             clusters:\n- name: k\n  cluster: {{ server: 'https://127.0.0.1:1'{cluster} }}\n\
             users:\n- name: u\n  user: {{ {user} }}\n"
        );
        Kubeconfig::from_yaml(&text).unwrap()
    }

    #[test]
    fn a_kubeconfig_that_runs_or_reads_something_is_refused() {
        assert_eq!(refuse(&kubeconfig("token: abc", "")), Ok(()));
        for (user, cluster, named) in [
            (
                "exec: { command: sh, apiVersion: client.authentication.k8s.io/v1 }",
                "",
                "exec",
            ),
            (
                "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token",
                "",
                "tokenFile",
            ),
            ("client-key: /etc/key", "", "client-key"),
            ("client-certificate: /etc/crt", "", "client-certificate"),
            (
                "token: abc",
                ", certificate-authority: /etc/ca",
                "certificate-authority",
            ),
            ("token: abc", ", proxy-url: 'http://somewhere'", "proxy-url"),
        ] {
            let why = refuse(&kubeconfig(user, cluster)).unwrap_err();
            assert!(why.contains(named), "{named}: {why}");
        }
    }
}
