//! Real machines: booted, restarted with other addresses, frozen, cut off, unplugged, and swept away.
//!
//! Needs root, and to be asked for; says so and passes otherwise. Everything runs below its own
//! infrastructure names, beside any other.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use guestcluster_infra::machine::{self, Machine, MachineSpec, PowerState, sweep};
use support::{Rig, inside_a_process_namespace, skip_unless_possible};
use user_data::Role;

#[path = "machine/support.rs"]
mod support;
#[path = "machine/user_data.rs"]
mod user_data;

/// A control plane goes through everything that can happen to a VM, on one disk.
#[test]
fn a_control_plane_survives_what_happens_to_vms() {
    if skip_unless_possible() {
        return;
    }
    assert!(
        inside_a_process_namespace("life_of_a_control_plane")
            .status()
            .unwrap()
            .success()
    );
}

/// Runs as pid 1 of its own process namespace, like the infrastructure's runner.
#[tokio::test]
#[ignore = "started by a_control_plane_survives_what_happens_to_vms"]
async fn life_of_a_control_plane() {
    let rig = Rig::up("mt-life").await;
    let mut spec = rig.node(Role::Init, "cp-0", 0);
    spec.cpus = 4;
    first_boot(&rig, &spec).await;
    another_address(&rig, &mut spec).await;
    let machine = rig.host.start(&spec).await.unwrap();
    rig.wait_for(&machine, support::API_READY, 60).await;
    assert!(
        rig.host.start(&spec).await.is_err(),
        "the same machine twice"
    );
    cut_network(&rig, &spec, &machine).await;
    // A restart that the guest itself asks for.
    let _ = rig.shell(&machine, "systemctl reboot").await;
    assert_eq!(machine.wait().await, PowerState::Reboot);
    let machine = rig.host.start(&spec).await.unwrap();
    rig.wait_for(&machine, support::API_READY, 60).await;
    frozen(&rig, &spec, &machine).await;
    rig.down().await;
}

