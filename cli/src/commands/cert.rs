//! `volvox cert`: certificates for clients of the API. The key is made here, and stays here.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use serde_json::json;
use volvox_protocol::api::{IssueCertificateRequest, IssueCertificateResponse};
use volvox_protocol::id::CellId;
use volvox_protocol::role::Role;

use crate::Context;
use crate::args::{CertCommand, CertIssueArgs};
use crate::client::endpoint;
use crate::error::Failure;

pub(super) fn run(context: &mut Context, command: CertCommand) -> Result<(), Failure> {
    match command {
        CertCommand::Issue(args) => issue(context, args),
    }
}

fn issue(context: &mut Context, args: CertIssueArgs) -> Result<(), Failure> {
    let seconds = args.expires.as_secs();
    let lifetime_s = u32::try_from(seconds).ok().filter(|seconds| *seconds > 0);
    let lifetime_s =
        lifetime_s.ok_or_else(|| Failure::usage("--expires: at least 1s is wanted"))?;
    let role = args.role;
    let name = name(role, args.name)?;
    let files = Files::in_folder(&args.out, args.force)?;
    let key = key(args.private_key.as_deref())?;
    let csr = signing_request(&key)?;
    let client = context.client()?;
    let request =
        IssueCertificateRequest { role, name: name.clone(), csr, lifetime_s, hosts: args.host };
    let made: IssueCertificateResponse = client.call("/v1/certificates/issue", &request)?;
    files.write(&key.serialize_pem(), &made)?;
    let document = json!({
        "name": name, "role": role, "expires_at": made.expires_at,
        "ca": files.ca, "cert": files.cert, "key": files.key,
    });
    context.out.show(&document, |out| {
        files.all().into_iter().try_for_each(|path| out.line(&path.display().to_string()))
    })
}

/// A cell's certificate is for one cell; any other may be called after what it is for.
fn name(role: Role, given: Option<CellId>) -> Result<CellId, Failure> {
    match given {
        Some(name) => Ok(name),
        None if role == Role::Cell => {
            Err(Failure::usage("--role cell needs --name: the id of the cell that it speaks for"))
        }
        None => CellId::new(role.name()).map_err(|error| Failure::usage(error.to_string())),
    }
}

fn key(given: Option<&Path>) -> Result<KeyPair, Failure> {
    let Some(path) = given else {
        return KeyPair::generate()
            .map_err(|error| Failure::failed(format!("make a key: {error}")));
    };
    let text = endpoint::read(path, "the private key")?;
    KeyPair::from_pem(&text).map_err(|error| {
        Failure::usage(format!("{}: no private key that can be used: {error}", path.display()))
            .hint("PKCS#8 in PEM is wanted: openssl pkcs8 -topk8 -nocrypt -in OLD -out NEW")
    })
}

/// Shows the key, and that we have its private half. It asks for nothing else.
fn signing_request(key: &KeyPair) -> Result<String, Failure> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(key).and_then(|request| request.pem());
    request.map_err(|error| Failure::failed(format!("make a signing request: {error}")))
}

/// Where it goes.
#[derive(Debug)]
struct Files {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
    force: bool,
}

impl Files {
    /// In this folder, which is made. What is there already is refused now, before anything is signed.
    fn in_folder(folder: &Path, force: bool) -> Result<Files, Failure> {
        let place = |name: &str| folder.join(name);
        let files =
            Files { ca: place("ca.pem"), cert: place("cert.pem"), key: place("key.pem"), force };
        let there = files.all().into_iter().find(|path| path.symlink_metadata().is_ok());
        if let Some(path) = there.filter(|_| !force) {
            return Err(is_there(path));
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| failed(folder, &error))?;
        Ok(files)
    }

    fn all(&self) -> [&PathBuf; 3] {
        [&self.ca, &self.cert, &self.key]
    }

