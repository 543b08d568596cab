//! Service-account keys, kubeconfigs and bootstrap tokens.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

use guestcluster_pki::{
    Authority, BootstrapToken, CertificateAuthority, ClientCredentials, ClientProfile, Error,
    Kubeconfig, KubeconfigFacts, SecretData, ServiceAccountKeys, SigningAlgorithm, Validity,
};
use proptest::prelude::*;
use rstest::rstest;

const NOW: i64 = 1_796_000_000;

fn authority_and_admin() -> (CertificateAuthority, ClientCredentials) {
    let validity = Validity::starting(NOW, 3600);
    let authority = CertificateAuthority::generate(Authority::Kubernetes, validity).unwrap();
    let admin = authority
        .issue_client(ClientProfile::Admin, validity)
        .unwrap();
    (authority, admin)
}

/// The beginning of the public key is its algorithm: RSA of 2048 bits, ECDSA on P-256.
#[rstest]
#[case(
    SigningAlgorithm::Rs256,
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA"
)]
#[case(SigningAlgorithm::Es256, "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE")]
fn new_service_account_keys_survive_their_secret(
    #[case] algorithm: SigningAlgorithm,
    #[case] beginning: &str,
) {
    let made = ServiceAccountKeys::generate(algorithm).unwrap();
    assert!(
        made.public_pem()
            .starts_with(&format!("-----BEGIN PUBLIC KEY-----\n{beginning}"))
    );
    let data = made.to_secret();
    assert_eq!(data.get("tls.crt"), Some(made.public_pem().as_bytes()));
    let read = ServiceAccountKeys::from_secret(&data).unwrap();
    assert_eq!(read.private().expose_pem(), made.private().expose_pem());
}

#[test]
fn service_account_keys_of_other_tools_are_accepted_and_mismatches_are_not() {
    let public = include_str!("fixtures/service-account.pub");
    ServiceAccountKeys::from_pem(public, include_str!("fixtures/authority-rsa.key")).unwrap();
    let refused = ServiceAccountKeys::from_pem(public, include_str!("fixtures/authority-p256.key"));
    assert_eq!(refused.unwrap_err(), Error::KeyMismatch("public key"));
}

#[test]
fn a_kubeconfig_reads_back_as_what_it_was_made_of() {
    let (authority, admin) = authority_and_admin();
    let document = Kubeconfig {
        cluster: "prod",
        server: "https://203.0.113.10:6443",
        authority: authority.certificate(),
        credentials: &admin,
    }
    .render()
    .unwrap();
    assert!(
        document
            .expose()
            .contains("current-context: \"prod-admin@prod\"")
    );
    assert_eq!(
        KubeconfigFacts::from_secret(&document.to_secret()).unwrap(),
        KubeconfigFacts {
            server: "https://203.0.113.10:6443".to_owned(),
            authority: authority.certificate().clone(),
            client: admin.certificate,
        }
    );
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_refused() {
    let (authority, admin) = authority_and_admin();
    let render = |cluster, server| {
        let authority = authority.certificate();
        Kubeconfig {
            cluster,
            server,
            authority,
            credentials: &admin,
        }
        .render()
    };
    assert!(matches!(
        render("a\"b", "https://a:1"),
        Err(Error::MalformedName(_))
    ));
    assert!(matches!(
        render("a", "http://a:1"),
        Err(Error::MalformedServer(_))
    ));
    let good = render("a", "https://a:1").unwrap();
    let read = |text: &str| KubeconfigFacts::read(text).unwrap_err();
    assert!(matches!(read("a: [b"), Error::MalformedKubeconfig(_)));
    let elsewhere = good
        .expose()
        .replace("current-context: \"a", "current-context: \"b");
    assert!(matches!(read(&elsewhere), Error::MalformedKubeconfig(_)));
    let (_, other) = authority_and_admin();
    let authority = authority.certificate();
    let stranger = ClientCredentials {
        certificate: other.certificate,
        key: admin.key.clone(),
    };
    let mixed = Kubeconfig {
        cluster: "a",
        server: "https://a:1",
        authority,
        credentials: &stranger,
    };
    assert_eq!(
        read(mixed.render().unwrap().expose()),
        Error::KeyMismatch("client certificate")
    );
}

#[test]
fn a_token_secret_lets_a_machine_join_and_nothing_else() {
    let token: BootstrapToken = "abcdef.0123456789abcdef".parse().unwrap();
    assert_eq!(token.secret_name(), "bootstrap-token-abcdef");
    let data = token.to_secret(NOW, "join of prod-cp-2").unwrap();
    let expected = [
        (
            "auth-extra-groups",
            "system:bootstrappers:kubeadm:default-node-token",
        ),
        ("description", "join of prod-cp-2"),
        ("expiration", "2026-11-30T00:53:20Z"),
        ("token-id", "abcdef"),
        ("token-secret", "0123456789abcdef"),
        ("usage-bootstrap-authentication", "true"),
        ("usage-bootstrap-signing", "true"),
    ];
    assert_eq!(
        data.iter().collect::<Vec<_>>(),
        expected.map(|(k, v)| (k, v.as_bytes()))
    );
}

#[test]
fn debug_output_shows_no_secret() {
    let token: BootstrapToken = "abcdef.0123456789abcdef".parse().unwrap();
    assert_eq!(format!("{token:?}"), "BootstrapToken(abcdef.<redacted>)");
    let data = SecretData::from_iter([("value", "hidden")]);
    assert_eq!(format!("{data:?}"), "SecretData([\"value\"])");
}

#[test]
fn other_forms_are_no_tokens() {
    for text in [
        "",
        "abcdef",
        "abcdef.0123",
        "ABCDEF.0123456789abcdef",
        "abcde.00123456789abcdef",
    ] {
        assert_eq!(
            text.parse::<BootstrapToken>().unwrap_err(),
            Error::MalformedToken
        );
    }
    let given = BootstrapToken::ENTROPY;
    assert_eq!(
        BootstrapToken::from_entropy(&vec![255; given]).unwrap_err(),
        Error::NotEnoughEntropy { given }
    );
}

proptest! {
    #[test]
    fn entropy_gives_a_token_that_reads_back(
        entropy in prop::collection::vec(any::<u8>(), BootstrapToken::ENTROPY)
    ) {
        let token = BootstrapToken::from_entropy(&entropy).unwrap();
        let read: BootstrapToken = token.expose().parse().unwrap();
        prop_assert_eq!(read.expose(), token.expose());
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in ".{0,200}") {
        let _ = KubeconfigFacts::read(&text);
        let _ = ServiceAccountKeys::from_pem(&text, &text);
        let _ = CertificateAuthority::from_pem(&text, &text);
        let _ = text.parse::<BootstrapToken>();
    }
}
