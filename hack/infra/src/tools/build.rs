//! Builds the programs of one module with the host's Go compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::catalogue::{Module, Program};
use super::definitions::Definitions;
use crate::build_command::{bound, run};
use crate::cache::{Key, KeyBuilder};
use crate::progress::{Progress, mebibytes};

/// The oldest Go release that the modules accept, as (major, minor).
const OLDEST_GO: (u32, u32) = (1, 26);

/// The Go compiler of the host.
pub(super) struct Compiler {
    /// What it says of itself: version, system and architecture.
    version: String,
}

impl Compiler {
    /// Fails when there is none or it is too old, saying which one is wanted.
    pub(super) fn find() -> Result<Self> {
        let wanted = format!(
            "the tools are built with Go {}.{} or newer",
            OLDEST_GO.0, OLDEST_GO.1
        );
        let version = run(bound("go").arg("version"))
            .with_context(|| format!("{wanted}: install it and put it into PATH"))?;
        ensure!(
            release(&version) >= Some(OLDEST_GO),
            "{wanted}, not with {}",
            version.trim()
        );
        Ok(Self { version })
    }
}

/// Reads major and minor version from "go version go1.26.8 linux/amd64".
fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version
        .split_whitespace()
        .nth(2)?
        .strip_prefix("go")?
        .split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The folder of a module in this checkout.
pub(super) fn module_folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tools")
        .join(name)
}

/// A digest of everything that the module's programs depend on.
pub(super) fn key(module: &Module, compiler: &Compiler) -> Result<Key> {
    let mut key = KeyBuilder::default().input("compiler", &compiler.version);
    for file in sources(&module_folder(module.name))? {
        let text = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        key = key.input(
            &file.file_name().unwrap_or_default().to_string_lossy(),
            text,
        );
    }
    for program in module.programs {
        key = key.input(program.name, arguments(module, program).join("\n"));
    }
    let definitions = module.crds.map(Definitions::key).unwrap_or_default();
    Ok(key.input("crds", definitions).key())
}

/// Every file of a module, in a fixed order.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(sources(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Builds the programs of a module into `folder/bin`, and its CustomResourceDefinitions into `folder/<module>`.
///
/// One after another: the compiler uses every core by itself.
pub(super) fn module(module: &Module, folder: &Path, progress: &Progress) -> Result<()> {
    let bin = folder.join("bin");
    fs::create_dir(&bin)?;
    for program in module.programs {
        let step = progress.step(format!("build {} ({})", program.name, module.name));
        let target = bin.join(program.name);
        run(go(module)
            .args(arguments(module, program))
            .arg("-o")
            .arg(&target)
            .arg(program.package))?;
        step.done(&mebibytes(fs::metadata(&target)?.len()));
    }
    if let Some(definitions) = module.crds {
        let target = folder.join(module.name);
        let step = progress.step(format!("write the definitions of {}", module.name));
        match definitions {
            Definitions::Generated(package) => generate(module, package, &bin, &target)?,
            Definitions::Published {
                module: path,
                folders,
            } => {
                copy_published(module, path, folders, &target)?;
            }
        }
        step.done(&format!("{} files", fs::read_dir(&target)?.count()));
    }
    Ok(())
}

fn generate(module: &Module, package: &str, bin: &Path, target: &Path) -> Result<()> {
    let mut generator = bound(bin.join("controller-gen"));
    let generator = environment(&mut generator, module)
        .arg("crd")
        .arg(format!("paths={package}"));
    run(generator.arg(format!("output:crd:dir={}", target.display())))?;
    Ok(())
}

/// Copies definitions that another module carries; `go.sum` holds the digest of what is downloaded.
fn copy_published(module: &Module, path: &str, folders: &[&str], target: &Path) -> Result<()> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Download {
        dir: PathBuf,
    }
    let answer = run(go(module).args(["mod", "download", "-json", path]))?;
    let download: Download =
        serde_json::from_str(&answer).with_context(|| format!("read where Go put {path}"))?;
    fs::create_dir(target)?;
    for folder in folders {
        let folder = download.dir.join(folder);
        for file in sources(&folder).with_context(|| format!("list {}", folder.display()))? {
            let name = file.file_name().unwrap_or_default();
            let text = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
            fs::write(target.join(name), text)?;
        }
    }
    Ok(())
}

fn go(module: &Module) -> Command {
    let mut command = bound("go");
    environment(&mut command, module);
    command
}

/// The same build wherever it runs: no flags, workspace or other compiler of the caller's.
fn environment<'a>(command: &'a mut Command, module: &Module) -> &'a mut Command {
    command
        .current_dir(module_folder(module.name))
        .env("CGO_ENABLED", if module.cgo { "1" } else { "0" })
        .env("GOFLAGS", "-mod=readonly")
        .env("GOWORK", "off")
        .env("GOTOOLCHAIN", "local")
}

/// The arguments of `go` for a program, up to the output file.
fn arguments(module: &Module, program: &Program) -> Vec<String> {
    let mut link = vec!["-s -w".to_owned()];
    let variables = program.variables.iter();
    link.extend(variables.map(|(variable, value)| format!("-X {variable}={value}")));
    let mut arguments = vec![
        "build".to_owned(),
        "-trimpath".to_owned(),
        "-buildvcs=false".to_owned(),
    ];
    if module.cgo {
        // Name and user look-ups in Go: those of the C library can't be linked statically.
        link.push("-extldflags -static".to_owned());
        arguments.push("-tags=netgo,osusergo".to_owned());
    }
    arguments.push(format!("-ldflags={}", link.join(" ")));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_read_from_what_go_says() {
        assert_eq!(release("go version go1.26.8 linux/amd64\n"), Some((1, 26)));
        assert_eq!(release("go version go1.27rc1 linux/amd64"), None);
        assert_eq!(release("gopher"), None);
    }

    #[test]
    fn versions_are_linked_in_and_c_code_is_linked_statically() {
        let module = Module {
            name: "m",
            cgo: true,
            programs: &[],
            crds: None,
        };
        let program = Program {
            name: "p",
            package: "example.org/p",
            variables: &[("v.Version", "v1")],
        };
        assert_eq!(
            arguments(&module, &program).last().map(String::as_str),
            Some("-ldflags=-s -w -X v.Version=v1 -extldflags -static")
        );
    }
}
