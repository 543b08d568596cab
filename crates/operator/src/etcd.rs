//! The guest's etcd, through its JSON gateway.
//!
//! Every member serves the gateway beside gRPC on its client port (etcd's `enable-grpc-gateway`,
//! on by default), under mutual TLS. Members are reached at the Service address of their machine,
//! which stands in their certificates.
//!
//! # Guarantees
//! - The member list comes from a quorum: a member that is cut off does not answer it.
//! - A member counts as healthy only if it answered for itself and knows a leader.

use std::collections::BTreeMap;
use std::time::Duration;

use guestcluster_planner::observed::{Etcd, EtcdMember, Probe};
use guestcluster_shell::apply::Writer;
use guestcluster_shell::error::Error as CallError;
use http::Request;
use kube::Client;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::doors::{Door, Doors};
use crate::error::Error;

/// Port on which members serve clients.
pub const CLIENT_PORT: u16 = 2379;

/// Asks and changes the etcd of guests.
#[derive(Debug)]
pub struct EtcdClient<'a> {
    /// The way in.
    pub doors: &'a Doors,
    /// Bounds each call.
    pub calls: &'a Writer,
    /// The members' machines, with the way to each.
    pub members: &'a BTreeMap<String, MemberDoor>,
}

/// The way to one member.
#[derive(Clone, Debug)]
pub struct MemberDoor {
    /// Where it is.
    pub door: Door,
    /// How long to wait until it has said how it is.
    pub patience: Duration,
}

#[derive(Debug, Deserialize)]
struct MemberList {
    #[serde(default)]
    members: Vec<Member>,
}

#[derive(Debug, Deserialize)]
struct Member {
    #[serde(rename = "ID", deserialize_with = "id")]
    id: u64,
    #[serde(default)]
    name: String,
    #[serde(default, rename = "peerURLs")]
    peer_urls: Vec<String>,
    #[serde(default, rename = "isLearner")]
    learner: bool,
}

/// What a member says of itself.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
struct Status {
    #[serde(default)]
    header: Header,
    /// ID of the leader that it follows; none if it knows of none.
    #[serde(default, deserialize_with = "optional_id")]
    leader: Option<u64>,
}

/// Who answered.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
struct Header {
    #[serde(default, deserialize_with = "optional_id")]
    member_id: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Removed {}

#[derive(Debug, Deserialize)]
struct Moved {}

impl EtcdClient<'_> {
    /// The members and their health; unreachable if no quorum answers. And whether the quorum is
    /// lost, as far as can be told: members answer for themselves and none knows a leader.
    pub async fn observe(&self) -> (Probe<Etcd>, bool) {
        if self.members.is_empty() {
            return (Probe::NotAsked, false);
        }
        let statuses = self.statuses().await;
        let mut why = "no member answers".to_owned();
        for machine in ask_first(&statuses) {
            // Without this a member tells what it knows by itself.
            let body = json!({ "linearizable": true });
            match self
                .post::<MemberList>(machine, "/v3/cluster/member/list", &body)
                .await
            {
                Ok(list) => return (Probe::Known(assemble(list, &statuses)), false),
                Err(error) => why = error.explain(),
            }
        }
        let is_lost = !statuses.is_empty() && statuses.values().all(|s| s.leader.is_none());
        (Probe::Unreachable(why), is_lost)
    }

