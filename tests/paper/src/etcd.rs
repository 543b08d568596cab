//! The membership of one guest's etcd, with etcd's own rules (v3.6, `server/etcdserver/server.go`
//! and `api/membership/cluster.go`): one learner at a time, no change without a quorum, and the
//! strict check of reconfigurations.

use std::time::{Duration, Instant};

/// A refusal, as gRPC codes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// gRPC's code.
    pub code: u8,
    /// etcd's words.
    pub message: &'static str,
}

impl Refusal {
    /// What the gateway answers with for the code.
    pub const fn http_status(self) -> u16 {
        match self.code {
            NOT_FOUND => 404,
            FAILED_PRECONDITION => 400,
            UNAVAILABLE => 503,
            _ => 500,
        }
    }
}

const UNKNOWN: u8 = 2;
const NOT_FOUND: u8 = 5;
const FAILED_PRECONDITION: u8 = 9;
const UNAVAILABLE: u8 = 14;

const fn precondition(message: &'static str) -> Refusal {
    Refusal {
        code: FAILED_PRECONDITION,
        message,
    }
}

const NO_SUCH_MEMBER: Refusal = Refusal {
    code: NOT_FOUND,
    message: "etcdserver: member not found",
};
/// A request that needs a leader waits for one, and then says this.
pub const TIMED_OUT: Refusal = Refusal {
    code: UNAVAILABLE,
    message: "etcdserver: request timed out",
};
const UNHEALTHY: Refusal = Refusal {
    code: UNAVAILABLE,
    message: "etcdserver: unhealthy cluster",
};
/// What a learner says to all but questions about itself.
pub const LEARNERS_DO_NOT: Refusal = precondition("etcdserver: rpc not supported for learner");
/// etcd gives this one no code of its own.
const NOT_STARTED: Refusal = Refusal {
    code: UNKNOWN,
    message: "etcdserver: re-configuration failed due to not enough started members",
};
const TOO_MANY_LEARNERS: Refusal = precondition("etcdserver: too many learner members in cluster");
/// A member's ID is made from its URLs.
const EXISTS: Refusal = precondition("etcdserver: member ID already exist");
const NOT_READY: Refusal =
    precondition("etcdserver: can only promote a learner member which is in sync with leader");
const NOT_A_LEARNER: Refusal = precondition("etcdserver: can only promote a learner member");
const NOT_LEADER: Refusal = precondition("etcdserver: not leader");
const BAD_HEIR: Refusal = precondition("etcdserver: bad leader transferee");

/// A member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// ID.
    pub id: u64,
    /// The machine whose member it is, which etcd knows as its name once it has started.
    pub machine: String,
    /// Where its peers reach it.
    pub peer_url: String,
    /// Has no vote yet.
    pub learner: bool,
    /// Since when it has started for the first time.
    pub started: Option<Instant>,
}

impl Member {
    /// Where its clients reach it; nobody knows before its first start.
    pub fn client_url(&self) -> Option<String> {
        self.started?;
        Some(self.peer_url.replace(":2380", ":2379"))
    }
}

/// Whose process runs and is reached by its peers, and since when.
pub trait Power {
    /// Since when the member of this machine runs, connected; none if it does not.
    fn since(&self, machine: &str) -> Option<Instant>;
}

/// The members, and who leads.
#[derive(Clone, Debug, Default)]
pub struct Etcd {
    /// The cluster's ID.
    pub cluster_id: u64,
    /// Members in the order in which they came.
    pub members: Vec<Member>,
    /// Who leads.
    pub leader: Option<u64>,
    /// How often a leader was elected.
    pub term: u64,
    /// Since when there is a quorum without a leader.
    leaderless: Option<Instant>,
}

/// How quick etcd is.
#[derive(Clone, Copy, Debug)]
pub struct Tempo {
    /// From a quorum without a leader to one with.
    pub election: Duration,
    /// How long a peer must have been connected to count as healthy (etcd's `HealthInterval`).
    pub health: Duration,
    /// How long a started learner takes to be in sync.
    pub sync: Duration,
}

impl Etcd {
    /// The first member alone.
    pub fn begin(cluster_id: u64, member: Member) -> Self {
        Self {
            cluster_id,
            leader: Some(member.id),
            members: vec![member],
            term: 2,
            ..Self::default()
        }
    }

