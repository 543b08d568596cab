//! Sizes of source files.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::project::Project;

/// Above this many lines a file should be split.
const SOFT: usize = 400;
/// Above this many lines a file must be split.
const HARD: usize = 600;

/// Fails on a Rust file above [`HARD`] lines, names those above [`SOFT`].
pub fn check(project: &Project) -> Result<()> {
    let mut too_long = Vec::new();
    for file in project.files(".rs")? {
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let lines = text.lines().count();
        let name = project.shown(&file);
        if lines > HARD {
            too_long.push(format!("{name} ({lines})"));
        } else if lines > SOFT {
            eprintln!("warning: {name} has {lines} lines; {SOFT} fit a head");
        }
    }
    if !too_long.is_empty() {
        bail!(
            "longer than {HARD} lines, to be split: {}",
            too_long.join(", ")
        );
    }
    Ok(())
}
