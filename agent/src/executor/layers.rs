//! What a container has mounted read-only of its definition: the shared image layers, and cached
//! dependencies.
//!
//! Not the root file system's own layers; those are the image's business.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use volvox_protocol::definition::{CachedDependency, ImageLayer, shared_dependencies};

/// All that is mounted read-only: the shared layers, then the definition's own dependencies. A
/// dependency without a key is kept under its URL.
pub fn cached_dependencies(
    layers: &[ImageLayer],
    dependencies: &[CachedDependency],
) -> Vec<CachedDependency> {
    let mut all: Vec<_> = shared_dependencies(layers).chain(dependencies.iter().cloned()).collect();
    for it in all.iter_mut().filter(|it| it.cache_key.is_empty()) {
        it.cache_key = it.from.clone();
    }
    all
}

#[cfg(test)]
mod tests {
    use volvox_protocol::action::Action;
    use volvox_protocol::definition::{DigestAlgorithm, LayerType, MediaType, exclusive_downloads};

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
