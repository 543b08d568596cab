//! The machine host's helper program; see [`guestcluster_infra::machine::helper`].

use std::process::ExitCode;

fn main() -> ExitCode {
    guestcluster_infra::machine::helper::main()
}
