//! `volvox-coordinator cert …`: certificates for clients of the API that show one, as Diego's do.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use volvox_mesh::tls::config::system_clock;
use volvox_protocol::id::CellId;

use super::lifetime;
use super::owner::as_owner;
use crate::api::access::Role;
use crate::api::tls::{CertificateRequest, IssueRequest, ensure_authority, issue};
use crate::offline::say;

/// What to do about certificates.
#[derive(Debug, Subcommand)]
pub(crate) enum CertCommand {
    /// Make a certificate, and write ca.pem, cert.pem and key.pem.
    ///
    /// It is signed by the API's own authority, in the data folder, and has its role in it. It cannot be
    /// taken back: give it a short life, and make it anew. From another machine, and by who may not read
    /// the data folder: volvox cert issue.
    Issue {
        /// The coordinator's data folder.
        #[arg(long, default_value = "/var/lib/volvox/coordinator")]
        data_dir: PathBuf,
        /// What its bearer may do: read, write, cell or admin.
        #[arg(long)]
        role: Role,
        /// Who has it. Of the role cell, the id of the cell that it speaks for.
        #[arg(long)]
        name: CellId,
        /// The folder to write to.
        #[arg(long)]
        out: PathBuf,
        /// For how long, such as 12h or 90d.
        #[arg(long, default_value = "90d", value_parser = lifetime)]
        expires: Duration,
        /// A private key to make it for, in PEM: for peers with TLS 1.2 an RSA key. Without it, a new
        /// one is made (ECDSA, P-256).
        #[arg(long)]
        key: Option<PathBuf>,
        /// A name or address of a server that shows it; may be given several times. Without one it is
        /// for clients only.
        #[arg(long)]
        host: Vec<String>,
        /// Overwrite the three files.
        #[arg(long)]
        force: bool,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(command: CertCommand) -> anyhow::Result<ExitCode> {
    let CertCommand::Issue { data_dir, role, name, out, expires, key, host, force, json } = command;
    // Root's would be of no use to the coordinator. Key and certificate are the caller's.
    as_owner(&data_dir, || Ok(ensure_authority(&data_dir)?))?;
    let terms = CertificateRequest { name, role, lifetime: expires, hosts: host };
    let order = IssueRequest { terms, key, folder: out, force };
    let written = issue(system_clock()(), &data_dir, &order)?;
    if json {
        let shown = serde_json::json!({
            "ca": written.ca, "cert": written.cert, "key": written.key,
        });
        say(&shown.to_string());
    } else {
        for path in [&written.ca, &written.cert, &written.key] {
            say(&path.display().to_string());
        }
    }
    Ok(ExitCode::SUCCESS)
}
