//! Making a container and taking it away, step by step. Both block, and are called on threads of
//! their own; taking away undoes whatever making has done, however far it came.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;

use volvox_host::sync::{lock, unpoisoned};
use volvox_protocol::action::File as MountedFile;
use volvox_protocol::actual_lrp::PortMapping;

use super::{MachineShared, ids};
use crate::container::guid::ContainerGuid;
use crate::container::network::ContainerNetwork;
use crate::container::plan::ContainerPlan;
use crate::container::spec::{Access, Bind, ContainerSpec, LogLimits, LogLine, is_container_id};
use crate::image::cancel::Cancel;
use crate::image::extract::Ownership;
use crate::image::rootfs::{self, Lower, Rootfs};
use crate::runtime::dependency::{Dependencies, DependencyLine};
use crate::runtime::net::Attached;
use crate::runtime::shim::Shim;
use crate::runtime::{dependency, image_mount, privilege};

/// Where mounted files appear in a container.
const MOUNTED_FILES: &str = "/etc/cf-service-bindings";

/// Makes a container and connects it. When this fails nothing of it is left.
pub(super) fn make(
    shared: &MachineShared,
    guid: &ContainerGuid,
    plan: &ContainerPlan,
    cancel: &Cancel,
) -> Result<ContainerNetwork, String> {
    let made = build(shared, guid, plan, cancel);
    if made.is_err()
        && let Err(error) = destroy(shared, guid)
    {
        tracing::error!(container = %guid, error, "a container that could not be made was left");
    }
    made
}

fn build(
    shared: &MachineShared,
    guid: &ContainerGuid,
    plan: &ContainerPlan,
    cancel: &Cancel,
) -> Result<ContainerNetwork, String> {
    let failed = |error: &dyn std::fmt::Display| format!("failed to create container: {error}");
    if !is_container_id(guid.as_str()) {
        return Err(failed(&format!("{:?} is no name for a container", guid.as_str())));
    }
    privilege::allow(plan.privileged, shared.config.allow_privileged)
        .map_err(|error| failed(&error))?;
    if let Some(driver) = plan.volume_drivers.first() {
        return Err(format!("failed to mount volume, errors: no volume driver {driver:?} here"));
    }
    let (Dependencies { binds: lent, holds }, lines) = dependencies(shared, guid, plan, cancel)?;
    let (layers, mut binds) = root(shared, plan, cancel).map_err(|error| failed(&error))?;
    binds.extend(lent);
    if let (Some(source), false) = (&shared.config.certificates, plan.certificates_path.is_empty())
    {
        let target = PathBuf::from(&plan.certificates_path);
        binds.push(Bind { source: source.clone(), target, access: Access::ReadOnly });
    }
    binds.extend(mounted_files(&shared.files_of(guid), &plan.files).map_err(|error| {
        tracing::warn!(container = %guid, %error, "mounted files");
        "failed to create volume mounted files".to_owned()
    })?);
    if cancel.is_cancelled() {
        return Err(failed(&"it was given up"));
    }
    let first_id = shared.take_ids().ok_or_else(|| failed(&"no ids are left on this cell"))?;
    let spec = ContainerSpec {
        id: guid.as_str().to_owned(),
        layers,
        binds,
        first_id,
        ids: ids::IDS,
        privileged: plan.privileged,
        limits: plan.limits,
        log: LogLimits { bytes_per_second: plan.log_bytes_per_second, ..shared.config.log },
        cgroup: shared.cgroups.clone(),
    };
    let mut shim = shared.shims.create(&spec).map_err(|error| {
        // What could not be cleared has its ids still; whoever clears it gives them back.
        if shared.shims.spec(&spec.id).is_none() {
            shared.give_back_ids(first_id);
        }
        failed(&error)
    })?;
    let facts = connect(shared, guid, plan, &mut shim).map_err(|error| failed(&error))?;
    shared.hold(guid, shim, &spec, holds).map_err(|error| failed(&error))?;
    for line in lines {
        shared.log(guid, line);
    }
    Ok(facts)
}

/// Fetches what the cell's cache is to lend, and says which lines tell of it.
fn dependencies(
    shared: &MachineShared,
    guid: &ContainerGuid,
    plan: &ContainerPlan,
    cancel: &Cancel,
) -> Result<(Dependencies, Vec<LogLine>), String> {
    let lines = Mutex::new(Vec::new());
    let tell = |line: DependencyLine| {
        let DependencyLine { source, stream, text } = line;
        let source = if source.is_empty() { plan.log_source.clone() } else { source };
        lock(&lines).push(LogLine { source, stream, text });
    };
    // Everything is mapped into the container as it is mounted: on disk it is root's.
    let ownership = Ownership::Fixed { uid: 0, gid: 0 };
    let fetched =
        dependency::fetch_all(&plan.dependencies, &shared.transfers, ownership, &tell, cancel);
    let fetched = fetched.map_err(|error| {
        tracing::warn!(container = %guid, %error, "cached dependencies");
        error.to_string()
    })?;
    Ok((fetched, unpoisoned(lines.into_inner())))
}

