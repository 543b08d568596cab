//! Benchmarks on the local infrastructure: prints figures and ratios, asserts nothing.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use guestcluster_e2e::bench::{Figures, fleet, guest, life};
use guestcluster_e2e::guest::install_operator;
use guestcluster_e2e::stage::{Place, Stage};
use guestcluster_infra::progress::Progress;
use guestcluster_infra::up::{Infra, UpOptions, down, up};

/// Measures groups, each on an infrastructure of its own.
#[derive(Parser)]
struct Arguments {
    /// Groups; all if none is named.
    groups: Vec<Group>,
    /// Write the figures as a flat JSON object.
    #[arg(long)]
    json: Option<PathBuf>,
    /// How often groups guest and life measure each thing; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The operator's static binary.
    #[arg(long)]
    operator: PathBuf,
    /// The project's folder, for the chart.
    #[arg(long, default_value = ".")]
    project: PathBuf,
    /// Already inside the network of the infrastructure of this group.
    #[arg(long, hide = true)]
    inside: Option<Group>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Group {
    /// Time to a Ready guest, beside a yardstick driven by hand.
    Guest,
    /// What upgrades, repairs and other changes take, beside bare joins.
    Life,
    /// Memory and pace with 200 guests on paper.
    Fleet,
}

impl Group {
    const fn name(self) -> &'static str {
        match self {
            Self::Guest => "guest",
            Self::Life => "life",
            Self::Fleet => "fleet",
        }
    }

    /// Five members take five hosts.
    const fn hosts(self) -> u8 {
        match self {
            Self::Guest => 4,
            Self::Life => 5,
            Self::Fleet => 100,
        }
    }

    fn infra(self) -> String {
        format!("bench-{}", self.name())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(group) = arguments.inside {
        return measure(&arguments, group).await;
    }
    let groups = match arguments.groups.as_slice() {
        [] => vec![Group::Guest, Group::Life, Group::Fleet],
        groups => groups.to_vec(),
    };
    let mut all = serde_json::Map::new();
    for group in groups {
        all.extend(enter(&arguments, group).await?);
    }
    if let Some(file) = &arguments.json {
        let text = serde_json::to_string_pretty(&all)?;
        std::fs::write(file, text + "\n").with_context(|| format!("write {}", file.display()))?;
    }
    Ok(())
}

/// Brings the group's infrastructure up, measures inside its network, and takes it down.
async fn enter(
    arguments: &Arguments,
    group: Group,
) -> anyhow::Result<serde_json::Map<String, serde_json::Value>> {
    let options = UpOptions {
        name: group.infra(),
        hosts: group.hosts(),
        paper: group == Group::Fleet,
        operator_binary: Some(arguments.operator.clone()),
    };
    let infra = up(options, &Progress::detect()).await?;
    let figures = infra.run_dir().root().join("figures.json");
    let status = infra
        .command(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg("--inside")
        .arg(group.name())
        .status()
        .context("cannot enter the infrastructure's network")?;
    let text = std::fs::read_to_string(&figures);
    down(&group.infra()).await?;
    anyhow::ensure!(status.success(), "group {} was not measured", group.name());
    Ok(serde_json::from_str(&text?)?)
}

async fn measure(arguments: &Arguments, group: Group) -> anyhow::Result<()> {
    let infra = Infra::open(&group.infra()).await?;
    let file = infra.run_dir().root().join("figures.json");
    let stage = Stage::set(Place::Local(Box::new(infra)), &arguments.project, false).await?;
    install_operator(&stage).await?;
    let mut figures = Figures::default();
    match group {
        Group::Guest => guest::run(&stage, &mut figures, arguments.rounds).await?,
        Group::Life => life::run(&stage, &mut figures, arguments.rounds).await?,
        Group::Fleet => fleet::run(&stage, &mut figures).await?,
    }
    figures.write(&file)
}
