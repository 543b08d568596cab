//! `kubectl guestcluster map`: which machine of which guest runs where.

mod rows;
mod table;

use clap::{Args, ValueEnum};
use guestcluster_api::labels;
use guestcluster_foreign::core::{HostNode, LauncherPod};
use guestcluster_foreign::kubevirt::{VirtualMachine, VirtualMachineInstance};
use guestcluster_planner::chain::{self, Objects};
use kube::{Api, Client};

use crate::connection::{Connection, explain, is_forbidden, list};
use rows::rows;
use table::table;

/// Shows each machine of guest clusters with its tenant, guest, VM, instance, Pod, host and zone.
///
/// A machine's name is that of its VM and of its Node in the guest. The notes mark control-plane
/// machines that share a host with another of their guest, machines that migrate, are off or have no
/// host, and hosts that are cordoned or not ready. `-` is none, `?` is not known.
#[derive(Args)]
pub struct Options {
    /// Namespace; default: that of the context.
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// How to print.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,
    /// What to sort by.
    #[arg(long, value_name = "WHAT", default_value = "guest")]
    by: By,
}

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// One line a machine.
    Table,
    /// The same with role, pool and VM.
    Wide,
    /// A list of objects.
    Json,
}

/// What to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// Guest, then machine.
    Guest,
    /// Host, then guest; machines without a host come last.
    Host,
}

/// Runs the verb.
pub async fn run(connection: &Connection, options: &Options) -> anyhow::Result<()> {
    let (client, own) = connection.open().await?;
    let namespace = options.namespace.as_ref().unwrap_or(&own);
    let namespace = (!options.all_namespaces).then_some(namespace.as_str());
    let of_machines = Some(labels::MACHINE);
    let (vms, instances, launchers, hosts) = tokio::join!(
        list(api::<VirtualMachine>(&client, namespace), of_machines),
        list(
            api::<VirtualMachineInstance>(&client, namespace),
            of_machines
        ),
        list(api::<LauncherPod>(&client, namespace), of_machines),
        list(Api::<HostNode>::all(client.clone()), None),
    );
    let vms = vms.map_err(explain::<VirtualMachine>)?;
    let instances = instances.map_err(explain::<VirtualMachineInstance>)?;
    let launchers = launchers.map_err(explain::<LauncherPod>)?;
    let hosts = match hosts {
        Ok(hosts) => Some(hosts),
        Err(error) if is_forbidden(&error) => {
            eprintln!("note: you may not list nodes: zones and the state of hosts are not known");
            None
        }
        Err(error) => return Err(explain::<HostNode>(error)),
    };
    let links = chain::links(&Objects {
        vms: vms.iter().collect(),
        instances: instances.iter().collect(),
        launchers: launchers.iter().collect(),
    });
    if links.is_empty() {
        let place = namespace.map_or("any namespace".to_owned(), |name| {
            format!("namespace {name}")
        });
        eprintln!("no machine of a guest cluster in {place}");
    }
    let rows = rows(&links, hosts.as_deref(), options.by);
    match options.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&rows)?),
        Output::Table | Output::Wide => {
            let shape = table::Shape {
                by: options.by,
                wide: options.output == Output::Wide,
                namespaces: namespace.is_none(),
            };
            print!("{}", table(&rows, shape));
        }
    }
    Ok(())
}

fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    match namespace {
        Some(name) => Api::namespaced(client.clone(), name),
        None => Api::all(client.clone()),
    }
}
