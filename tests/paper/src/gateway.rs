//! etcd's JSON gateway: the requests that the operator and kubeadm make, in the form of protobuf's
//! JSON, where 64-bit numbers are strings and fields that are zero are left out.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::etcd::{Etcd, LEARNERS_DO_NOT, Member, Refusal, Scene, TIMED_OUT};
use crate::reply::Reply;

/// How long etcd waits for a leader before it says that a request has timed out.
const PATIENCE: Duration = Duration::from_secs(7);

/// Answers a request to the member `own`; `fresh` is an ID for a member that is added.
pub fn answer(
    etcd: &mut Etcd,
    (own, scene): (&Member, Scene<'_>),
    (path, body): (&str, &Value),
    fresh: u64,
) -> Reply {
    if path == "/v3/maintenance/status" {
        return Reply::Json(200, status(etcd, own));
    }
    let outcome = if own.learner {
        Err(LEARNERS_DO_NOT)
    } else {
        change(etcd, (own.id, scene), (path, body), fresh)
    };
    match outcome {
        Ok(Some(mut answer)) => {
            answer["header"] = header(etcd, own);
            Reply::Json(200, answer)
        }
        Ok(None) => Reply::Text(404, "Not Found\n".to_owned()),
        Err(refusal) if refusal == TIMED_OUT => Reply::Late(PATIENCE, Box::new(refused(refusal))),
        Err(refusal) => refused(refusal),
    }
}

fn change(
    etcd: &mut Etcd,
    (via, scene): (u64, Scene<'_>),
    (path, body): (&str, &Value),
    fresh: u64,
) -> Result<Option<Value>, Refusal> {
    let number = |key: &str| id(body.get(key).unwrap_or(&Value::Null));
    match path {
        "/v3/cluster/member/list" => {
            etcd.leader.ok_or(TIMED_OUT)?;
            Ok(Some(members(etcd)))
        }
        "/v3/cluster/member/add" => {
            let url = body["peerURLs"][0].as_str().unwrap_or_default();
            let member = Member {
                id: fresh,
                machine: String::new(),
                peer_url: url.to_owned(),
                learner: body["isLearner"] == true,
                started: None,
            };
            let told = member_json(&member);
            etcd.add(member, (via, scene))?;
            let mut answer = members(etcd);
            answer["member"] = told;
            Ok(Some(answer))
        }
        "/v3/cluster/member/promote" => {
            etcd.promote(number("ID"), scene)?;
            Ok(Some(members(etcd)))
        }
        "/v3/cluster/member/remove" => {
            etcd.remove(number("ID"), (via, scene))?;
            Ok(Some(members(etcd)))
        }
        "/v3/maintenance/transfer-leadership" => {
            etcd.transfer(via, number("targetID"), scene)?;
            Ok(Some(json!({})))
        }
        _ => Ok(None),
    }
}

fn header(etcd: &Etcd, own: &Member) -> Value {
    json!({
        "cluster_id": etcd.cluster_id.to_string(),
        "member_id": own.id.to_string(),
        "raft_term": etcd.term.to_string(),
    })
}

fn status(etcd: &Etcd, own: &Member) -> Value {
    let mut status = json!({
        "header": header(etcd, own),
        "version": "3.6.15",
        "raftIndex": "100",
        "raftTerm": etcd.term.to_string(),
        "raftAppliedIndex": "100",
    });
    if let Some(leader) = etcd.leader {
        status["leader"] = json!(leader.to_string());
    } else {
        status["errors"] = json!(["etcdserver: no leader"]);
    }
    if own.learner {
        status["isLearner"] = json!(true);
    }
    status
}

fn members(etcd: &Etcd) -> Value {
    let members: Vec<Value> = etcd.members.iter().map(member_json).collect();
    json!({ "members": members })
}

fn member_json(member: &Member) -> Value {
    let mut told = Map::new();
    told.insert("ID".to_owned(), json!(member.id.to_string()));
    told.insert("peerURLs".to_owned(), json!([member.peer_url]));
    if let Some(url) = member.client_url() {
        told.insert("name".to_owned(), json!(member.machine));
        told.insert("clientURLs".to_owned(), json!([url]));
    }
    if member.learner {
        told.insert("isLearner".to_owned(), json!(true));
    }
    Value::Object(told)
}

fn refused(refusal: Refusal) -> Reply {
    let body = json!({ "code": refusal.code, "message": refusal.message });
    Reply::Json(refusal.http_status(), body)
}

/// The gateway takes numbers and strings alike.
fn id(value: &Value) -> u64 {
    let text = value.as_str().and_then(|text| text.parse().ok());
    text.or_else(|| value.as_u64()).unwrap_or_default()
}
