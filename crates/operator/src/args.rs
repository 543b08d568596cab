//! Arguments of the program.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use clap::{ArgAction, Parser, ValueEnum};
use guestcluster_planner::cidr::Cidr;
use k8s_openapi::jiff::SignedDuration;

/// Makes Kubernetes clusters of KubeVirt machines as GuestCluster objects say.
#[derive(Clone, Debug, Parser)]
#[command(name = "guestcluster-operator", version, about)]
pub struct Args {
    /// Range of the infrastructure cluster's pods that its Nodes do not tell in spec.podCIDRs;
    /// may be given several times. Guests whose ranges overlap it are refused.
    #[arg(long = "infra-pod-cidr", value_name = "CIDR")]
    pub infra_pod_cidrs: Vec<Cidr>,

    /// Range of the infrastructure cluster's Services that no ServiceCIDR object tells; may be
    /// given several times. Guests whose ranges overlap it are refused.
    #[arg(long = "infra-service-cidr", value_name = "CIDR")]
    pub infra_service_cidrs: Vec<Cidr>,

    /// How long a machine may be unhealthy before it is replaced, such as 5m or 90s.
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub unhealthy_after: SignedDuration,

    /// Serves Cluster API as its infrastructure provider for KubeVirt, in the place of CAPK's own
    /// controller manager, which must not run.
    #[arg(long)]
    pub capk_provider: bool,

    /// Where to serve /healthz, /readyz and /metrics.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8081")]
    pub http_address: SocketAddr,

    /// How much to log: a level (error, warn, info, debug, trace), or target=level pairs separated
    /// by commas.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log_level: String,

    /// How log lines look.
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    pub log_format: LogFormat,

    /// Whether to elect one leader among the replicas. Without it there must be one replica only.
    #[arg(
        long,
        value_name = "true|false",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub leader_election: bool,

    /// Namespace of the Lease over which replicas elect their leader.
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "POD_NAMESPACE",
        default_value = "guestcluster-system"
    )]
    pub lease_namespace: String,

    /// Name of this replica in the election and in events; default: the host's name.
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub identity: Option<String>,

    /// How many clusters are worked on at a time.
    #[arg(long, value_name = "NUMBER", default_value = "8")]
    pub concurrency: NonZeroUsize,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn ranges_may_be_given_several_times() {
        let args = Args::parse_from([
            "guestcluster-operator",
            "--infra-pod-cidr=10.77.0.0/16",
            "--infra-pod-cidr=10.78.0.0/16",
            "--leader-election=false",
            "--log-format=text",
        ]);
        assert_eq!(args.infra_pod_cidrs.len(), 2);
        assert_eq!(
            (args.leader_election, args.log_format),
            (false, LogFormat::Text)
        );
    }

    #[test]
    fn a_range_that_is_none_is_refused() {
        let args = ["guestcluster-operator", "--infra-pod-cidr=10.77.0.0"];
        assert!(Args::try_parse_from(args).is_err());
    }
}
