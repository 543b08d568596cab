//! Questions to etcd's gateway.

use serde_json::{Value, json};

use super::{Asker, Tape, To, send};

const ETCD_REFUSED: &[&str] = &["=/code", "=/message"];

impl<A: Asker + Send> Tape<'_, A> {
    async fn gateway(&mut self, path: &str, body: Value, fields: &[&str]) -> anyhow::Result<Value> {
        let question = path.to_owned();
        let request = send("POST", path, "application/json", body);
        self.ask((To::Etcd, &question), request, fields).await
    }

    pub(super) async fn etcd(&mut self) -> anyhow::Result<()> {
        let fields = [
            "~/header/member_id",
            "~/members/0/ID",
            "=/members/0/name",
            "~/members/0/peerURLs/0",
            "~/members/0/clientURLs/0",
            "~/members/0/isLearner",
            "~/members/1",
        ];
        let list = self
            .gateway("/v3/cluster/member/list", json!({}), &fields)
            .await?;
        let own = list["members"][0]["ID"].clone();
        let fields = [
            "~/header/member_id",
            "~/leader",
            "~/raftTerm",
            "~/isLearner",
            "~/errors",
        ];
        self.gateway("/v3/maintenance/status", json!({}), &fields)
            .await?;
        let remove = "/v3/cluster/member/remove";
        self.gateway(remove, json!({ "ID": "1" }), ETCD_REFUSED)
            .await?;
        let only = json!({ "ID": own });
        self.gateway(remove, only.clone(), ETCD_REFUSED).await?;
        self.gateway("/v3/cluster/member/promote", only, ETCD_REFUSED)
            .await?;
        let transfer = "/v3/maintenance/transfer-leadership";
        self.gateway(transfer, json!({ "targetID": "1" }), ETCD_REFUSED)
            .await?;
        Ok(())
    }

    pub(super) async fn learners(&mut self) -> anyhow::Result<()> {
        let add = "/v3/cluster/member/add";
        let learner = |address: &str| json!({ "peerURLs": [format!("https://{address}:2380")], "isLearner": true });
        let fields = [
            "~/member/ID",
            "=/member/peerURLs/0",
            "=/member/isLearner",
            "~/member/name",
            "~/member/clientURLs",
            "~/members/1/name",
        ];
        let added = self.gateway(add, learner("10.0.0.9"), &fields).await?;
        self.gateway(add, learner("10.0.0.9"), ETCD_REFUSED).await?;
        self.gateway(add, learner("10.0.0.8"), ETCD_REFUSED).await?;
        let id = json!({ "ID": added["member"]["ID"] });
        self.gateway("/v3/cluster/member/promote", id.clone(), ETCD_REFUSED)
            .await?;
        let fields = [
            "=/members/[isLearner=true]/peerURLs/0",
            "~/members/[isLearner=true]/name",
        ];
        self.gateway("/v3/cluster/member/list", json!({}), &fields)
            .await?;
        let fields = ["~/header/member_id", "~/members/0/ID", "~/members/1"];
        self.gateway("/v3/cluster/member/remove", id, &fields)
            .await?;
        Ok(())
    }
}
