//! Authorities: made, read back, brought by users, and what they sign.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

use std::net::Ipv4Addr;

use guestcluster_pki::{
    AUTHORITY_LIFETIME, Authority, BACKDATE, Certificate, CertificateAuthority, ClientProfile,
    Error, OPERATOR_LIFETIME, SecretData, SubjectAltName, Validity,
};
use rstest::rstest;
use x509_parser::prelude::{FromDer, X509Certificate};

const NOW: i64 = 1_796_000_000;

fn authority(which: Authority) -> CertificateAuthority {
    CertificateAuthority::generate(which, Validity::starting(NOW, AUTHORITY_LIFETIME)).unwrap()
}

/// Decodes both with another library's eyes and checks the signature.
fn assert_signed(certificate: &Certificate, by: &CertificateAuthority) {
    let parse = |pem: &str| {
        x509_parser::pem::parse_x509_pem(pem.as_bytes())
            .unwrap()
            .1
            .contents
    };
    let (leaf, issuer) = (parse(certificate.pem()), parse(by.certificate().pem()));
    let leaf = X509Certificate::from_der(&leaf).unwrap().1;
    let issuer = X509Certificate::from_der(&issuer).unwrap().1;
    leaf.verify_signature(Some(issuer.public_key())).unwrap();
    assert_eq!(leaf.issuer(), issuer.subject());
}

#[rstest]
#[case(Authority::Kubernetes, "kubernetes-ca", "ca")]
#[case(Authority::Etcd, "etcd-ca", "etcd")]
#[case(Authority::FrontProxy, "front-proxy-ca", "proxy")]
fn a_new_authority_lives_ten_years_and_began_a_little_ago(
    #[case] which: Authority,
    #[case] common_name: &str,
    #[case] suffix: &str,
) {
    let made = authority(which);
    let certificate = made.certificate();
    assert!(certificate.is_authority());
    assert_eq!(certificate.subject().common_name, common_name);
    assert_eq!(certificate.validity().not_before, NOW - BACKDATE);
    assert_eq!(certificate.not_after(), NOW + AUTHORITY_LIFETIME);
    assert_eq!(which.secret_suffix(), suffix);
    assert!(certificate.matches(made.key()).unwrap());
    assert_signed(certificate, &made);
}

#[test]
fn an_authority_survives_its_secret() {
    let made = authority(Authority::Kubernetes);
    let data = made.to_secret();
    assert_eq!(
        data.iter().map(|(key, _)| key).collect::<Vec<_>>(),
        ["tls.crt", "tls.key"]
    );
    let read = CertificateAuthority::from_secret(&data).unwrap();
    assert_eq!(read.certificate(), made.certificate());
    assert_eq!(read.key().expose_pem(), made.key().expose_pem());
}

#[rstest]
#[case::admin(ClientProfile::Admin, "kubernetes-admin", &["kubeadm:cluster-admins"])]
#[case::operator(ClientProfile::Operator, "guestcluster-operator", &["system:masters"])]
#[case::etcd(ClientProfile::Etcd, "guestcluster-operator-etcd", &[])]
fn a_client_certificate_names_user_and_group_and_is_for_clients_alone(
    #[case] profile: ClientProfile,
    #[case] user: &str,
    #[case] groups: &[&str],
) {
    let signer = authority(Authority::Kubernetes);
    let client = signer
        .issue_client(profile, Validity::starting(NOW, OPERATOR_LIFETIME))
        .unwrap();
    assert_eq!(client.certificate.subject().common_name, user);
    assert_eq!(client.certificate.subject().organizations, groups);
    assert!(!client.certificate.is_authority());
    assert!(client.certificate.matches(&client.key).unwrap());
    assert_eq!(client.certificate.not_after(), NOW + OPERATOR_LIFETIME);
    assert_signed(&client.certificate, &signer);
    let pem = x509_parser::pem::parse_x509_pem(client.certificate.pem().as_bytes())
        .unwrap()
        .1;
    let x509 = pem.parse_x509().unwrap();
    let usage = x509.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && !usage.server_auth);
}

#[test]
fn a_server_certificate_holds_for_the_names_given() {
    let names = [
        SubjectAltName::Dns("prod-cp-1".to_owned()),
        SubjectAltName::Ip(Ipv4Addr::new(10, 98, 0, 11).into()),
    ];
    let signer = authority(Authority::Etcd);
    let server = signer
        .issue_server(&names, Validity::starting(NOW, OPERATOR_LIFETIME))
        .unwrap();
    assert_eq!(server.certificate.subject_alt_names(), names);
    assert_signed(&server.certificate, &signer);
}