    /// The member of a machine.
    pub fn of(&self, machine: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.machine == machine)
    }

    /// The machine whose member alone votes: it needs nobody.
    pub fn sole_voter(&self) -> Option<&str> {
        let mut voters = self.voters();
        let first = voters.next()?;
        voters.next().is_none().then_some(&*first.machine)
    }

    fn voters(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| !member.learner)
    }

    /// Enough voters run.
    pub fn has_quorum(&self, power: &dyn Power) -> bool {
        let up = self.voters().filter(|m| runs(m, power)).count();
        up * 2 > self.voters().count()
    }

    /// Elects a leader if there is none that runs, or gives leadership up with the quorum.
    pub fn elect(&mut self, power: &dyn Power, (tempo, now): (Tempo, Instant)) {
        if !self.has_quorum(power) {
            (self.leader, self.leaderless) = (None, None);
            return;
        }
        let leads = |m: &Member| Some(m.id) == self.leader && runs(m, power);
        if self.voters().any(leads) {
            self.leaderless = None;
            return;
        }
        self.leader = None;
        let since = *self.leaderless.get_or_insert(now);
        if now.duration_since(since) >= tempo.election {
            let heir = self.voters().find(|m| runs(m, power)).map(|m| m.id);
            (self.leader, self.leaderless) = (heir, None);
            self.term += 1;
        }
    }

    /// Adds a member that has not started (`mayAddMember`); `via` is the member that was asked.
    pub fn add(&mut self, member: Member, (via, scene): (u64, Scene<'_>)) -> Result<(), Refusal> {
        self.needs_leader()?;
        let same_url = |known: &Member| known.peer_url == member.peer_url;
        if self.members.iter().any(same_url) {
            return Err(EXISTS);
        }
        let voters = self.voters().count();
        if member.learner && self.members.iter().any(|known| known.learner) {
            return Err(TOO_MANY_LEARNERS);
        }
        let started = self.voters().filter(|m| m.started.is_some()).count();
        let is_second = voters == 1 && started == 1;
        if !(member.learner || is_second) && started < quorum(voters + 1) {
            return Err(NOT_STARTED);
        }
        // The new member counts as one that does not answer.
        if voters > 1 && self.active(via, scene) < quorum(voters + 1) {
            return Err(UNHEALTHY);
        }
        self.members.push(member);
        Ok(())
    }

    /// Gives a learner its vote.
    pub fn promote(&mut self, id: u64, scene: Scene<'_>) -> Result<(), Refusal> {
        self.needs_leader()?;
        let tempo = scene.tempo;
        let member = self.member(id)?;
        if !member.learner {
            return Err(NOT_A_LEARNER);
        }
        let in_sync = member
            .started
            .is_some_and(|since| scene.now.duration_since(since) >= tempo.sync);
        if !in_sync || !runs(member, scene.power) {
            return Err(NOT_READY);
        }
        self.members
            .iter_mut()
            .filter(|member| member.id == id)
            .for_each(|member| member.learner = false);
        Ok(())
    }

    /// Takes a member out (`mayRemoveMember`); `via` is the member that was asked.
    pub fn remove(&mut self, id: u64, (via, scene): (u64, Scene<'_>)) -> Result<(), Refusal> {
        self.needs_leader()?;
        let member = self.member(id)?;
        if !member.learner {
            let others = || self.voters().filter(|m| m.id != id);
            let started = others().filter(|m| m.started.is_some()).count();
            if started < quorum(others().count()) {
                return Err(NOT_STARTED);
            }
            let goes_unseen = id != via && !runs(member, scene.power);
            let voters = self.voters().count();
            let left = self.active(via, scene).saturating_sub(1);
            if !goes_unseen && left < 1 + (voters - 1) / 2 {
                return Err(UNHEALTHY);
            }
        }
        self.members.retain(|member| member.id != id);
        if self.leader == Some(id) {
            self.leader = None;
        }
        Ok(())
    }

    /// Lets another member lead; only the leader can do so.
    pub fn transfer(&mut self, via: u64, heir: u64, scene: Scene<'_>) -> Result<(), Refusal> {
        self.needs_leader()?;
        if self.leader != Some(via) {
            return Err(NOT_LEADER);
        }
        let fit = self.voters().any(|m| m.id == heir && runs(m, scene.power));
        if !fit {
            return Err(BAD_HEIR);
        }
        self.leader = Some(heir);
        self.term += 1;
        Ok(())
    }

    fn member(&self, id: u64) -> Result<&Member, Refusal> {
        let found = self.members.iter().find(|member| member.id == id);
        found.ok_or(NO_SUCH_MEMBER)
    }

    fn needs_leader(&self) -> Result<(), Refusal> {
        self.leader.map(drop).ok_or(TIMED_OUT)
    }

    /// Voters that the member `via` has been connected to for long enough, with itself.
    fn active(&self, via: u64, scene: Scene<'_>) -> usize {
        let steady = |member: &&Member| {
            let since = scene.power.since(&member.machine);
            let long = |since| scene.now.duration_since(since) >= scene.tempo.health;
            member.id == via || since.is_some_and(long)
        };
        self.voters().filter(steady).count()
    }
}

/// What a change of membership depends on.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// Who runs.
    pub power: &'a dyn Power,
    /// How quick etcd is.
    pub tempo: Tempo,
    /// When.
    pub now: Instant,
}

const fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

fn runs(member: &Member, power: &dyn Power) -> bool {
    member.started.is_some() && power.since(&member.machine).is_some()
}

#[cfg(test)]
mod tests;
