//! Archives, downloads and root file systems of a cell: everything that comes from outside as bytes
//! and ends as files. Nothing here trusts what it reads.
//!
//! Not here: mounts, namespaces, processes. The executor's driver calls this on threads of its own:
//! all calls block, and all long ones take a [`cancel::Cancel`]. What holds: no file is made outside
//! of the folder that the caller opened, no cache entry counts before it is on disk, and what is cut
//! off in the middle is removed, at once or at the next start.

pub mod cache;
mod cache_files;
pub mod cache_index;
pub mod cancel;
pub mod checksum;
pub mod dir_handle;
pub mod entry_path;
pub mod extract;
pub mod fetch;
pub mod host_root;
pub mod http;
pub mod keyed_lock;
pub mod layers;
pub mod limits;
pub mod retry;
pub mod rootfs;
pub mod tar;
pub mod unpack;
pub mod untar;
pub mod unzip;
pub mod upload;
pub mod zip;

#[cfg(test)]
pub(crate) mod testing;
