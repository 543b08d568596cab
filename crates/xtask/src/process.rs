//! Other programs, run in sight of the person who waits for them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::tally::Tally;

/// Announces what comes next. Standard error, so that figures on standard output stay clean.
pub fn say(what: &str) {
    eprintln!("==> {what}");
}

/// A command as one line, for messages.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs a command whose output goes to the terminal; its failure is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("start `{}`", shown(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", shown(command));
    }
    Ok(())
}

/// Runs a command and shows what it printed only when it fails.
pub fn quiet(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("start `{}`", shown(command)))?;
    if !output.status.success() {
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        bail!("`{}` failed: {}\n{out}{err}", shown(command), output.status);
    }
    Ok(())
}

/// Runs a command and returns what it printed on standard output; its failure is an error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("start `{}`", shown(command)))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", shown(command), output.status);
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("read what `{}` printed", shown(command)))
}

/// Runs a command, shows its standard output as it comes and hands each line to `line` as well.
/// Returns whether the command succeeded.
pub fn follow(command: &mut Command, mut line: impl FnMut(&str)) -> Result<bool> {
    let describe = shown(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start `{describe}`"))?;
    if let Some(stdout) = child.stdout.take() {
        for read in BufReader::new(stdout).split(b'\n') {
            let read = read.with_context(|| format!("read what `{describe}` prints"))?;
            let text = String::from_utf8_lossy(&read);
            writeln!(std::io::stdout(), "{text}")?;
            line(&text);
        }
    }
    Ok(child
        .wait()
        .with_context(|| format!("wait for `{describe}`"))?
        .success())
}

/// Runs a command that runs tests, shows what it prints and counts its closing lines.
pub fn follow_tests(command: &mut Command) -> Result<Tally> {
    let mut tally = Tally::default();
    let succeeded = follow(command, |line| tally.read(line))?;
    // What does not compile or dies runs no test, and must not look like something without tests.
    if !succeeded && tally.failed == 0 {
        tally += Tally::failure(format!("`{}`", shown(command)));
    }
    Ok(tally)
}