/// The machine is what its specification says, tells it on its console, and hears the power button.
async fn first_boot(rig: &Rig, spec: &MachineSpec) {
    let machine = rig.host.start(spec).await.unwrap();
    rig.wait_for(&machine, "test -e /run/bootstrapped", 240)
        .await;
    rig.wait_for(&machine, support::NODE_REPORTED, 60).await;
    let node = rig.shell(&machine, support::GET_NODE).await;
    for expected in [
        r#""cpu": "4""#.to_owned(),
        format!(r#""address": "{}""#, spec.address),
        format!(r#""machineID": "{}""#, support::UUID.replace('-', "")),
    ] {
        assert!(node.contains(&expected), "{expected} is not in {node}");
    }
    let console = fs::read_to_string(machine.console()).unwrap();
    assert!(console.contains("initialized successfully"), "{console}");
    machine.power_off().await.unwrap();
    assert_eq!(machine.wait().await, PowerState::PowerOff);
    rig.assert_nothing_of("cp-0");
}

/// With another address it is the same machine at a new start; then the plug is pulled.
async fn another_address(rig: &Rig, spec: &mut MachineSpec) {
    spec.address = rig.network.allocate_ip().unwrap();
    rig.route(user_data::ENDPOINT, spec.address);
    let machine = rig.host.start(spec).await.unwrap();
    let reported = format!("{} | grep -q {}", support::GET_NODE, spec.address);
    rig.wait_for(&machine, &reported, 60).await;
    assert_eq!(
        rig.shell(&machine, "cat /var/lib/boots").await,
        "1\n",
        "first-boot commands run once"
    );
    let boot_id = rig
        .shell(&machine, "cat /proc/sys/kernel/random/boot_id")
        .await;
    assert!(
        rig.shell(&machine, support::GET_NODE)
            .await
            .contains(boot_id.trim())
    );
    machine.pull_plug().await.unwrap();
    assert_eq!(machine.ended(), Some(PowerState::Killed));
    rig.assert_nothing_of("cp-0");
}

/// A cut network is silent both ways, and nothing in the machine shows it.
async fn cut_network(rig: &Rig, spec: &MachineSpec, machine: &Machine) {
    let member = rig.network.member_namespace(&spec.id);
    assert!(rig.answers(spec.address));
    rig.network.cut(&member).await.unwrap();
    assert!(!rig.answers(spec.address));
    assert!(
        rig.shell(machine, "cat /sys/class/net/eth0/carrier")
            .await
            .starts_with('1')
    );
    rig.network.restore(&member).await.unwrap();
    // The router has given up on it, and asks for its link address anew.
    support::wait_until(10, || rig.answers(spec.address));
}

/// Frozen it does nothing, and can be thawed, and unplugged.
async fn frozen(rig: &Rig, spec: &MachineSpec, machine: &Machine) {
    machine.freeze().await.unwrap();
    assert!(!rig.answers_tls(spec.address));
    let run = tokio::time::timeout(Duration::from_secs(2), machine.exec(&["true"])).await;
    assert!(run.is_err(), "nothing runs in a frozen machine");
    machine.thaw().await.unwrap();
    assert!(rig.answers_tls(spec.address));
    machine.freeze().await.unwrap();
    let began = Instant::now();
    machine.pull_plug().await.unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "took {:?}",
        began.elapsed()
    );
    rig.assert_nothing_of("cp-0");
}

/// A runner that is killed takes its machines with it; the sweep removes the rest.
#[tokio::test]
async fn a_killed_run_leaves_nothing_after_a_sweep() {
    if skip_unless_possible() {
        return;
    }
    let folder = Path::new("/var/tmp/guestcluster-mt-kill");
    sweep("mt-kill").await.unwrap();
    machine::delete_disk(folder).unwrap();
    let mut runner = inside_a_process_namespace("machines_until_killed")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let up = folder.join("up");
    support::wait_until(60, || up.exists());
    runner.kill().unwrap();
    runner.wait().unwrap();
    support::wait_until(10, || support::processes("mt-kill") == 0);
    assert!(
        !support::traces("mt-kill").is_empty(),
        "a killed run cannot have cleaned up"
    );

    let removed = sweep("mt-kill").await.unwrap();
    assert!(!removed.is_empty());
    assert_eq!(support::traces("mt-kill"), Vec::<String>::new());
    assert_eq!(
        sweep("mt-kill").await.unwrap(),
        Vec::<String>::new(),
        "nothing to do twice"
    );
    machine::delete_disk(folder).unwrap();
}

#[tokio::test]
#[ignore = "started by a_killed_run_leaves_nothing_after_a_sweep"]
async fn machines_until_killed() {
    let rig = Rig::up("mt-kill").await;
    let running = rig.host.start(&rig.plain("m-1")).await.unwrap();
    let frozen = rig.host.start(&rig.plain("m-2")).await.unwrap();
    frozen.freeze().await.unwrap();
    rig.wait_for(&running, "systemctl is-active containerd", 60)
        .await;
    fs::write(rig.folder.join("up"), "").unwrap();
    let _ = Command::new("sleep").arg("600").status();
}

/// Prints how long 3 control planes, joining one after another, and 3 workers take, and what they weigh.
#[test]
#[ignore = "prints figures; takes the whole box for a minute"]
fn three_and_three() {
    if skip_unless_possible() {
        return;
    }
    assert!(
        inside_a_process_namespace("guest_of_six")
            .status()
            .unwrap()
            .success()
    );
}

#[tokio::test]
#[ignore = "started by three_and_three"]
async fn guest_of_six() {
    let rig = Rig::up("mt-six").await;
    let began = Instant::now();
    let first = rig
        .host
        .start(&rig.node(Role::Init, "cp-0", 0))
        .await
        .unwrap();
    rig.wait_for(&first, "test -e /run/bootstrapped", 240).await;
    eprintln!("cp-0 bootstrapped: {}", rig.usage("cp-0"));
    let mut machines = vec![first.clone()];
    for number in 3..6 {
        let spec = rig.node(Role::JoinWorker, &format!("w-{number}"), number);
        machines.push(rig.host.start(&spec).await.unwrap());
    }
    for number in 1..3 {
        let spec = rig.node(Role::JoinControlPlane, &format!("cp-{number}"), number);
        let machine = rig.host.start(&spec).await.unwrap();
        rig.wait_for(&machine, "test -e /run/bootstrapped", 240)
            .await;
        machines.push(machine);
    }
    let ready =
        "test $(kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes | grep -cw Ready) = 6";
    rig.wait_for(&first, ready, 240).await;
    eprintln!("3 + 3 Ready after {:.1} s", began.elapsed().as_secs_f64());
    for name in ["cp-0", "cp-1", "cp-2", "w-3", "w-4", "w-5"] {
        eprintln!("{name}: {}", rig.usage(name));
    }
    for machine in &machines {
        machine.pull_plug().await.unwrap();
    }
    rig.down().await;
}
