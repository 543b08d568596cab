//! The runner's end of the control socket.

use std::sync::Arc;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::Site;
use crate::cluster_api::Installer;
use crate::control::{Answer, ExecOutput, Request, StartUp};
use crate::faults::{Breaker, Target};
use crate::status::{HostRow, StatusReport};

/// The steps of the start so far.
type Steps = watch::Receiver<Vec<StartUp>>;
/// The infrastructure, once it is up.
type Up = watch::Receiver<Option<Arc<Site>>>;

/// Answers on the control socket until it breaks.
pub(super) async fn serve(listener: UnixListener, steps: Steps, site: Up) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let (steps, site) = (steps.clone(), site.clone());
        tokio::spawn(async move {
            if let Err(error) = converse(stream, steps, site).await {
                tracing::debug!("control connection: {error:#}");
            }
        });
    }
}

async fn converse(stream: UnixStream, steps: Steps, site: Up) -> anyhow::Result<()> {
    let (input, mut output) = stream.into_split();
    let mut lines = BufReader::new(input).lines();
    while let Some(line) = lines.next_line().await? {
        match serde_json::from_str(&line) {
            Ok(Request::Follow) => follow(&mut output, steps.clone()).await?,
            Ok(request) => {
                let up = site.borrow().clone();
                let answer = match up.context("the infrastructure is not up yet") {
                    Ok(site) => answer(&site, request).await,
                    Err(error) => Answer::of::<()>(Err(error)),
                };
                send(&mut output, &answer).await?;
            }
            Err(error) => send(&mut output, &Answer::Error(error.to_string())).await?,
        }
    }
    Ok(())
}

/// Sends every step, the last of which is Ready or Failed.
async fn follow(output: &mut OwnedWriteHalf, mut steps: Steps) -> anyhow::Result<()> {
    let mut sent = 0;
    loop {
        let new: Vec<_> = steps
            .borrow_and_update()
            .iter()
            .skip(sent)
            .cloned()
            .collect();
        for step in new {
            sent += 1;
            let last = !matches!(step, StartUp::Step(_));
            send(output, &Answer::of(Ok(step))).await?;
            if last {
                return Ok(());
            }
        }
        steps.changed().await?;
    }
}

async fn answer(site: &Site, request: Request) -> Answer {
    match request {
        Request::Follow => Answer::Error("is answered while it starts".to_owned()),
        Request::Status => Answer::of(Ok(status(site))),
        Request::Fault(fault) => {
            tracing::info!(?fault, "fault");
            let breaker = Breaker {
                centre: &site.centre,
                hosts: &site.hosts,
                supervisor: &site.supervisor,
            };
            Answer::of(breaker.inject(fault).await)
        }
        Request::OperatorBinary(binary) => {
            site.centre
                .images
                .send_modify(|images| images.set_operator(&binary));
            Answer::of(Ok(()))
        }
        Request::ClusterApi(order) => {
            let installer = Installer {
                authority: &site.authority,
                kubectl: &site.kubectl,
                images: &site.centre.images,
            };
            Answer::of(installer.install(&order).await)
        }
        Request::MachineExec(at, argv) => Answer::of(exec(site, &at, &argv).await),
    }
}

async fn exec(site: &Site, at: &Target, argv: &[String]) -> anyhow::Result<ExecOutput> {
    let output = site
        .centre
        .guests
        .exec(&at.namespace, &at.name, argv)
        .await?;
    Ok(ExecOutput {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

fn status(site: &Site) -> StatusReport {
    let hosts = site.hosts.rows().into_iter().map(|(host, power)| HostRow {
        name: host.name.clone(),
        zone: host.zone.to_owned(),
        power,
    });
    let mut guests = site.centre.guests.rows();
    guests.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    let images = site.centre.options.images();
    StatusReport {
        hosts: hosts.collect(),
        guests,
        programs: site.supervisor.rows(),
        images: images.map(|image| image.reference.clone()).collect(),
        kubeconfig: site.centre.run.kubeconfig(),
        logs: site.centre.run.logs(),
    }
}

async fn send(output: &mut OwnedWriteHalf, answer: &Answer) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    output.write_all(&line).await?;
    Ok(())
}
