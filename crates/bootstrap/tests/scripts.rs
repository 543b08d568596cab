//! The scripts, run by a real shell in a folder that stands for the machine.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

#[path = "support/guest.rs"]
mod guest;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use guest::{Guest, TOKEN, machine};
use guestcluster_bootstrap::{
    Binding, Role, UserData,
    console::{self, Boot},
    render, scrubbed,
};

const SUCCESS: &str = "run/cluster-api/bootstrap-success.complete";

/// A machine whose root is a folder, and whose programs are a line of shell each.
struct FakeMachine {
    root: PathBuf,
}

impl FakeMachine {
    fn new(name: &str) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("scripts")
            .join(name);
        let _ = fs::remove_dir_all(&root);
        for folder in ["bin", "dev", "run", "var/log", "etc"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let machine = Self { root };
        for program in ["systemctl", "modprobe", "sysctl", "kubeadm"] {
            machine.program(program, "exit 0");
        }
        machine
    }

    /// Every call is written down before the line runs.
    fn program(&self, name: &str, line: &str) {
        let path = self.root.join("bin").join(name);
        let calls = self.root.join("calls");
        let text = format!(
            "#!/bin/sh\necho {name} \"$@\" >>{}\n{line}\n",
            calls.display()
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What cloud-init does: write the files, run the commands.
    fn boot(&self, document: &UserData) -> bool {
        let document = guest::parse(document.expose());
        for file in document["write_files"].as_array().unwrap() {
            let path = self
                .root
                .join(file["path"].as_str().unwrap().trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, self.relocated(file["content"].as_str().unwrap())).unwrap();
        }
        let mut command = document["runcmd"][0].as_array().unwrap().iter();
        let command: Vec<String> = command
            .by_ref()
            .map(|part| self.relocated(part.as_str().unwrap()))
            .collect();
        self.run(&command[1..])
    }

    /// What systemd does at a later boot: `/run` is empty, the unit runs.
    fn restart(&self) -> bool {
        fs::remove_dir_all(self.root.join("run")).unwrap();
        let _ = fs::remove_file(self.root.join("dev/console"));
        self.run(&[self.relocated("/usr/local/lib/guestcluster/restart")])
    }

    fn run(&self, script: &[String]) -> bool {
        let path = format!("{}:/usr/bin:/bin", self.root.join("bin").display());
        let output = Command::new("/bin/sh")
            .args(script)
            .env("PATH", path)
            .output()
            .unwrap();
        output.status.success()
    }

    /// Absolute paths of the machine moved below its root. Block devices are files here.
    fn relocated(&self, text: &str) -> String {
        let root = self.root.display();
        [
            "/usr/local/",
            "/var/",
            "/run/",
            "/etc/",
            "/dev/console",
            "/dev/disk/",
        ]
        .iter()
        .fold(text.to_owned(), |text, path| {
            // The root may hold one of these paths itself, so it is put in last.
            text.replace(path, &format!("\u{1}{path}"))
        })
        .replace('\u{1}', &root.to_string())
        .replace("[ -b ", "[ -e ")
    }

    fn console(&self) -> String {
        fs::read_to_string(self.root.join("dev/console")).unwrap_or_default()
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.root.join("calls")).unwrap_or_default()
    }

    fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }
}

fn document(role: Role) -> UserData {
    let guest = Guest::fixed();
    let config = machine(Binding::Bridge, role);
    render(&config, &guest.secrets(&config)).unwrap()
}

fn after_the_join() -> UserData {
    scrubbed(&machine(Binding::Bridge, Role::JoinWorker)).unwrap()
}

fn init(etcd_disk: bool) -> UserData {
    document(Role::Init {
        etcd_disk,
        components: guest::components(),
    })
}

#[test]
fn a_first_boot_says_what_it_does_and_leaves_no_token() {
    let machine = FakeMachine::new("success");
    assert!(machine.boot(&init(false)));
    assert_eq!(
        machine.console(),
        "guestcluster: kubeadm init started\nguestcluster: bootstrap succeeded\n"
    );
    assert_eq!(
        fs::read_to_string(machine.root.join(SUCCESS)).unwrap(),
        "success\n"
    );
    assert!(!machine.has("run/kubeadm/kubeadm.yaml"));
    let calls = machine.calls();
    assert!(calls.contains("kubeadm init --config"), "{calls}");
    assert!(calls.contains("--skip-token-print"), "{calls}");
    assert!(
        calls.contains("systemctl enable --now guestcluster-address.service"),
        "{calls}"
    );
}

#[test]
fn b4_a_failure_shows_the_last_lines_and_the_step_but_no_secret() {
    let machine = FakeMachine::new("failure");
    let digest = "0f".repeat(32);
    machine.program(
        "kubeadm",
        &format!("seq 1 30; echo join --token {TOKEN} --hash sha256:{digest}; exit 3"),
    );
    assert!(!machine.boot(&document(Role::JoinWorker)));
    assert!(!machine.console().contains(TOKEN) && !machine.console().contains(&digest));
    let mut output: Vec<String> = (12..=30).map(|line| line.to_string()).collect();
    output.push("join --token <token> --hash sha256:<digest>".to_owned());
    assert_eq!(
        console::read(&machine.console()),
        Boot::Failed {
            step: "kubeadm join".to_owned(),
            output
        }
    );
    assert!(!machine.has(SUCCESS) && !machine.has("run/kubeadm/kubeadm.yaml"));
}

