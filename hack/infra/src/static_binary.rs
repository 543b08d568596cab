//! Whether a program runs in an image that holds nothing else.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Program headers stand at the beginning of every program that a linker writes.
const HEAD: u64 = 64 * 1024;
/// The type of the program header that names a dynamic loader.
const INTERPRETER: u32 = 3;

/// The absolute path of `program`, which must be a statically linked 64-bit program of Linux.
///
/// # Errors
/// Says what to build instead: in the Pod, a missing loader would show as a missing program.
pub fn check(program: &Path) -> anyhow::Result<PathBuf> {
    let absolute = std::fs::canonicalize(program)
        .with_context(|| format!("no program {}", program.display()))?;
    let mut head = Vec::new();
    File::open(&absolute)?.take(HEAD).read_to_end(&mut head)?;
    match needs_loader(&head) {
        Some(false) => Ok(absolute),
        Some(true) => anyhow::bail!(
            "{} needs a dynamic loader, which the operator's image does not have: link it statically",
            program.display()
        ),
        None => anyhow::bail!("{} is no 64-bit Linux program", program.display()),
    }
}

/// Whether a program with this beginning names a dynamic loader; none when it is no ELF program.
fn needs_loader(head: &[u8]) -> Option<bool> {
    // The magic number, 64 bits, little endian.
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let table = usize::try_from(u64::from_le_bytes(field(head, 0x20)?)).ok()?;
    let size = usize::from(u16::from_le_bytes(field(head, 0x36)?));
    let count = usize::from(u16::from_le_bytes(field(head, 0x38)?));
    let mut kinds = (0..count).map(|index| field(head, table + index * size));
    Some(kinds.any(|kind| kind.map(u32::from_le_bytes) == Some(INTERPRETER)))
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::{check, needs_loader};
    use std::path::Path;

    /// An ELF header with one program header of type `kind`.
    fn program(kind: u32) -> Vec<u8> {
        let mut bytes = vec![0; 0x80];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[0x20] = 0x40;
        bytes[0x36] = 0x38;
        bytes[0x38] = 1;
        bytes[0x40..0x44].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    #[test]
    fn a_program_with_an_interpreter_needs_a_loader() {
        assert_eq!(needs_loader(&program(3)), Some(true));
        assert_eq!(needs_loader(&program(1)), Some(false));
        assert_eq!(needs_loader(b"#!/bin/sh"), None);
    }

    #[test]
    fn this_test_itself_is_linked_dynamically() {
        let error = check(Path::new("/proc/self/exe")).unwrap_err().to_string();
        assert!(error.contains("link it statically"), "{error}");
    }
}
