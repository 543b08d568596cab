//! Programs that a build runs to their end.
//!
//! Guarantees: a killed build leaves no program behind (each is killed with the thread that waits for it), and
//! [`Confined`] ones leave no mounts either: they have mount and process namespaces of their own.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// How many of the last lines of a failed program an error repeats.
const TOLD_LINES: usize = 30;

/// A command that ends when its caller does.
pub(crate) fn bound(program: impl AsRef<OsStr>) -> Command {
    // The death signal survives the exec of the program. Setting it from here would need unsafe code.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Where a confined command runs.
pub(crate) enum Confined<'a> {
    /// With the host's files.
    Host,
    /// With another root folder.
    Root(&'a Path),
}

impl Confined<'_> {
    /// A bound command whose mounts and children vanish with it.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = bound("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        if let Self::Root(root) = self {
            command.arg("--root").arg(root);
        }
        command.arg("--").arg(program);
        command
    }
}

/// Runs the command to its end and returns what it wrote to standard output.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {shown}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return Ok(text.into_owned());
    }
    let said = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    bail!(
        "{shown}: {}\n{}",
        output.status,
        last_lines(&said, TOLD_LINES)
    )
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_repeats_the_end_of_what_was_said() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a", 2), "a");
        let error = run(bound("sh").args(["-c", "echo gone wrong >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("gone wrong"), "{error}");
    }

    #[test]
    fn the_output_of_a_program_that_ends_well_is_returned() {
        assert_eq!(run(bound("echo").arg("hello")).unwrap(), "hello\n");
    }
}