#[test]
fn no_certificate_outlives_its_authority() {
    let short = CertificateAuthority::generate(Authority::Etcd, Validity::starting(NOW, 3600));
    let client = short
        .unwrap()
        .issue_client(
            ClientProfile::Etcd,
            Validity::starting(NOW, OPERATOR_LIFETIME),
        )
        .unwrap();
    assert_eq!(client.certificate.not_after(), NOW + 3600);
}

#[test]
fn an_authority_that_is_over_signs_nothing() {
    let over = CertificateAuthority::generate(Authority::Etcd, Validity::starting(NOW, 3600));
    let late = Validity::starting(NOW + 10_000, OPERATOR_LIFETIME);
    let refused = over
        .unwrap()
        .issue_client(ClientProfile::Etcd, late)
        .unwrap_err();
    assert_eq!(
        refused,
        Error::EmptyValidity {
            not_before: NOW + 10_000 - BACKDATE,
            not_after: NOW + 3600
        }
    );
}

#[rstest]
#[case::pkcs1(
    include_str!("fixtures/authority-rsa.crt"),
    include_str!("fixtures/authority-rsa.key")
)]
#[case::sec1_with_parameters(
    include_str!("fixtures/authority-p256.crt"),
    include_str!("fixtures/authority-p256.key")
)]
#[case::sec1_p384(
    include_str!("fixtures/authority-p384.crt"),
    include_str!("fixtures/authority-p384.key")
)]
fn an_authority_made_by_other_tools_signs(#[case] certificate: &str, #[case] key: &str) {
    let brought = CertificateAuthority::from_pem(certificate, key).unwrap();
    assert_eq!(brought.key().expose_pem(), key, "passed on as it was given");
    let validity = brought.certificate().validity();
    let signed = brought
        .issue_client(ClientProfile::Admin, validity)
        .unwrap();
    assert_signed(&signed.certificate, &brought);
}

/// The value that `openssl x509 -pubkey | openssl pkey -pubin -outform der | sha256sum` gives.
#[test]
fn the_public_key_hash_is_the_one_that_kubeadm_compares() {
    let certificate = Certificate::from_pem(include_str!("fixtures/authority-p256.crt")).unwrap();
    assert_eq!(
        certificate.public_key_hash().to_string(),
        "sha256:c1eee7214cec701a439a9e4e50a69a6745c49acb858415b7abbbccdb883a7193"
    );
}

#[test]
fn material_that_does_not_fit_is_refused_with_what_is_wrong() {
    let good = include_str!("fixtures/authority-p256.crt");
    let key = include_str!("fixtures/authority-p256.key");
    let other = include_str!("fixtures/authority-rsa.key");
    let refused = |certificate: &str, key: &str| {
        CertificateAuthority::from_pem(certificate, key).unwrap_err()
    };
    assert_eq!(refused(good, other), Error::KeyMismatch("certificate"));
    assert_eq!(
        refused(include_str!("fixtures/no-authority.crt"), key),
        Error::NotAnAuthority
    );
    assert_eq!(
        refused(&format!("{good}{good}"), key),
        Error::SeveralBlocks {
            item: "the certificate",
            found: 2
        }
    );
    assert_eq!(
        refused("", key),
        Error::NotPem {
            item: "the certificate",
            expected: "CERTIFICATE"
        }
    );
    assert_eq!(
        refused(good, good),
        Error::NotPem {
            item: "the private key",
            expected: "PRIVATE KEY"
        }
    );
    let damaged = good.replacen("MII", "MIA", 1);
    assert!(matches!(
        refused(&damaged, key),
        Error::DamagedCertificate(_)
    ));
    let damaged = other.replacen("MII", "MIA", 1);
    assert_eq!(refused(good, &damaged), Error::UnusableKey);
    let empty = SecretData::from_iter([("tls.crt", good)]);
    assert_eq!(
        CertificateAuthority::from_secret(&empty).unwrap_err(),
        Error::MissingSecretKey("tls.key")
    );
}

#[test]
fn debug_output_shows_no_key() {
    let made = authority(Authority::Kubernetes);
    let client = made
        .issue_client(
            ClientProfile::Admin,
            Validity::starting(NOW, OPERATOR_LIFETIME),
        )
        .unwrap();
    for shown in [
        format!("{made:?}"),
        format!("{:?}", made.to_secret()),
        format!("{client:?}"),
    ] {
        assert!(!shown.contains("PRIVATE KEY"), "{shown}");
        for line in made
            .key()
            .expose_pem()
            .lines()
            .chain(client.key.expose_pem().lines())
        {
            assert!(!shown.contains(line), "{shown}");
        }
    }
}

#[test]
fn renewal_is_due_when_a_third_of_the_life_remains() {
    assert_eq!(guestcluster_pki::renew_at(0, 90), 60);
    assert_eq!(
        Validity {
            not_before: 1000,
            not_after: 1300
        }
        .renew_at(),
        1200
    );
}
