//! The first-boot document of a machine: what a bootstrap provider wrote, with a user who may log in if
//! that is asked for, and at last without what is secret.

use serde_json::{Value, json};

/// The line by which a document says that cloud-init is to read it; it may follow one that makes it a
/// template.
const CLOUD_CONFIG: &str = "#cloud-config";
/// Name of the user who may log in.
const USER: &str = "capk";
/// Where kubeadm keeps keys, and where its configuration with the token is written.
const SECRET_PLACES: [&str; 2] = ["/etc/kubernetes/pki/", "/run/kubeadm/"];

/// Why a document cannot be changed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is no text.
    #[error("the first-boot document is no UTF-8 text")]
    NoText,
    /// It says that it is for cloud-init and is not.
    #[error("the first-boot document begins with {CLOUD_CONFIG} and is no YAML mapping: {0}")]
    NoCloudConfig(String),
}

/// The document with a user who may log in with this key, as `authorized_keys` has it. One that is not
/// for cloud-init (Ignition, Talos) is left as it is.
///
/// # Errors
/// If it claims to be for cloud-init and cannot be read.
pub fn with_user(document: &[u8], key: &str) -> Result<Vec<u8>, Error> {
    change(document, |config| {
        let user = json!({
            "name": USER,
            "gecos": "CAPK User",
            "sudo": "ALL=(ALL) NOPASSWD:ALL",
            "groups": "users, admin",
            "ssh_authorized_keys": [key.trim()],
        });
        // An absent list means the image's own user, which a list of one would take away.
        let mut users = match config.get("users") {
            Some(Value::Array(users)) => users.clone(),
            _ => vec![json!("default")],
        };
        users.retain(|user| user.get("name") != Some(&json!(USER)));
        users.push(user);
        config.insert("users".to_owned(), Value::Array(users));
    })
}

/// The document without the files that hold keys or a token, and without passwords. Everything that
/// cloud-init does at each start stays. One that is not for cloud-init is emptied.
///
/// # Errors
/// If it claims to be for cloud-init and cannot be read.
pub fn scrubbed(document: &[u8]) -> Result<Vec<u8>, Error> {
    if !is_cloud_config(text(document)?) {
        return Ok(Vec::new());
    }
    change(document, |config| {
        if let Some(Value::Array(files)) = config.get_mut("write_files") {
            files.retain(|file| !is_secret(file));
        }
    })
}

fn is_secret(file: &Value) -> bool {
    let path = file.get("path").and_then(Value::as_str).unwrap_or_default();
    SECRET_PLACES.iter().any(|place| path.starts_with(place))
}

fn change(
    document: &[u8],
    edit: impl FnOnce(&mut serde_json::Map<String, Value>),
) -> Result<Vec<u8>, Error> {
    let text = text(document)?;
    if !is_cloud_config(text) {
        return Ok(document.to_vec());
    }
    let broken = |error: &dyn std::fmt::Display| Error::NoCloudConfig(error.to_string());
    let mut config: Value = serde_saphyr::from_str(text).map_err(|error| broken(&error))?;
    let map = config
        .as_object_mut()
        .ok_or_else(|| broken(&"it is another kind of value"))?;
    edit(map);
    // Comments are not kept, but for those at the head: they say how the rest is to be read.
    let head: Vec<&str> = text
        .lines()
        .take_while(|line| line.starts_with('#'))
        .collect();
    let body = serde_saphyr::to_string(&config).map_err(|error| broken(&error))?;
    Ok(format!("{}\n{body}", head.join("\n")).into_bytes())
}

fn text(document: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(document).map_err(|_| Error::NoText)
}

fn is_cloud_config(text: &str) -> bool {
    let mut head = text.lines().take_while(|line| line.starts_with('#'));
    head.any(|line| line.starts_with(CLOUD_CONFIG))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "## template: jinja\n#cloud-config\n\nwrite_files:\n\
        -   path: /etc/kubernetes/pki/ca.key\n    permissions: '0600'\n    content: |\n      secret\n\
        -   path: /run/kubeadm/kubeadm-join-config.yaml\n    content: |\n      token: abcdef\n\
        -   path: /etc/motd\n    content: |\n      {{ ds.meta_data.hostname }}\n      # kept\n\
        runcmd:\n  - 'kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml && echo success'\n";

    fn parsed(document: &[u8]) -> Value {
        serde_saphyr::from_str(std::str::from_utf8(document).unwrap()).unwrap()
    }

    #[test]
    fn a_scrubbed_document_holds_no_key_and_no_token_and_everything_else() {
        let scrubbed = scrubbed(DOCUMENT.as_bytes()).unwrap();
        let text = String::from_utf8(scrubbed.clone()).unwrap();
        assert!(
            text.starts_with("## template: jinja\n#cloud-config\n"),
            "{text}"
        );
        assert!(
            !text.contains("secret") && !text.contains("abcdef"),
            "{text}"
        );
        let (before, after) = (parsed(DOCUMENT.as_bytes()), parsed(&scrubbed));
        assert_eq!(after["write_files"], json!([before["write_files"][2]]));
        assert_eq!(after["runcmd"], before["runcmd"]);
        assert_eq!(
            super::scrubbed(&scrubbed).unwrap(),
            scrubbed,
            "once is enough"
        );
    }

    #[test]
    fn a_user_is_added_beside_those_that_there_are() {
        let users = |document: &str| {
            let changed = with_user(document.as_bytes(), "ssh-ed25519 AAAA me\n").unwrap();
            parsed(&changed)["users"].clone()
        };
        let own = users(DOCUMENT);
        assert_eq!(own[0], "default");
        assert_eq!(own[1]["name"], USER);
        assert_eq!(
            own[1]["ssh_authorized_keys"],
            json!(["ssh-ed25519 AAAA me"])
        );
        let beside = users("#cloud-config\nusers:\n- name: capk\n- name: ops\n");
        assert_eq!(
            (&beside[0]["name"], &beside[1]["name"]),
            (&json!("ops"), &json!(USER))
        );
    }

    #[test]
    fn what_is_not_for_cloud_init_is_not_touched_and_at_last_emptied() {
        let ignition = br#"{"ignition":{"version":"3.4.0"}}"#;
        assert_eq!(with_user(ignition, "key").unwrap(), ignition);
        assert_eq!(scrubbed(ignition).unwrap(), b"");
        assert_eq!(with_user(&[0xff], "key"), Err(Error::NoText));
        let broken = with_user(b"#cloud-config\n- a\n", "key").unwrap_err();
        assert!(matches!(broken, Error::NoCloudConfig(_)), "{broken}");
    }
}
