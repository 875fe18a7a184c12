//! What is put on top of a root file system: layers and cached dependencies.

use serde::{Deserialize, Serialize};

use crate::record::record;

record! {
    /// An archive that is mounted into the container and kept on the cell.
    #[derive(Default)]
    pub struct CachedDependency {
        /// What the log calls it.
        name: String = "name" always,
        /// The URL of the archive.
        from: String = "from" required,
        /// The folder in the container.
        to: String = "to" required,
        /// The name under which the cell keeps it; empty: its URL.
        cache_key: String = "cache_key" always,
        /// The source name of its log lines.
        log_source: String = "log_source" always,
        /// `md5`, `sha1` or `sha256`, in any case.
        checksum_algorithm: String = "checksum_algorithm" omit,
        /// The checksum in hexadecimal.
        checksum_value: String = "checksum_value" omit,
    }
}

record! {
    /// A layer on top of the root file system.
    #[derive(Default)]
    pub struct ImageLayer {
        /// What the log calls it.
        name: String = "name" omit,
        /// Where it is fetched from.
        url: String = "url" required,
        /// The folder in the container.
        destination_path: String = "destination_path" required,
        /// Who sees it.
        layer_type: LayerType = "layer_type" always,
        /// How it is packed.
        media_type: MediaType = "media_type" always,
        /// How its digest is made.
        digest_algorithm: DigestAlgorithm = "digest_algorithm" omit,
        /// Its digest in hexadecimal.
        digest_value: String = "digest_value" omit,
    }
}

/// Who sees a layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayerType {
    /// Not said, which is refused.
    #[default]
    #[serde(rename = "LayerTypeInvalid")]
    Invalid,
    /// All containers of a cell that have it.
    #[serde(rename = "SHARED")]
    Shared,
    /// One container, which may write to it.
    #[serde(rename = "EXCLUSIVE")]
    Exclusive,
}

/// How a layer is packed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MediaType {
    /// Not said, which is refused.
    #[default]
    #[serde(rename = "MediaTypeInvalid")]
    Invalid,
    /// A tar archive, compressed.
    #[serde(rename = "TGZ")]
    Tgz,
    /// A tar archive.
    #[serde(rename = "TAR")]
    Tar,
    /// A zip archive.
    #[serde(rename = "ZIP")]
    Zip,
}

/// How a digest is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DigestAlgorithm {
    /// Not said: the layer has no digest.
    #[default]
    #[serde(rename = "DigestAlgorithmInvalid")]
    Invalid,
    /// SHA-256.
    #[serde(rename = "SHA256")]
    Sha256,
    /// SHA-512, which Diego discourages.
    #[serde(rename = "SHA512")]
    Sha512,
}
