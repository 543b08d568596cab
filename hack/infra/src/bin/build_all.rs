//! Builds everything.
fn main() -> anyhow::Result<()> {
    let progress = guestcluster_infra::progress::Progress::detect();
    let tools = guestcluster_infra::tools::ensure(&progress)?;
    println!("{tools:?}");
    let image = guestcluster_infra::node_image::ensure(&tools, &progress)?;
    println!("{image:?}");
    Ok(())
}
