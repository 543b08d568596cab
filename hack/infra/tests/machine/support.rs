#![allow(
    clippy::unwrap_used,
    clippy::panic,
    unreachable_pub,
    reason = "helpers of tests are tests"
)]
//! What the tests of machines share: an infrastructure of their own, and ways to look at it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use guestcluster_infra::machine::{
    Machine, MachineHost, MachineSpec, Seed, SeedFormat, delete_disk, raise_limits, sweep,
};
use guestcluster_infra::network::{Binding, Network};
use guestcluster_infra::node_image::{self, NodeImage};
use guestcluster_infra::progress::Progress;
use guestcluster_infra::tools::Release;

use crate::user_data::{Role, document, service_address};

/// The environment variable that lets these tests run: they take root and minutes.
const ENABLE: &str = "GUESTCLUSTER_TEST_MACHINES";

/// Firmware UUID of every machine of these tests.
pub const UUID: &str = "0f8a9c5e-7d43-4a0b-9d51-3b1f6e2a7c10";

/// Prints the Node object, asked for with the kubelet's own rights.
pub const GET_NODE: &str = "curl -sf --cacert /etc/kubernetes/pki/ca.crt \
    --cert /var/lib/kubelet/pki/kubelet-client-current.pem https://10.96.0.10:6443/api/v1/nodes/cp-0";

/// The kubelet has reported what it is.
pub const NODE_REPORTED: &str = "curl -sf --cacert /etc/kubernetes/pki/ca.crt \
    --cert /var/lib/kubelet/pki/kubelet-client-current.pem https://10.96.0.10:6443/api/v1/nodes/cp-0 \
    | grep -q containerRuntimeVersion";

/// The API server on the machine is ready.
pub const API_READY: &str = "curl -skf https://10.96.0.10:6443/readyz";

/// True, with the reason on standard error, when machines cannot run here.
pub fn skip_unless_possible() -> bool {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: machines need root");
        return true;
    }
    if std::env::var_os(ENABLE).is_none() {
        eprintln!(
            "skipped: set {ENABLE}=1 to boot machines (builds the node image first if it is not built)"
        );
        return true;
    }
    // Here, and not in the process namespace below: it may have to be built.
    image();
    false
}

/// The node image, from the cache.
fn image() -> NodeImage {
    static IMAGE: OnceLock<NodeImage> = OnceLock::new();
    let build = || node_image::ensure(Release::Current, &Progress::plain()).unwrap();
    IMAGE.get_or_init(build).clone()
}

/// This test program again, with one test, as pid 1 of a process namespace that dies with its parent.
pub fn inside_a_process_namespace(test: &str) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"]);
    command
}

/// Network namespaces, control groups and mounts that belong to an infrastructure.
pub fn traces(name: &str) -> Vec<String> {
    let namespaces = Command::new("ip")
        .args(["netns", "list"])
        .output()
        .unwrap()
        .stdout;
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mut found: Vec<String> = String::from_utf8(namespaces)
        .unwrap()
        .lines()
        .chain(mounts.lines())
        .filter(|line| {
            line.contains(&format!("gc-{name}")) || line.contains(&format!("guestcluster-{name}"))
        })
        .map(str::to_owned)
        .collect();
    found.extend(groups(name).iter().map(|group| group.display().to_string()));
    found
}

/// The run's control groups, in every hierarchy.
fn groups(name: &str) -> Vec<PathBuf> {
    let hierarchies = fs::read_dir("/sys/fs/cgroup")
        .unwrap()
        .map(|entry| entry.unwrap().path());
    hierarchies
        .map(|path| path.join(format!("gc-{name}")))
        .filter(|path| path.is_dir())
        .collect()
}

/// How many processes are left in the run's control groups.
pub fn processes(name: &str) -> usize {
    fn below(group: &Path) -> usize {
        let own =
            fs::read_to_string(group.join("cgroup.procs")).map_or(0, |text| text.lines().count());
        let children = fs::read_dir(group)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        own + children
            .filter(|path| path.is_dir())
            .map(|path| below(&path))
            .sum::<usize>()
    }
    groups(name).iter().map(|group| below(group)).sum()
}

