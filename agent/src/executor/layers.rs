//! What becomes of a definition's image layers: downloads for one container, or dependencies that
//! containers share.
//!
//! Not the root file system's own layers; those are the image's business.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use volvox_protocol::action::{Action, DownloadAction, ParallelAction};
use volvox_protocol::definition::{CachedDependency, DigestAlgorithm, ImageLayer, LayerType};

/// The exclusive layers, as downloads side by side. `None` when there are none.
pub fn exclusive_downloads(layers: &[ImageLayer], user: &str) -> Option<Action> {
    let download = |layer: &ImageLayer| {
        let (checksum_algorithm, checksum_value) = checksum(layer);
        Action::Download(Box::new(DownloadAction {
            artifact: layer.name.clone(),
            from: layer.url.clone(),
            to: layer.destination_path.clone(),
            cache_key: digest_key(layer).unwrap_or_default(),
            log_source: String::new(),
            user: user.to_owned(),
            checksum_algorithm,
            checksum_value,
        }))
    };
    let actions: Vec<_> = of_type(layers, LayerType::Exclusive).map(download).collect();
    if actions.is_empty() {
        return None;
    }
    Some(Action::Parallel(Box::new(ParallelAction { actions, log_source: String::new() })))
}

/// All that is mounted read-only: the shared layers, then the definition's own dependencies. A
/// dependency without a key is kept under its URL.
pub fn cached_dependencies(
    layers: &[ImageLayer],
    dependencies: &[CachedDependency],
) -> Vec<CachedDependency> {
    let dependency = |layer: &ImageLayer| {
        let (checksum_algorithm, checksum_value) = checksum(layer);
        CachedDependency {
            name: layer.name.clone(),
            from: layer.url.clone(),
            to: layer.destination_path.clone(),
            cache_key: digest_key(layer).unwrap_or_default(),
            log_source: String::new(),
            checksum_algorithm,
            checksum_value,
        }
    };
    let shared = of_type(layers, LayerType::Shared).map(dependency);
    let mut all: Vec<_> = shared.chain(dependencies.iter().cloned()).collect();
    for it in all.iter_mut().filter(|it| it.cache_key.is_empty()) {
        it.cache_key = it.from.clone();
    }
    all
}

fn of_type(layers: &[ImageLayer], wanted: LayerType) -> impl Iterator<Item = &ImageLayer> {
    layers.iter().filter(move |layer| layer.layer_type == wanted)
}

/// Algorithm and value; both empty for a layer without a digest.
fn checksum(layer: &ImageLayer) -> (String, String) {
    let algorithm = match layer.digest_algorithm {
        DigestAlgorithm::Invalid => return (String::new(), String::new()),
        DigestAlgorithm::Sha256 => "sha256",
        DigestAlgorithm::Sha512 => "sha512",
    };
    (algorithm.to_owned(), layer.digest_value.clone())
}

/// What has the same digest is the same, wherever it is fetched from.
fn digest_key(layer: &ImageLayer) -> Option<String> {
    let (algorithm, value) = checksum(layer);
    (!algorithm.is_empty() && !value.is_empty()).then(|| format!("{algorithm}:{value}"))
}

#[cfg(test)]
mod tests {
    use volvox_protocol::definition::MediaType;

    use super::*;

    fn layer(name: &str, layer_type: LayerType, digest_algorithm: DigestAlgorithm) -> ImageLayer {
        let digest_value = match digest_algorithm {
            DigestAlgorithm::Invalid => String::new(),
            DigestAlgorithm::Sha256 | DigestAlgorithm::Sha512 => "abc".into(),
        };
        ImageLayer {
            name: name.into(),
            url: format!("http://{name}"),
            destination_path: format!("/{name}"),
            layer_type,
            media_type: MediaType::Tgz,
            digest_algorithm,
            digest_value,
        }
    }

    #[test]
    fn layers_go_where_their_type_says() {
        let layers = [
            layer("one", LayerType::Exclusive, DigestAlgorithm::Sha256),
            layer("two", LayerType::Shared, DigestAlgorithm::Sha512),
            layer("three", LayerType::Shared, DigestAlgorithm::Invalid),
            layer("four", LayerType::Invalid, DigestAlgorithm::Sha256),
        ];
        let own = CachedDependency { from: "http://own".into(), ..CachedDependency::default() };
        let kept = cached_dependencies(&layers, std::slice::from_ref(&own));
        let shown: Vec<_> =
            kept.iter().map(|it| [&it.from, &it.cache_key, &it.checksum_algorithm]).collect();
        assert_eq!(
            shown,
            [
                ["http://two", "sha512:abc", "sha512"],
                ["http://three", "http://three", ""],
                ["http://own", "http://own", ""],
            ]
        );
        let Some(Action::Parallel(parallel)) = exclusive_downloads(&layers, "vcap") else {
            panic!("there is one")
        };
        let [Action::Download(download)] = parallel.actions.as_slice() else {
            panic!("{parallel:?}")
        };
        assert_eq!(download.from, "http://one");
        assert_eq!(download.to, "/one");
        assert_eq!(download.user, "vcap");
        assert_eq!(download.cache_key, "sha256:abc");
        assert_eq!(exclusive_downloads(&layers[1..], "vcap"), None);
    }
}
