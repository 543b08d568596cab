//! What the infrastructure says: which machines run, and where their Services lead.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::StreamExt as _;
use guestcluster_api::{labels, names};
use guestcluster_pki::{CertificateAuthority, SecretData};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, ResourceExt};
use serde_json::Value;

use crate::document::Document;
use crate::host::Shared;
use crate::tls::Serving;
use crate::world::{Key, PowerOn};

/// How long to wait after something could not be read.
const PAUSE: Duration = Duration::from_millis(200);

/// Follows virtual machine instances: a machine runs while its instance does.
pub async fn instances(shared: Arc<Shared>) {
    let api =
        Api::<DynamicObject>::all_with(shared.client.clone(), &kubevirt("VirtualMachineInstance"));
    let config = Config::default().labels(labels::CLUSTER);
    let mut events = pin!(watcher(api, config));
    let mut on: HashMap<Key, (String, Ipv4Addr)> = HashMap::new();
    let mut listed: Vec<Key> = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(instance)) => {
                listed.push(key(&instance));
                follow(&shared, &mut on, &instance).await;
            }
            Ok(Event::Apply(instance)) => follow(&shared, &mut on, &instance).await,
            Ok(Event::Delete(instance)) => stop(&shared, &mut on, &key(&instance)).await,
            Ok(Event::InitDone) => {
                let gone: Vec<Key> = on
                    .keys()
                    .filter(|key| !listed.contains(key))
                    .cloned()
                    .collect();
                for key in gone {
                    stop(&shared, &mut on, &key).await;
                }
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn follow(
    shared: &Arc<Shared>,
    on: &mut HashMap<Key, (String, Ipv4Addr)>,
    instance: &DynamicObject,
) {
    let (key, uid) = (key(instance), instance.uid().unwrap_or_default());
    let runs = text(&instance.data, "/status/phase") == Some("Running");
    let address = text(&instance.data, "/status/interfaces/0/ipAddress");
    let address = address.and_then(|address| address.parse::<Ipv4Addr>().ok());
    let known = on.get(&key).is_some_and(|(known, _)| *known == uid);
    match address.filter(|_| runs) {
        Some(_) if known => {}
        Some(address) => {
            stop(shared, on, &key).await;
            on.insert(key, (uid.clone(), address));
            tokio::spawn(start(shared.clone(), instance.clone(), address));
        }
        None if known => stop(shared, on, &key).await,
        None => {}
    }
}

async fn stop(shared: &Shared, on: &mut HashMap<Key, (String, Ipv4Addr)>, key: &Key) {
    if let Some((_, address)) = on.remove(key) {
        shared.world().power_off(key);
        shared.silence(address);
        // One that never got its address has none to lose.
        let _ = shared.network.remove(address).await;
    }
}

/// Powers a machine on, as soon as all is there that it boots from.
async fn start(shared: Arc<Shared>, instance: DynamicObject, address: Ipv4Addr) {
    while let Err(error) = power_on(&shared, &instance, address).await {
        if !still_runs(&shared, &instance).await {
            return;
        }
        shared
            .world()
            .unknown
            .push(format!("{}: no boot: {error:#}", instance.name_any()));
        tokio::time::sleep(PAUSE).await;
    }
    // It may have gone meanwhile, unheard.
    if !still_runs(&shared, &instance).await {
        shared.world().power_off(&key(&instance));
        shared.silence(address);
        let _ = shared.network.remove(address).await;
    }
}

async fn still_runs(shared: &Shared, instance: &DynamicObject) -> bool {
    let resource = kubevirt("VirtualMachineInstance");
    let namespace = instance.namespace().unwrap_or_default();
    let api = Api::<DynamicObject>::namespaced_with(shared.client.clone(), &namespace, &resource);
    match api.get_opt(&instance.name_any()).await {
        Ok(Some(found)) => {
            found.uid() == instance.uid() && text(&found.data, "/status/phase") == Some("Running")
        }
        Ok(None) => false,
        Err(_) => true,
    }
}

async fn power_on(
    shared: &Shared,
    instance: &DynamicObject,
    address: Ipv4Addr,
) -> anyhow::Result<()> {
    let namespace = instance.namespace().unwrap_or_default();
    let cluster = instance
        .labels()
        .get(labels::CLUSTER)
        .context("of no cluster")?;
    let secrets = Api::<Secret>::namespaced(shared.client.clone(), &namespace);
    let volume = |field: &str| {
        let volumes = instance.data.pointer("/spec/volumes")?.as_array()?;
        volumes
            .iter()
            .find_map(|volume| text(volume, field).map(str::to_owned))
    };
    let user_data = volume("/cloudInitNoCloud/secretRef/name").context("no user-data")?;
    let user_data = secrets.get(&user_data).await?.data.unwrap_or_default();
    let user_data = user_data.get("userdata").context("no key userdata")?;
    let document = Document::read(std::str::from_utf8(&user_data.0)?)?;
    let root = volume("/dataVolume/name").context("no root disk")?;
    let claims = Api::<PersistentVolumeClaim>::namespaced(shared.client.clone(), &namespace);
    let disk = claims.get(&root).await?.uid().unwrap_or_default();
    let version = version(shared, &namespace, &root).await?;
    let boot = match &document {
        Document::FirstBoot(boot) => Some((**boot).clone()),
        Document::Restart => shared
            .world()
            .disks
            .get(&disk)
            .and_then(|disk| disk.boot.clone()),
    };
    if let Some(boot) = boot.filter(crate::document::FirstBoot::is_control_plane) {
        let kubernetes = authority(&secrets, &names::secrets::ca(cluster)).await?;
        let etcd = authority(&secrets, &names::secrets::etcd(cluster)).await?;
        shared.serve(address, Serving::new((&kubernetes, &etcd), &boot)?);
    }
    shared.network.add(address).await?;
    let on = PowerOn {
        instance: instance.uid().unwrap_or_default(),
        address,
        disk,
        version,
        document,
    };
    shared.world().power_on(&key(instance), on, Instant::now());
    Ok(())
}

async fn authority(secrets: &Api<Secret>, name: &str) -> anyhow::Result<CertificateAuthority> {
    let data = secrets.get(name).await?.data.unwrap_or_default();
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let data: Vec<(String, String)> = data
        .into_iter()
        .map(|(key, value)| (key, text(&value.0)))
        .collect();
    let data = data.iter().map(|(key, value)| (&**key, value.clone()));
    let data: SecretData = data.collect();
    Ok(CertificateAuthority::from_secret(&data)?)
}

/// The version of the image that a disk was cloned from, if its tag tells.
async fn version(shared: &Shared, namespace: &str, disk: &str) -> anyhow::Result<Option<String>> {
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("cdi.kubevirt.io", "v1beta1", "DataVolume"),
        "datavolumes",
    );
    let disks = Api::<DynamicObject>::namespaced_with(shared.client.clone(), namespace, &resource);
    let Some(disk) = disks.get_opt(disk).await? else {
        return Ok(None);
    };
    let Some(golden) = text(&disk.data, "/spec/source/pvc/name") else {
        return Ok(None);
    };
    let golden = disks.get_opt(golden).await?;
    let url = golden
        .as_ref()
        .and_then(|golden| text(&golden.data, "/spec/source/registry/url"));
    let tag = url.and_then(|url| url.split('@').next()?.rsplit_once(':'));
    Ok(tag
        .map(|(_, tag)| tag.to_owned())
        .filter(|tag| tag.starts_with('v')))
}

/// Follows the EndpointSlices of machines' Services.
pub async fn slices(shared: Arc<Shared>) {
    let api = Api::<EndpointSlice>::all(shared.client.clone());
    let config = Config::default().labels(labels::MACHINE);
    let mut events = pin!(watcher(api, config));
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::InitApply(slice) | Event::Apply(slice)) => {
                let addresses = slice.endpoints.first().map(|endpoint| &endpoint.addresses);
                let address = addresses.and_then(|all| all.first()?.parse().ok());
                shared.world().lead(&key(&slice), address, Instant::now());
            }
            Ok(Event::Delete(slice)) => shared.world().lead(&key(&slice), None, Instant::now()),
            Ok(Event::Init | Event::InitDone) => {}
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn key<K: kube::Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn kubevirt(kind: &str) -> ApiResource {
    let plural = format!("{}s", kind.to_lowercase());
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("kubevirt.io", "v1", kind), &plural)
}

fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    value.pointer(path)?.as_str()
}
