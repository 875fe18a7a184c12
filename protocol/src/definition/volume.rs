//! Volumes that a driver on the cell mounts into the container.

use std::collections::BTreeSet;

use crate::record::record;

record! {
    /// One volume.
    #[derive(Default)]
    pub struct VolumeMount {
        /// The driver that mounts it; the cell must have it.
        driver: String = "driver" required,
        /// The folder in the container.
        container_dir: String = "container_dir" always,
        /// `r` or `rw`.
        mode: String = "mode" always,
        /// The volume, when others may have it too.
        shared: Option<SharedDevice> = "shared" always,
        /// The volume, when it is the container's own: declared by Diego, used by no cell.
        dedicated: Option<DedicatedDevice> = "dedicated" always,
    }
}

record! {
    /// A volume that several containers may have.
    #[derive(Default)]
    pub struct SharedDevice {
        /// Which volume.
        volume_id: String = "volume_id" always,
        /// The driver's settings, as JSON.
        mount_config: String = "mount_config" always,
    }
}

record! {
    /// A volume of one container.
    #[derive(Default)]
    pub struct DedicatedDevice {
        /// Which mounter.
        mounter_id: String = "mounter_id" always,
        /// The driver's settings, as JSON.
        mount_config: String = "mount_config" always,
        /// The device's settings, as JSON.
        device_config: String = "device_config" always,
    }
}

/// The drivers of these volumes, each once, in order.
pub(crate) fn volume_drivers(mounts: &[VolumeMount]) -> Vec<String> {
    let distinct: BTreeSet<&str> = mounts.iter().map(|mount| mount.driver.as_str()).collect();
    distinct.into_iter().map(str::to_owned).collect()
}
