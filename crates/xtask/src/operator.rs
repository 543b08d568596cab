//! The operator's static binary: what the container image holds and what the local infrastructure
//! runs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process;
use crate::project::Project;

const PACKAGE: &str = "guestcluster-operator";

/// Named although it is the host's own: with it, the flags below reach the binary alone and not the
/// build scripts and macros, which cannot be static.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds the binary and makes sure that it needs nothing around it.
pub fn build(project: &Project) -> Result<PathBuf> {
    process::say("build the operator as one static binary");
    let mut command = project.cargo();
    command.args([
        "build",
        "--release",
        "--locked",
        "--package",
        PACKAGE,
        "--target",
        TARGET,
    ]);
    command.env("RUSTFLAGS", "-C target-feature=+crt-static");
    process::run(&mut command)?;
    let binary = project
        .target_folder()?
        .join(TARGET)
        .join("release")
        .join(PACKAGE);
    ensure_static(&binary)?;
    Ok(binary)
}

/// Fails when a program asks for an interpreter, the loader of shared libraries: an image made from
/// `scratch` has none.
fn ensure_static(binary: &Path) -> Result<()> {
    let bytes = fs::read(binary).with_context(|| format!("read {}", binary.display()))?;
    let asks = asks_for_interpreter(&bytes)
        .with_context(|| format!("{} is no 64-bit ELF program", binary.display()))?;
    if asks {
        bail!(
            "{} is not static: it needs shared libraries",
            binary.display()
        );
    }
    Ok(())
}

/// Whether an ELF file has a program header of type PT_INTERP; `None` when the bytes are no
/// little-endian 64-bit ELF file. Offsets are those of the ELF-64 object file format.
fn asks_for_interpreter(elf: &[u8]) -> Option<bool> {
    const PT_INTERP: u64 = 3;
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let headers = number(elf, 0x20, 8)?;
    let (size, count) = (number(elf, 0x36, 2)?, number(elf, 0x38, 2)?);
    for index in 0..count {
        if number(elf, headers + index * size, 4)? == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

/// A little-endian number of `width` bytes.
fn number(bytes: &[u8], at: u64, width: usize) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let digits = bytes.get(at..at.checked_add(width)?)?;
    Some(
        digits
            .iter()
            .rev()
            .fold(0, |number, digit| number << 8 | u64::from(*digit)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF header and one program header of a type.
    fn program(header_type: u8) -> Vec<u8> {
        let mut elf = vec![0; 0x40];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (elf[0x20], elf[0x36], elf[0x38]) = (0x40, 0x38, 1);
        elf.extend([header_type, 0, 0, 0]);
        elf
    }

    #[test]
    fn a_program_with_an_interpreter_is_not_static() {
        assert_eq!(asks_for_interpreter(&program(3)), Some(true));
        assert_eq!(asks_for_interpreter(&program(1)), Some(false));
    }

    #[test]
    fn what_is_no_elf_file_is_no_answer() {
        assert_eq!(asks_for_interpreter(b"#!/bin/sh"), None);
        assert_eq!(asks_for_interpreter(&program(1)[..0x40]), None);
    }
}
