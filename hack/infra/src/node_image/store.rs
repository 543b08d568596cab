//! A containerd root folder with every image unpacked, so that no machine unpacks anything at its boot.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{sources, tree};
use crate::build_command::{Confined, run};
use crate::tools::Programs;

/// What a containerd of its own does with the archive.
const SCRIPT: &str = "import.sh";

/// Unpacks the images of the archive into `store`, which is created.
pub(super) fn import(store: &Path, archive: &Path, built: &Programs) -> Result<()> {
    fs::create_dir(store).with_context(|| format!("create {}", store.display()))?;
    let script = sources().join(SCRIPT);
    run(Confined::Host
        .command("sh")
        .arg(script)
        .args([store, archive, &built.bin]))?;
    // containerd ends well even if it has kept nothing: machines without images fail minutes later and elsewhere.
    let database = |path: &Path| path.extension().is_some_and(|extension| extension == "db");
    ensure!(
        tree::list(store)?.iter().any(|(path, _)| database(path)),
        "containerd has left no store in {}",
        store.display()
    );
    Ok(())
}
