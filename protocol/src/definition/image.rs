//! What is put on top of a root file system: layers and cached dependencies.

use serde::{Deserialize, Serialize};

use crate::action::{Action, DownloadAction, ParallelAction, SerialAction};
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

impl ImageLayer {
    /// The digest in the words of downloads: algorithm and value, both empty for a layer without one.
    fn checksum(&self) -> (String, String) {
        let algorithm = match self.digest_algorithm {
            DigestAlgorithm::Invalid => return (String::new(), String::new()),
            DigestAlgorithm::Sha256 => "sha256",
            DigestAlgorithm::Sha512 => "sha512",
        };
        (algorithm.to_owned(), self.digest_value.clone())
    }

    /// What has the same digest is the same, wherever it is fetched from. Without one it is known by
    /// where it comes from.
    fn cache_key(&self) -> String {
        match self.checksum() {
            (algorithm, value) if !algorithm.is_empty() && !value.is_empty() => {
                format!("{algorithm}:{value}")
            }
            _ => self.url.clone(),
        }
    }

    fn as_dependency(&self) -> CachedDependency {
        let (checksum_algorithm, checksum_value) = self.checksum();
        CachedDependency {
            name: self.name.clone(),
            from: self.url.clone(),
            to: self.destination_path.clone(),
            cache_key: self.cache_key(),
            log_source: String::new(),
            checksum_algorithm,
            checksum_value,
        }
    }

    fn as_download(&self, user: &str) -> Action {
        let (checksum_algorithm, checksum_value) = self.checksum();
        Action::Download(Box::new(DownloadAction {
            artifact: self.name.clone(),
            from: self.url.clone(),
            to: self.destination_path.clone(),
            cache_key: self.cache_key(),
            log_source: String::new(),
            user: user.to_owned(),
            checksum_algorithm,
            checksum_value,
        }))
    }
}

/// The shared layers, as dependencies.
pub fn shared_dependencies(layers: &[ImageLayer]) -> impl Iterator<Item = CachedDependency> + '_ {
    of_type(layers, LayerType::Shared).map(ImageLayer::as_dependency)
}

/// The exclusive layers, as downloads side by side, made by this user. None when there are none.
pub fn exclusive_downloads(layers: &[ImageLayer], user: &str) -> Option<Action> {
    let actions: Vec<Action> =
        of_type(layers, LayerType::Exclusive).map(|layer| layer.as_download(user)).collect();
    if actions.is_empty() {
        return None;
    }
    Some(Action::Parallel(Box::new(ParallelAction { actions, ..ParallelAction::default() })))
}

fn of_type(layers: &[ImageLayer], wanted: LayerType) -> impl Iterator<Item = &ImageLayer> {
    layers.iter().filter(move |layer| layer.layer_type == wanted)
}

/// The same for readers that do not know layers: shared ones are cached dependencies before the
/// others, exclusive ones are downloads, all at once, before `first`. The layers themselves are gone.
pub(crate) fn unlayered(
    layers: &mut Vec<ImageLayer>,
    dependencies: &mut Vec<CachedDependency>,
    first: &mut Option<Action>,
    user: &str,
) {
    let layers = std::mem::take(layers);
    dependencies.splice(..0, shared_dependencies(&layers));
    let Some(downloads) = exclusive_downloads(&layers, user) else { return };
    *first = Some(match first.take() {
        None => downloads,
        Some(next) => Action::Serial(Box::new(SerialAction {
            actions: vec![downloads, next],
            ..SerialAction::default()
        })),
    });
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

#[cfg(test)]
mod tests {
    use crate::definition::LrpDefinition;

    #[test]
    fn readers_that_do_not_know_layers_see_dependencies_and_downloads() {
        let mut definition: LrpDefinition = serde_json::from_value(serde_json::json!({
            "legacy_download_user": "vcap",
            "setup": {"run": {"path": "/bin/true", "user": "root"}},
            "cached_dependencies": [{"from": "http://a/old", "to": "/old"}],
            "image_layers": [
                {"url": "http://a/s", "destination_path": "/s", "layer_type": "SHARED",
                 "media_type": "TGZ", "digest_algorithm": "SHA512", "digest_value": "ab"},
                {"url": "http://a/n", "destination_path": "/n", "layer_type": "SHARED",
                 "media_type": "TGZ"},
                {"url": "http://a/e", "destination_path": "/e", "layer_type": "EXCLUSIVE",
                 "media_type": "TGZ", "digest_algorithm": "SHA256", "digest_value": "cd"},
            ],
        }))
        .unwrap();
        definition.without_layers();
        let shown = serde_json::to_value(&definition).unwrap();
        assert_eq!(shown.get("image_layers"), None);
        let dependencies: Vec<_> = definition
            .cached_dependencies
            .iter()
            .map(|it| [&it.from, &it.cache_key, &it.checksum_algorithm].map(String::as_str))
            .collect();
        assert_eq!(
            dependencies,
            [
                ["http://a/s", "sha512:ab", "sha512"],
                ["http://a/n", "http://a/n", ""],
                ["http://a/old", "", ""],
            ]
        );
        let actions = &shown["setup"]["serial"]["actions"];
        let download = &actions[0]["parallel"]["actions"][0]["download"];
        assert_eq!((&download["from"], &download["user"]), (&"http://a/e".into(), &"vcap".into()));
        assert_eq!(download["cache_key"], "sha256:cd");
        assert_eq!(actions[1]["run"]["path"], "/bin/true");
        let once = definition.clone();
        definition.without_layers();
        assert_eq!(definition, once, "there is nothing left to do");
    }
}
