//! Writes what is generated: frozen bytes of new messages, tables of documents, the description of the HTTP API, and the
//! models of the Python client.

use crate::shell::{self, cargo, step};
use crate::system;
use anyhow::Result;
use std::process::Command;

/// Tests that compare generated files with the sources, and write them if `NODEGLASS_FREEZE` is set: package and arguments.
const WRITERS: [(&str, &[&str]); 4] = [
    ("nodeglass-protocol", &["--test", "wire"]),
    ("nodeglass-findings", &["--lib", "document"]),
    ("nodeglass-web", &["--test", "web", "description"]),
    ("nodeglass-tests", &["--test", "it", "house::protocol_tables"]),
];

/// Writes all of it; `git diff` then shows what changed.
pub(crate) fn run() -> Result<()> {
    let openssl = system::for_building()?;
    for (package, tests) in WRITERS {
        step(&format!("what {package} generates"), || {
            let mut command = cargo();
            command.args(["test", "--quiet", "--package", package]).args(openssl.flags()).args(tests);
            // Two tests write different tables of one document.
            shell::run(command.args(["--", "--test-threads=1"]).env("NODEGLASS_FREEZE", "1"))
        })?;
    }
    // It reads the description that was written before.
    let models = shell::root().join("clients/python/tools/generate_models.py");
    step("models of the Python client", || shell::run(Command::new("python3").arg(models)))
}
