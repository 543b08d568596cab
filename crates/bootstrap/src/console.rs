//! What the scripts write to the machine's console, and how to read it.
//!
//! The console is the only way to hear of a machine whose node never came to be: there is no
//! user to log in as. Lines of the scripts begin with [`PREFIX`], so that they stand out between
//! those of the kernel and of systemd.

/// What every line of the scripts begins with.
pub const PREFIX: &str = "guestcluster: ";

const STARTED: &str = " started";
const SUCCEEDED: &str = "bootstrap succeeded";
const RESTARTED: &str = "machine restarted";
const FAILED: &str = "bootstrap failed: ";
const OUTPUT: &str = "| ";

/// How the boot of a machine went, by its console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Boot {
    /// None of the scripts has said anything.
    Silent,
    /// A step is under way, for example `kubeadm init`.
    Running {
        /// Which.
        step: String,
    },
    /// The machine has become a node.
    Succeeded,
    /// The machine was a node already and has started again.
    Restarted,
    /// The machine will not become a node.
    Failed {
        /// At which step, or why.
        step: String,
        /// The last lines of kubeadm's output, without secrets; empty if it was not kubeadm.
        output: Vec<String>,
    },
}

/// Reads a console log, or the end of one. The last word of the scripts counts.
pub fn read(log: &str) -> Boot {
    let mut boot = Boot::Silent;
    let mut output = Vec::new();
    for line in log.lines() {
        // Kernel messages may stand before ours on the same line.
        let Some((_, said)) = line.split_once(PREFIX) else {
            continue;
        };
        let said = said.trim_end();
        if let Some(line) = said.strip_prefix(OUTPUT) {
            output.push(line.to_owned());
        } else if let Some(step) = said.strip_prefix(FAILED) {
            boot = Boot::Failed {
                step: step.to_owned(),
                output: std::mem::take(&mut output),
            };
        } else if said == SUCCEEDED {
            boot = Boot::Succeeded;
        } else if said == RESTARTED {
            boot = Boot::Restarted;
        } else if let Some(step) = said.strip_suffix(STARTED) {
            boot = Boot::Running {
                step: step.to_owned(),
            };
        }
    }
    boot
}