pub fn wait_until(seconds: u64, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(
            began.elapsed() < Duration::from_secs(seconds),
            "waited {seconds} s in vain"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// An infrastructure of network and machine host only.
pub struct Rig {
    name: &'static str,
    pub folder: PathBuf,
    pub network: Arc<Network>,
    pub host: MachineHost,
}

impl Rig {
    pub async fn up(name: &'static str) -> Self {
        for changed in raise_limits().unwrap() {
            eprintln!("{changed}");
        }
        sweep(name).await.unwrap();
        let folder = PathBuf::from(format!("/var/tmp/guestcluster-{name}"));
        delete_disk(&folder).unwrap();
        fs::create_dir_all(&folder).unwrap();
        let network = Arc::new(Network::create(name, 2).await.unwrap());
        let helper = Path::new(env!("CARGO_BIN_EXE_guestcluster-machine-init"));
        let host = MachineHost::new(Arc::clone(&network), helper).unwrap();
        Self {
            name,
            folder,
            network,
            host,
        }
    }

    pub async fn down(self) {
        self.network.destroy().await.unwrap();
        sweep(self.name).await.unwrap();
        assert_eq!(traces(self.name), Vec::<String>::new());
        delete_disk(&self.folder).unwrap();
    }

    /// A machine with no duties.
    pub fn plain(&self, name: &str) -> MachineSpec {
        let address = self.network.allocate_ip().unwrap();
        let [_, _, third, fourth] = address.octets();
        MachineSpec {
            id: format!("test.{name}"),
            hostname: name.to_owned(),
            cpus: 2,
            memory_bytes: 2 << 30,
            address,
            binding: Binding::Bridge,
            mac: format!("02:00:00:00:{third:02x}:{fourth:02x}"),
            image: image(),
            disk: self.folder.join("disks").join(name),
            etcd_disk: None,
            seed: Seed {
                format: SeedFormat::NoCloud,
                user_data: b"#cloud-config\n{}\n".to_vec(),
                meta_data: format!("{{\"instance-id\":\"{UUID}\",\"local-hostname\":\"{name}\"}}"),
                network_config: None,
            },
            run: self.folder.join("machines").join(name),
        }
    }

    /// A machine that becomes a node, the `number`th of its cluster.
    pub fn node(&self, role: Role, name: &str, number: u8) -> MachineSpec {
        let mut spec = self.plain(name);
        spec.memory_bytes = 3 << 30;
        spec.seed.user_data = document(role, name, number, &image().kubernetes).into_bytes();
        let uuid = format!("0f8a9c5e-7d43-4a0b-9d51-3b1f6e2a7c{:02x}", 16 + number);
        spec.seed.meta_data = spec.seed.meta_data.replace(UUID, &uuid);
        if role != Role::JoinWorker {
            spec.etcd_disk = Some(self.folder.join("disks").join(format!("{name}-etcd")));
            self.route(&service_address(number), spec.address);
        }
        spec
    }

    /// Tells the router which machine has an address on its `lo`.
    pub fn route(&self, service: &str, machine: Ipv4Addr) {
        let (namespace, machine) = (self.network.namespace(), machine.to_string());
        let argv = [
            "-n", &namespace, "route", "replace", service, "via", &machine,
        ];
        assert!(Command::new("ip").args(argv).status().unwrap().success());
    }

    /// Runs a shell command in the machine and returns what it printed.
    pub async fn shell(&self, machine: &Machine, command: &str) -> String {
        let output = machine.exec(&["sh", "-c", command]).await.unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until a shell command succeeds in the machine; shows its console if it does not.
    pub async fn wait_for(&self, machine: &Machine, command: &str, seconds: u64) {
        let began = Instant::now();
        loop {
            let output = machine.exec(&["sh", "-c", command]).await.unwrap();
            if output.status.success() {
                eprintln!("{:5.1} s {command}", began.elapsed().as_secs_f64());
                return;
            }
            let late = began.elapsed() > Duration::from_secs(seconds);
            let failed = machine
                .exec(&["test", "-e", "/run/failed"])
                .await
                .unwrap()
                .status
                .success();
            if late || failed || machine.ended().is_some() {
                let console = fs::read_to_string(machine.console()).unwrap_or_default();
                let tail: Vec<&str> = console.lines().rev().take(60).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                panic!(
                    "{command}: failed, or not within {seconds} s: {output:?}\n{}",
                    tail.join("\n")
                );
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Whether the machine's API server takes connections from the data centre's network.
    pub fn answers(&self, address: Ipv4Addr) -> bool {
        self.outside(&format!("exec 3<>/dev/tcp/{address}/6443"))
    }

    /// Whether it also says something.
    pub fn answers_tls(&self, address: Ipv4Addr) -> bool {
        self.outside(&format!(
            "curl -sk -o /dev/null https://{address}:6443/readyz"
        ))
    }

    fn outside(&self, command: &str) -> bool {
        let namespace = self.network.namespace();
        let argv = [
            "netns", "exec", &namespace, "timeout", "3", "bash", "-c", command,
        ];
        let output = Command::new("ip").args(argv).output().unwrap();
        if !output.status.success() {
            eprintln!("{command}: {output:?}");
        }
        output.status.success()
    }

    /// What a machine takes, out of its version 1 control groups.
    pub fn usage(&self, name: &str) -> String {
        let read = |controller: &str, file: &str| {
            let group = format!("/sys/fs/cgroup/{controller}/gc-{}/test.{name}", self.name);
            fs::read_to_string(Path::new(&group).join(file)).unwrap()
        };
        let statistics = read("memory", "memory.stat");
        let mebibytes = |key: &str| -> u64 {
            let value = statistics
                .lines()
                .find_map(|line| line.strip_prefix(key))
                .unwrap();
            value.trim().parse::<u64>().unwrap() >> 20
        };
        let (resident, cache) = (mebibytes("total_rss "), mebibytes("total_cache "));
        let nanoseconds: u64 = read("cpuacct", "cpuacct.usage").trim().parse().unwrap();
        let processor = Duration::from_nanos(nanoseconds).as_secs_f64();
        format!("{resident} MiB resident, {cache} MiB page cache, {processor:.1} s of CPU")
    }

    /// A machine that ended has left no namespace, control group or process.
    pub fn assert_nothing_of(&self, name: &str) {
        let left: Vec<String> = traces(self.name)
            .into_iter()
            .filter(|trace| trace.contains(&format!("test.{name}")))
            .collect();
        assert!(left.is_empty(), "{left:?}");
        let groups: Vec<PathBuf> = groups(self.name)
            .iter()
            .map(|group| group.join(format!("test.{name}")))
            .collect();
        assert!(groups.iter().all(|group| !group.exists()), "{groups:?}");
        assert_eq!(processes(self.name), 0);
    }
}
