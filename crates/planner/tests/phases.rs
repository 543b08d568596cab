//! Where a machine is in its life, told from what is seen of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use guestcluster_api::status::{ControlPlaneStatus, GuestClusterStatus, MachineStatus, PoolStatus};
use guestcluster_planner::Wanted;
use guestcluster_planner::machines::{Phase, machines};
use guestcluster_planner::observed::{
    Disk, Etcd, EtcdMember, Guest, GuestNode, Instance, Meta, Observed, Probe, Secret, Vm,
};
use guestcluster_planner::wanted::Settings;
use guestcluster_testkit::build::start;
use guestcluster_testkit::cluster;
use k8s_openapi::jiff::SignedDuration;
use rstest::rstest;

/// What is seen of one machine.
struct Sight {
    seen: Observed,
    previous: GuestClusterStatus,
    name: &'static str,
}

const WORKER: (&str, &str) = ("prod-general-1", "general");
const CONTROL_PLANE: (&str, &str) = ("prod-cp-2", "cp");

/// All objects of a machine, in a guest that was initialised and answers without knowing it. Its
/// instance runs as it did when it first booted.
fn machine((name, pool): (&'static str, &str)) -> Sight {
    let meta = Meta {
        machine: Some(name.to_owned()),
        pool: Some(pool.to_owned()),
        created: Some(start()),
        uid: "first".to_owned(),
        ..Meta::default()
    };
    let mut seen = Observed::default();
    let run_strategy = Some("Always".to_owned());
    seen.vms.insert(
        name.to_owned(),
        Vm {
            meta: meta.clone(),
            run_strategy,
            ready: true,
            ..Vm::default()
        },
    );
    seen.disks.insert(
        format!("{name}-root"),
        Disk {
            meta: meta.clone(),
            ..Disk::default()
        },
    );
    seen.secrets.insert(
        format!("{name}-user-data"),
        Secret {
            meta: meta.clone(),
            ..Secret::default()
        },
    );
    seen.instances.insert(
        name.to_owned(),
        Instance {
            meta,
            phase: "Running".to_owned(),
            ..Instance::default()
        },
    );
    seen.guest = Probe::Known(Guest::default());
    seen.etcd = Probe::Known(Etcd::default());
    Sight {
        seen,
        previous: booting(name),
        name,
    }
}

/// A status that says that the machine boots.
fn booting(name: &str) -> GuestClusterStatus {
    let status = MachineStatus {
        name: name.to_owned(),
        boot_instance: Some("first".to_owned()),
        phase: "Booting".to_owned(),
        ..MachineStatus::default()
    };
    let workers = vec![PoolStatus {
        machines: vec![status.clone()],
        ..PoolStatus::default()
    }];
    let control_plane = ControlPlaneStatus {
        machines: vec![status],
        ..ControlPlaneStatus::default()
    };
    GuestClusterStatus {
        initialised: true,
        control_plane,
        workers,
        ..GuestClusterStatus::default()
    }
}

impl Sight {
    fn before(mut self, phase: Phase) -> Self {
        let machines = self.previous.control_plane.machines.iter_mut();
        for machine in machines.chain(self.previous.workers[0].machines.iter_mut()) {
            phase.as_str().clone_into(&mut machine.phase);
        }
        self
    }

    fn scrubbed(mut self) -> Self {
        self.seen
            .secrets
            .values_mut()
            .for_each(|secret| secret.scrubbed = true);
        self
    }

    fn node(mut self, ready: bool) -> Self {
        let node = GuestNode {
            ready,
            ..GuestNode::default()
        };
        let nodes = [(self.name.to_owned(), node)].into();
        self.seen.guest = Probe::Known(Guest {
            nodes,
            ..Guest::default()
        });
        self
    }

    fn member(mut self, learner: bool) -> Self {
        let name = self.name.to_owned();
        let members = vec![EtcdMember {
            id: 7,
            name,
            learner,
            ..EtcdMember::default()
        }];
        self.seen.etcd = Probe::Known(Etcd {
            members,
            leader: Some(7),
        });
        self
    }

    fn silent_guest(mut self) -> Self {
        self.seen.guest = Probe::Unreachable("timed out".to_owned());
        self.seen.etcd = Probe::Unreachable("timed out".to_owned());
        self
    }

    fn unfinished_init(mut self) -> Self {
        self.seen.init_unfinished = true;
        self.previous.initialised = false;
        self
    }

    fn says(mut self, line: &str) -> Self {
        self.seen
            .consoles
            .insert(self.name.to_owned(), vec![format!("guestcluster: {line}")]);
        self
    }

    fn restarted(mut self) -> Self {
        self.seen
            .instances
            .values_mut()
            .for_each(|i| "second".clone_into(&mut i.meta.uid));
        self
    }

    fn off(mut self) -> Self {
        self.seen.instances.clear();
        self
    }

    fn halted(mut self) -> Self {
        self.seen
            .vms
            .values_mut()
            .for_each(|vm| vm.run_strategy = Some("Halted".to_owned()));
        self
    }

    fn vm_deleted(mut self) -> Self {
        self.seen
            .vms
            .values_mut()
            .for_each(|vm| vm.meta.deleting = true);
        self
    }

    fn without_disk(mut self) -> Self {
        self.seen.disks.clear();
        self
    }

    fn without_document(mut self) -> Self {
        self.seen.secrets.clear();
        self
    }

    fn phase_after(&self, minutes: i64) -> Phase {
        let cluster = cluster("prod")
            .control_plane(3)
            .workers("general", 1)
            .build();
        let wanted = Wanted::parse(&cluster, &Settings::default()).unwrap();
        let now = start() + SignedDuration::from_mins(minutes);
        machines(&wanted, &self.seen, &self.previous, now)[self.name].phase()
    }
}

#[rstest]
#[case::it_boots(machine(WORKER), Phase::Booting)]
#[case::it_is_not_on_yet(machine(WORKER).off(), Phase::Creating)]
#[case::its_node_is_there(machine(WORKER).node(false), Phase::Joined)]
#[case::it_serves(machine(WORKER).node(true), Phase::Ready)]
#[case::it_does_not_serve_any_more(machine(WORKER).node(false).before(Phase::Ready), Phase::Unhealthy)]
#[case::its_node_is_gone(machine(WORKER).scrubbed().before(Phase::Ready), Phase::Unhealthy)]
#[case::it_is_off(machine(WORKER).scrubbed().off(), Phase::Unhealthy)]
#[case::a_silent_guest_changes_nothing(machine(WORKER).scrubbed().before(Phase::Ready).silent_guest(), Phase::Ready)]
#[case::its_boot_failed(machine(WORKER).says("bootstrap failed: kubeadm join"), Phase::Failed)]
#[case::its_failure_is_remembered(machine(WORKER).before(Phase::Failed), Phase::Failed)]
#[case::it_joined_after_all(machine(WORKER).before(Phase::Failed).node(true), Phase::Ready)]
#[case::nobody_can_say_whether_it_joined(machine(WORKER).says("bootstrap failed: x").silent_guest(), Phase::Booting)]
#[case::a_restart_alone_is_no_failure(machine(WORKER).restarted(), Phase::Booting)]
#[case::it_restarted_after_its_join(machine(WORKER).says("machine restarted").restarted(), Phase::Booting)]
#[case::a_joined_machine_complains(machine(WORKER).scrubbed().says("bootstrap failed: mounting the etcd disk").node(false), Phase::Joined)]
#[case::a_person_stopped_it(machine(WORKER).scrubbed().halted().off(), Phase::Stopped)]
#[case::a_person_deletes_its_vm(machine(WORKER).scrubbed().vm_deleted().before(Phase::Ready).node(true), Phase::Ready)]
#[case::a_person_deleted_its_document(machine(WORKER).without_document().before(Phase::Ready).node(true), Phase::Ready)]
#[case::it_lost_its_disk(machine(WORKER).without_disk(), Phase::Failed)]
#[case::it_lost_its_disk_after_its_join(machine(WORKER).scrubbed().without_disk().off(), Phase::Unhealthy)]
#[case::we_take_it_away(machine(WORKER).before(Phase::Failed).vm_deleted(), Phase::Leaving)]
fn a_worker(#[case] sight: Sight, #[case] phase: Phase) {
    assert_eq!(sight.phase_after(1), phase);
}

#[rstest]
#[case::its_etcd_learns(machine(CONTROL_PLANE).node(true).member(true), Phase::Booting)]
#[case::its_etcd_votes(machine(CONTROL_PLANE).member(false), Phase::Booting)]
#[case::it_serves(machine(CONTROL_PLANE).node(true).member(false), Phase::Ready)]
#[case::it_failed_as_a_voter(machine(CONTROL_PLANE).member(false).says("bootstrap failed: x"), Phase::Failed)]
#[case::its_init_is_not_over(machine(CONTROL_PLANE).node(true).member(false).unfinished_init(), Phase::Booting)]
#[case::its_init_was_cut_short(
    machine(CONTROL_PLANE).node(true).member(false).unfinished_init().says("bootstrap failed: the first boot was interrupted"),
    Phase::Failed
)]
fn a_control_plane_machine(#[case] sight: Sight, #[case] phase: Phase) {
    assert_eq!(sight.phase_after(1), phase);
}

#[test]
fn where_consoles_cannot_be_read_a_restarted_machine_fails_by_its_silence() {
    let silent = machine(WORKER).restarted();
    assert_eq!(silent.phase_after(19), Phase::Booting);
    assert_eq!(silent.phase_after(21), Phase::Failed);
    assert_eq!(
        machine(WORKER).phase_after(21),
        Phase::Booting,
        "it may have waited for a host"
    );
}