    /// The key first: a certificate without its key is of no use to anybody.
    fn write(&self, key: &str, made: &IssueCertificateResponse) -> Result<(), Failure> {
        if [&made.certificate, &made.ca].iter().any(|text| !text.contains("BEGIN CERTIFICATE")) {
            return Err(Failure::failed("there is no certificate in the coordinator's answer")
                .hint("are its release and ours the same? `volvox version` shows both"));
        }
        let parts = [
            (&self.key, key, 0o600),
            (&self.cert, made.certificate.as_str(), 0o644),
            (&self.ca, made.ca.as_str(), 0o644),
        ];
        let mut written: Vec<&PathBuf> = Vec::new();
        for (path, text, mode) in parts {
            let done =
                if self.force { replace(path, text, mode) } else { create(path, text, mode) };
            if let Err(failure) = done {
                // Half of it would only be in the way of the next try. What was replaced cannot be
                // had back.
                for path in written.into_iter().filter(|_| !self.force) {
                    let _ = std::fs::remove_file(path);
                }
                return Err(failure);
            }
            written.push(path);
        }
        Ok(())
    }
}

/// A file that was not there. One that cannot be finished is removed.
fn create(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(is_there(path)),
        Err(error) => return Err(failed(path, &error)),
    };
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| {
        let _ = std::fs::remove_file(path);
        failed(path, &error)
    })
}

/// A file that may be there: until the new one is whole, the old one stays.
fn replace(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let fresh = path.with_extension(format!("pem.{}", std::process::id()));
    create(&fresh, text, mode)?;
    std::fs::rename(&fresh, path).map_err(|error| {
        let _ = std::fs::remove_file(&fresh);
        failed(path, &error)
    })
}

fn is_there(path: &Path) -> Failure {
    Failure::usage(format!("{} is there already, and is not overwritten", path.display()))
        .hint("choose another folder with --out, or overwrite it with --force")
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("{}: cannot be written: {error}", path.display()))
        .hint("choose a folder that you may write to with --out")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::error::Code;

    fn made(text: &str) -> IssueCertificateResponse {
        let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n");
        IssueCertificateResponse { certificate: pem.clone(), ca: pem, ..Default::default() }
    }

    #[test]
    fn files_are_made_once_and_the_key_is_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("new/cfdot");
        let files = Files::in_folder(&out, false).unwrap();
        files.write("secret", &made("1")).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&files.key), mode(&out)), (0o600, 0o700));
        let refused = Files::in_folder(&out, false).unwrap_err();
        assert_eq!(refused.code, Code::Usage);
        assert!(refused.message.contains("new/cfdot/ca.pem"), "{refused:?}");
        assert!(refused.hint.contains("--force"), "{refused:?}");
        std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o644)).unwrap();
        let files = Files::in_folder(&out, true).unwrap();
        files.write("other", &made("2")).unwrap();
        assert_eq!(mode(&files.key), 0o600);
        assert_eq!(std::fs::read_to_string(&files.key).unwrap(), "other");
        assert!(std::fs::read_to_string(&files.cert).unwrap().contains('2'));
        assert_eq!(std::fs::read_dir(&out).unwrap().count(), 3, "nothing is left beside them");
    }

    #[test]
    fn who_comes_in_between_is_not_overwritten_and_half_is_not_left() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::in_folder(folder.path(), false).unwrap();
        std::os::unix::fs::symlink("/nonexistent/x", &files.ca).unwrap();
        let refused = files.write("secret", &made("1")).unwrap_err();
        assert!(refused.message.contains("ca.pem is there already"), "{refused:?}");
        assert!(!files.key.exists() && !files.cert.exists());
        assert!(Files::in_folder(folder.path(), false).is_err(), "a link counts too");
        let empty = IssueCertificateResponse::default();
        assert!(files.write("secret", &empty).is_err(), "an answer with nothing in it");
    }

    #[test]
    fn a_name_may_be_left_out_but_for_cells() {
        assert_eq!(name(Role::Admin, None).unwrap().as_str(), "admin");
        assert!(name(Role::Cell, None).unwrap_err().message.contains("--name"));
        let given = CellId::new("cell-7").unwrap();
        assert_eq!(name(Role::Cell, Some(given.clone())), Ok(given));
    }

    #[test]
    fn a_request_is_signed_and_a_bad_key_is_named() {
        let request = signing_request(&key(None).unwrap()).unwrap();
        assert!(request.starts_with("-----BEGIN CERTIFICATE REQUEST-----"), "{request}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.pem");
        std::fs::write(&path, "no key").unwrap();
        let refused = key(Some(&path)).unwrap_err();
        assert!(refused.message.contains("bad.pem") && refused.hint.contains("openssl"));
    }
}