/// The layers of the root file system, and what is bound over it.
fn root(
    shared: &MachineShared,
    plan: &ContainerPlan,
    cancel: &Cancel,
) -> Result<(Vec<PathBuf>, Vec<Bind>), Box<dyn std::error::Error>> {
    let layer_plan = Rootfs::resolve(&plan.rootfs, &shared.config.rootfs)?;
    let layers = shared.transfers.layers();
    let prepared = rootfs::prepare(&layer_plan, &shared.config.rootfs, layers, cancel)?;
    let mut folders = Vec::new();
    for lower in prepared.lowers {
        folders.push(match lower {
            Lower::Folder(path) => path,
            Lower::Image { image, file_system, mount_at } => {
                image_mount::mounted(&image, file_system, &mount_at)?;
                mount_at
            }
        });
    }
    let bind = |bind: rootfs::Bind| Bind {
        source: bind.source,
        target: Path::new("/").join(bind.target),
        access: Access::ReadOnly,
    };
    Ok((folders, prepared.binds.into_iter().map(bind).collect()))
}

/// Small files of the definition, in a folder that is bound where Diego has it.
fn mounted_files(folder: &Path, files: &[MountedFile]) -> io::Result<Option<Bind>> {
    if files.is_empty() {
        return Ok(None);
    }
    // For nobody else on the machine; in the container its own mode counts.
    if let Some(all) = folder.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(all)?;
    }
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o755);
    for file in files {
        let path = Path::new(&file.path);
        let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_plain || file.path.is_empty() {
            let what = format!("{:?} is no path below {MOUNTED_FILES}", file.path);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let path = folder.join(path);
        builder.create(path.parent().unwrap_or(folder))?;
        std::fs::write(&path, &file.content)?;
    }
    let (source, target) = (folder.to_owned(), PathBuf::from(MOUNTED_FILES));
    Ok(Some(Bind { source, target, access: Access::ReadOnly }))
}

fn connect(
    shared: &MachineShared,
    guid: &ContainerGuid,
    plan: &ContainerPlan,
    shim: &mut Shim,
) -> Result<ContainerNetwork, Box<dyn std::error::Error>> {
    let init = shim.status()?.init;
    let namespace = File::open(format!("/proc/{init}/ns/net"))?;
    // The number may have been given to another process before it was opened.
    if init == 0 || shim.status()?.init != init {
        return Err("its first process is gone".into());
    }
    let attached = lock(&shared.network).attach(
        guid.as_str(),
        namespace.as_fd(),
        &plan.ports,
        &plan.egress_rules,
    )?;
    Ok(shared.facts(&attached))
}

/// How an attached container is reached.
pub(super) fn facts(host: IpAddr, attached: &Attached) -> ContainerNetwork {
    let mapping = |(inside, outside): &(u16, u16)| PortMapping {
        container_port: u32::from(*inside),
        host_port: u32::from(*outside),
        container_tls_proxy_port: 0,
        host_tls_proxy_port: 0,
    };
    ContainerNetwork {
        external_address: host,
        internal_address: IpAddr::V4(attached.address),
        internal_ipv6: None,
        ports: attached.ports.iter().map(mapping).collect(),
    }
}

/// Takes a container away, whatever there is of it. Nothing is left, or an error says what is; then
/// it may be tried again.
pub(super) fn destroy(shared: &MachineShared, guid: &ContainerGuid) -> Result<(), String> {
    if !is_container_id(guid.as_str()) {
        // Nothing can have been made under such a name.
        return Ok(());
    }
    lock(&shared.leaving).insert(guid.clone());
    let destroyed = take_away(shared, guid);
    lock(&shared.leaving).remove(guid);
    shared.sweep_if_due();
    destroyed
}

fn take_away(shared: &MachineShared, guid: &ContainerGuid) -> Result<(), String> {
    shared.release(guid);
    let first_id = shared.shims.spec(guid.as_str()).map(|spec| spec.first_id);
    // A shim that has died has taken its container with it; one that hangs is made to.
    shared.shims.end(guid.as_str()).map_err(|error| error.to_string())?;
    shared.shims.clear(guid.as_str()).map_err(|error| error.to_string())?;
    if let Some(first_id) = first_id {
        shared.give_back_ids(first_id);
    }
    let mut network = lock(&shared.network);
    network.detach(guid.as_str()).map_err(|error| error.to_string())?;
    drop(network);
    match std::fs::remove_dir_all(shared.files_of(guid)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.to_string()),
        Ok(()) | Err(_) => Ok(()),
    }
}