#[test]
fn b4_a_step_before_kubeadm_is_named_when_it_fails() {
    let machine = FakeMachine::new("address");
    machine.program("systemctl", "case $* in *address*) exit 1;; esac");
    assert!(!machine.boot(&init(false)));
    assert_eq!(
        machine.console(),
        "guestcluster: bootstrap failed: setting the address of the machine\n"
    );
    assert!(!machine.calls().contains("kubeadm"));
}

#[test]
fn b3_a_machine_restarts_with_the_document_without_secrets() {
    let machine = FakeMachine::new("restart");
    assert!(machine.boot(&document(Role::JoinWorker)));
    let joins = machine.calls();
    assert!(machine.restart());
    assert_eq!(machine.console(), "guestcluster: machine restarted\n");
    assert!(machine.has(SUCCESS));
    // A new instance id makes cloud-init run the document again, on the same disk.
    assert!(machine.boot(&after_the_join()));
    assert_eq!(console::read(&machine.console()), Boot::Restarted);
    assert_eq!(machine.calls(), joins, "kubeadm ran once");
}

#[test]
fn b3_the_document_without_secrets_fails_clearly_on_a_new_disk() {
    let machine = FakeMachine::new("new-disk");
    assert!(!machine.boot(&after_the_join()));
    assert_eq!(
        console::read(&machine.console()),
        Boot::Failed {
            step: "this machine has joined before, but its disk is new".to_owned(),
            output: Vec::new()
        }
    );
}

#[test]
fn a_first_boot_that_was_interrupted_is_not_tried_again() {
    let machine = FakeMachine::new("interrupted");
    machine.program("kubeadm", "kill -9 $PPID; exit 1");
    assert!(!machine.boot(&init(false)));
    assert_eq!(
        console::read(&machine.console()),
        Boot::Running {
            step: "kubeadm init".to_owned()
        }
    );
    let interrupted = Boot::Failed {
        step: "the first boot was interrupted".to_owned(),
        output: Vec::new(),
    };
    assert!(!machine.restart());
    assert_eq!(console::read(&machine.console()), interrupted);
    assert!(!machine.boot(&init(false)));
    assert_eq!(console::read(&machine.console()), interrupted);
    assert_eq!(machine.calls().matches("kubeadm init").count(), 1);
}

/// The disk script alone, with programs that answer as given.
fn mount_etcd_disk(name: &str, mounted: bool, blkid: u8, member: bool) -> (bool, FakeMachine) {
    let machine = FakeMachine::new(name);
    machine.program("mountpoint", if mounted { "exit 0" } else { "exit 1" });
    machine.program("blkid", &format!("exit {blkid}"));
    machine.program("mkfs.ext4", "exit 0");
    machine.program("mount", "mkdir \"$4/lost+found\"");
    for folder in ["dev/disk/by-id/virtio-etcd", "etc/kubernetes/manifests"] {
        fs::create_dir_all(machine.root.join(folder)).unwrap();
    }
    if member {
        fs::write(machine.root.join("etc/kubernetes/manifests/etcd.yaml"), "").unwrap();
    }
    machine.boot(&init(true));
    let script = machine.relocated("/usr/local/lib/guestcluster/etcd-disk");
    (machine.run(&[script]), machine)
}

#[test]
fn an_empty_etcd_disk_is_formatted_and_mounted_empty() {
    let (mounted, machine) = mount_etcd_disk("disk-empty", false, 2, false);
    assert!(mounted);
    assert!(
        machine.calls().contains("mkfs.ext4 -q -L etcd"),
        "{}",
        machine.calls()
    );
    assert!(machine.has("var/lib/etcd") && !machine.has("var/lib/etcd/lost+found"));
}

#[test]
fn an_etcd_disk_with_content_is_mounted_as_it_is() {
    let (mounted, machine) = mount_etcd_disk("disk-full", false, 0, true);
    assert!(mounted);
    assert!(!machine.calls().contains("mkfs"), "{}", machine.calls());
}

#[test]
fn a_folder_that_is_mounted_already_is_left_alone() {
    let (mounted, machine) = mount_etcd_disk("disk-mounted", true, 2, false);
    assert!(mounted);
    assert!(!machine.calls().contains("mkfs"), "{}", machine.calls());
}

#[test]
fn s5_an_etcd_disk_that_lost_its_member_or_is_unclear_is_never_formatted() {
    for (name, blkid, member) in [("disk-lost", 2, true), ("disk-unclear", 8, false)] {
        let (mounted, machine) = mount_etcd_disk(name, false, blkid, member);
        assert!(!mounted);
        assert!(!machine.calls().contains("mkfs"), "{}", machine.calls());
        assert!(
            machine.console().contains("guestcluster: | etcd disk: "),
            "{}",
            machine.console()
        );
    }
}

#[test]
fn a_machine_that_restarts_without_its_etcd_disk_says_so() {
    let machine = FakeMachine::new("disk-gone");
    machine.program("mountpoint", "exit 0");
    assert!(machine.boot(&init(true)));
    machine.program("mountpoint", "exit 1");
    assert!(!machine.restart());
    assert_eq!(
        console::read(&machine.console()),
        Boot::Failed {
            step: "mounting the etcd disk".to_owned(),
            output: Vec::new()
        }
    );
}
