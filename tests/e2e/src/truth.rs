//! Group `truth`: the paper guest, on which crash tables and hundreds of copies rest, answers as a real
//! one. The exchanges that are recorded with the paper guest's tests are put to a real guest again;
//! where there is no recording, one is made.

use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use guestcluster_api::names;
use guestcluster_paper::request::Request;
use guestcluster_paper::script::{Asker, Exchange, To, perform};
use guestcluster_pki::{
    CertificateAuthority, ClientProfile, OPERATOR_LIFETIME, SecretData, Validity,
};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::jiff::Timestamp;
use kube::client::Body;
use kube::config::AuthInfo;
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::scenario;
use crate::stage::Stage;
use crate::suite::Scenario;

const NAME: &str = "truth";
/// Where the recording is, in the project.
const RECORDING: &str = "tests/paper/tests/exchanges.json";

/// The scenarios, in order.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(crate::life::the_operator_runs, foundation),
        scenario!(a_real_guest_answers_as_recorded),
    ]
}

/// Each answer of a real guest has the status code and the fields that were recorded.
pub async fn a_real_guest_answers_as_recorded(stage: &Stage) -> anyhow::Result<()> {
    let cluster = Cluster::new(stage, NAME, NAME);
    cluster
        .apply(1, &json!({ "controlPlane": { "replicas": 1 } }))
        .await?;
    cluster.is_whole_with(1, 1).await?;
    let mut guest = RealGuest::of(&cluster).await?;
    let found = perform(&mut guest).await?;
    let delete = ["-n", NAME, "delete", "gc", NAME, "--timeout=180s"];
    stage.kubectl(&delete).await?;
    let file = stage.file(RECORDING);
    if !file.exists() {
        let text = serde_json::to_string_pretty(&found)? + "\n";
        std::fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
        println!("  {} exchanges are recorded in {RECORDING}", found.len());
        return Ok(());
    }
    let recorded: Vec<Exchange> = serde_json::from_slice(&std::fs::read(&file)?)?;
    let other = recorded.iter().zip(&found).filter(|(a, b)| a != b);
    let other: Vec<_> = other.collect();
    anyhow::ensure!(
        other.is_empty() && recorded.len() == found.len(),
        "recorded and found: {other:#?}"
    );
    Ok(())
}

/// A guest of real machines, asked as the operator asks.
struct RealGuest {
    api: Client,
    nobody: Client,
    etcd: Client,
}

impl RealGuest {
    async fn of(cluster: &Cluster<'_>) -> anyhow::Result<Self> {
        let machine = names::machine(NAME, names::CONTROL_PLANE_POOL, 1);
        let services = Api::<Service>::namespaced(cluster.stage.client(), NAME);
        let spec = services.get(&machine).await?.spec.unwrap_or_default();
        let address = spec.cluster_ip.context("the machine has no address")?;
        let kubernetes = authority(cluster, &names::secrets::ca(NAME)).await?;
        let etcd = authority(cluster, &names::secrets::etcd(NAME)).await?;
        let api = format!("https://{address}:6443");
        Ok(Self {
            api: client(&api, (&kubernetes, Some(ClientProfile::Operator)))?,
            nobody: client(&api, (&kubernetes, None))?,
            etcd: client(
                &format!("https://{address}:2379"),
                (&etcd, Some(ClientProfile::Etcd)),
            )?,
        })
    }
}

impl Asker for RealGuest {
    async fn ask(&mut self, to: To, request: Request) -> anyhow::Result<(u16, Value)> {
        let client = match to {
            To::Api => &self.api,
            To::ApiAsNobody => &self.nobody,
            To::Etcd => &self.etcd,
        };
        let encode = |text: &str| {
            text.replace('=', "%3D")
                .replace('!', "%21")
                .replace('/', "%2F")
        };
        let query: Vec<String> = request
            .query
            .iter()
            .map(|(key, value)| format!("{key}={}", encode(value)))
            .collect();
        let mut call = http::Request::builder()
            .method(&*request.method)
            .uri(format!("{}?{}", request.path, query.join("&")));
        for (header, value) in [
            (http::header::ACCEPT, &request.accept),
            (http::header::CONTENT_TYPE, &request.content_type),
        ] {
            if !value.is_empty() {
                call = call.header(header, value);
            }
        }
        let body = match &request.body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let sent = client.send(call.body(Body::from(body))?);
        let answer = tokio::time::timeout(Duration::from_secs(20), sent).await??;
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok((
            status,
            serde_json::from_slice(&bytes).unwrap_or(Value::String(text)),
        ))
    }
}

async fn authority(cluster: &Cluster<'_>, name: &str) -> anyhow::Result<CertificateAuthority> {
    let secrets = Api::<Secret>::namespaced(cluster.stage.client(), cluster.namespace);
    let data = secrets.get(name).await?.data.unwrap_or_default();
    let data: Vec<(String, String)> = data
        .into_iter()
        .map(|(key, value)| Ok((key, String::from_utf8(value.0)?)))
        .collect::<anyhow::Result<_>>()?;
    let data: SecretData = data
        .iter()
        .map(|(key, value)| (&**key, value.clone()))
        .collect();
    Ok(CertificateAuthority::from_secret(&data)?)
}

fn client(
    url: &str,
    (authority, profile): (&CertificateAuthority, Option<ClientProfile>),
) -> anyhow::Result<Client> {
    let mut config = Config::new(url.parse()?);
    let pem = authority.certificate().pem();
    let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    config.root_cert = Some(vec![STANDARD.decode(body)?]);
    config.default_retry = false;
    if let Some(profile) = profile {
        let validity = Validity::starting(Timestamp::now().as_second(), OPERATOR_LIFETIME);
        let own = authority.issue_client(profile, validity)?;
        config.auth_info = AuthInfo {
            client_certificate_data: Some(STANDARD.encode(own.certificate.pem())),
            client_key_data: Some(STANDARD.encode(own.key.expose_pem()).into()),
            ..AuthInfo::default()
        };
    }
    Ok(Client::try_from(config)?)
}
