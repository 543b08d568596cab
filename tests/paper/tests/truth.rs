//! The paper guest is held to the truth: it is asked what a real guest was asked, and must answer with
//! the same status codes and with what the operator reads.
//!
//! `exchanges.json` was recorded by the end-to-end group `truth`, which also checks it: delete the
//! file and run the group to record anew.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use guestcluster_paper::Pace;
use guestcluster_paper::document::{Document, FirstBoot, Verb};
use guestcluster_paper::reply::Reply;
use guestcluster_paper::request::Request;
use guestcluster_paper::script::{Asker, Exchange, To, perform};
use guestcluster_paper::world::{API, ETCD, Key, PowerOn, World};
use serde_json::{Value, json};

const FIRST: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 10);
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 11);
const TOKEN: &str = "abcdef.0123456789abcdef";

struct PaperGuest {
    world: World,
    now: Instant,
}

impl PaperGuest {
    /// A control-plane machine and a worker, both Ready.
    fn born() -> Self {
        let now = Instant::now();
        let mut guest = Self {
            world: World::new(Pace::QUICK, now),
            now,
        };
        let cluster = json!({ "kubernetesVersion": "v1.36.3" });
        guest.power_on(
            "truth-cp-1",
            FIRST,
            boot("truth-cp-1", Verb::Init { cluster }),
        );
        guest.pass(Duration::from_secs(2));
        let network = "/apis/apps/v1/namespaces/kube-flannel/daemonsets/kube-flannel";
        let object = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {
                "name": "kube-flannel", "namespace": "kube-flannel",
                "annotations": { "guestcluster.dev/render": "1" },
            },
        });
        let request = Request {
            content_type: "application/apply-patch+yaml".to_owned(),
            body: object,
            ..Request::new("PATCH", network)
        };
        guest.answer(To::Api, &request);
        let control_plane = false;
        let worker = boot("truth-general-1", Verb::Join { control_plane });
        guest.power_on("truth-general-1", SECOND, worker);
        guest.pass(Duration::from_secs(2));
        guest
    }

    fn power_on(&mut self, name: &str, address: Ipv4Addr, boot: FirstBoot) {
        let key: Key = ("truth".to_owned(), name.to_owned());
        let on = PowerOn {
            instance: name.to_owned(),
            address,
            disk: name.to_owned(),
            version: Some("v1.36.3".to_owned()),
            document: Document::FirstBoot(Box::new(boot)),
        };
        self.world.power_on(&key, on, self.now);
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(20);
            self.world.step(self.now);
        }
    }

    fn answer(&mut self, to: To, request: &Request) -> Reply {
        let port = if to == To::Etcd { ETCD } else { API };
        let known = to != To::ApiAsNobody;
        self.world.answer((FIRST, port), (request, known), self.now)
    }
}

fn boot(name: &str, verb: Verb) -> FirstBoot {
    let taint = json!({ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" });
    let (taints, pool) = match verb {
        Verb::Init { .. } => (json!([taint]), "cp"),
        Verb::Join { .. } => (json!([]), "general"),
    };
    FirstBoot {
        name: name.to_owned(),
        verb,
        advertise: Some(Ipv4Addr::new(10, 96, 0, 9)),
        labels: [("guestcluster.dev/pool".to_owned(), pool.to_owned())].into(),
        taints,
        marks: true,
        token: TOKEN.to_owned(),
        authority: "sha256:1".to_owned(),
        endpoint: "10.79.0.1:6443".to_owned(),
    }
}

impl Asker for PaperGuest {
    async fn ask(&mut self, to: To, request: Request) -> anyhow::Result<(u16, Value)> {
        self.pass(Duration::from_millis(20));
        Ok(match self.answer(to, &request) {
            Reply::Json(status, body) => (status, body),
            Reply::Text(status, text) => (status, Value::String(text)),
            other => anyhow::bail!("{}: {other:?}", request.path),
        })
    }
}

#[tokio::test]
async fn the_paper_guest_answers_as_a_real_one_did() {
    let recorded: Vec<Exchange> = serde_json::from_str(include_str!("exchanges.json")).unwrap();
    let found = perform(&mut PaperGuest::born()).await.unwrap();
    let pairs = recorded.iter().zip(&found);
    let different: Vec<_> = pairs
        .filter(|(recorded, found)| recorded != found)
        .collect();
    assert!(different.is_empty(), "recorded and found: {different:#?}");
    assert_eq!(recorded.len(), found.len());
}