    /// Takes a member out of the quorum. One that is not in it counts as taken out.
    pub async fn remove(&self, id: u64, machine: &str) -> Result<(), Error> {
        let statuses = self.statuses().await;
        let mut last = Error::Gone("no member of etcd answers".to_owned());
        for via in ask_first(&statuses).filter(|via| *via != machine) {
            let body = json!({"ID": id.to_string()});
            match self
                .post::<Removed>(via, "/v3/cluster/member/remove", &body)
                .await
            {
                Ok(Removed {}) => return Ok(()),
                Err(error) if is_not_found(&error) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Lets another member lead. Whoever does not lead any more has done so.
    pub async fn move_leader(&self, from: &str, to: u64) -> Result<(), Error> {
        let status = self.status(from).await?;
        if status.leader.is_none() || status.leader != status.header.member_id {
            return Ok(());
        }
        let body = json!({ "targetID": to.to_string() });
        let path = "/v3/maintenance/transfer-leadership";
        self.post::<Moved>(from, path, &body).await.map(drop)
    }

    async fn status(&self, machine: &str) -> Result<Status, Error> {
        self.post(machine, "/v3/maintenance/status", &json!({}))
            .await
    }

    /// Asks all members at once what they say of themselves.
    async fn statuses(&self) -> BTreeMap<String, Status> {
        let ask = |(machine, member): (&String, &MemberDoor)| {
            let (machine, patience) = (machine.clone(), member.patience);
            async move {
                let answer = timeout(patience, self.status(&machine)).await;
                let status = answer.ok()?.ok()?;
                Some((machine, status))
            }
        };
        futures::future::join_all(self.members.iter().map(ask))
            .await
            .into_iter()
            .flatten()
            .collect()
    }

    async fn post<T: DeserializeOwned>(
        &self,
        machine: &str,
        path: &str,
        body: &Value,
    ) -> Result<T, Error> {
        let member = self
            .members
            .get(machine)
            .ok_or_else(|| Error::Gone(format!("{machine} has no address")))?;
        let client: Client = self.doors.open(&member.door).await?;
        let request = Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .map_err(|error| Error::Malformed(error.to_string()))?;
        let call = format!("ask {path} of {machine}");
        self.calls
            .within(call, client.request(request))
            .await
            .map_err(Error::Etcd)
    }
}

/// Machines whose member answered, those first that know a leader: only they can answer for the
/// quorum.
fn ask_first(statuses: &BTreeMap<String, Status>) -> impl Iterator<Item = &str> {
    let led = statuses
        .iter()
        .filter(|(_, status)| status.leader.is_some());
    let alone = statuses
        .iter()
        .filter(|(_, status)| status.leader.is_none());
    led.chain(alone).map(|(machine, _)| machine.as_str())
}

fn assemble(list: MemberList, statuses: &BTreeMap<String, Status>) -> Etcd {
    let follows = |name: &str| {
        statuses
            .get(name)
            .is_some_and(|status| status.leader.is_some())
    };
    let members = list.members.into_iter().map(|member| EtcdMember {
        healthy: follows(&member.name),
        id: member.id,
        name: member.name,
        peer_urls: member.peer_urls,
        learner: member.learner,
    });
    Etcd {
        members: members.collect(),
        leader: statuses.values().find_map(|status| status.leader),
    }
}

/// gRPC's NotFound, as the gateway tells it in the body of a 404, where Kubernetes has the status of
/// HTTP. A 404 without it is another server, or an etcd without a gateway.
const NOT_FOUND: u16 = 5;

/// Whether the member is not in the list.
fn is_not_found(error: &Error) -> bool {
    match error {
        Error::Etcd(CallError::Kube {
            source: kube::Error::Api(status),
            ..
        }) => status.code == NOT_FOUND,
        _ => false,
    }
}

/// 64-bit numbers are strings in protobuf's JSON, because JavaScript's numbers are not wide enough.
fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse()
        .map_err(|_| serde::de::Error::custom(format!("{text:?} is not an id")))
}

/// An id where `0`, as in protobuf, is none.
fn optional_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    id(deserializer).map(|id| Some(id).filter(|id| *id != 0))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn list(text: &str) -> MemberList {
        serde_json::from_str(text).unwrap()
    }

    fn status(text: &str) -> Status {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn ids_are_decimal_strings_and_absent_fields_are_their_defaults() {
        let list = list(
            r#"{"header": {"cluster_id": "1"}, "members": [
                {"ID": "15833178455043582144", "name": "a-cp-1",
                 "peerURLs": ["https://10.98.0.11:2380"],
                 "clientURLs": ["https://10.98.0.11:2379"]},
                {"ID": "2", "peerURLs": ["https://10.98.0.12:2380"], "isLearner": true}]}"#,
        );
        let statuses = BTreeMap::from([(
            "a-cp-1".to_owned(),
            status(r#"{"version": "3.6.8", "leader": "15833178455043582144", "raftTerm": "2"}"#),
        )]);
        let etcd = assemble(list, &statuses);
        assert_eq!(etcd.leader, Some(15_833_178_455_043_582_144));
        assert_eq!(
            etcd.members,
            [
                EtcdMember {
                    id: 15_833_178_455_043_582_144,
                    name: "a-cp-1".to_owned(),
                    peer_urls: vec!["https://10.98.0.11:2380".to_owned()],
                    learner: false,
                    healthy: true,
                },
                EtcdMember {
                    id: 2,
                    name: String::new(),
                    peer_urls: vec!["https://10.98.0.12:2380".to_owned()],
                    learner: true,
                    healthy: false,
                },
            ]
        );
    }

    #[test]
    fn a_member_without_a_leader_is_not_healthy_and_is_asked_last() {
        let statuses = BTreeMap::from([
            ("a-cp-1".to_owned(), status(r#"{"leader": "0"}"#)),
            ("a-cp-2".to_owned(), status(r#"{"leader": "7"}"#)),
            ("a-cp-3".to_owned(), status("{}")),
        ]);
        assert_eq!(
            ask_first(&statuses).collect::<Vec<_>>(),
            ["a-cp-2", "a-cp-1", "a-cp-3"]
        );
        let members = list(r#"{"members": [{"ID": "1", "name": "a-cp-1"}]}"#);
        assert!(!assemble(members, &statuses).members[0].healthy);
    }

    #[rstest]
    #[case::a_member_that_is_gone(
        r#"{"code": 5, "message": "etcdserver: member not found", "details": []}"#,
        true
    )]
    #[case::a_member_that_may_not_go(
        r#"{"code": 9, "message": "etcdserver: unhealthy cluster", "details": []}"#,
        false
    )]
    #[case::no_gateway("404 page not found", false)]
    #[tokio::test]
    async fn a_member_counts_as_gone_only_if_etcd_says_so(
        #[case] body: &'static str,
        #[case] gone: bool,
    ) {
        let answer = tower::service_fn(move |_: Request<kube::client::Body>| async move {
            let body = kube::client::Body::from(body.as_bytes().to_vec());
            let answer = http::Response::builder().status(404).body(body).unwrap();
            Ok::<_, std::convert::Infallible>(answer)
        });
        let client = Client::new(answer, "default");
        let request = Request::post("/v3/cluster/member/remove").body(Vec::new());
        let source = client.request::<Removed>(request.unwrap()).await;
        let source = source.unwrap_err();
        let call = "ask".to_owned();
        let error = Error::Etcd(CallError::Kube { call, source });
        assert_eq!(is_not_found(&error), gone);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        assert!(serde_json::from_str::<MemberList>(r#"{"members": [{"ID": "x"}]}"#).is_err());
    }
}
