//! The oldest form of a definition, for readers that know neither layers nor dependencies.

use super::{CachedDependency, LrpDefinition};
use crate::action::{Action, DownloadAction, ParallelAction, SerialAction};

impl LrpDefinition {
    /// Says with setup alone what layers and dependencies say, and fills in what older readers look at:
    /// timeouts in nanoseconds, the start timeout in seconds.
    pub fn in_oldest_form(&mut self) {
        self.without_layers();
        for action in [&mut self.setup, &mut self.action, &mut self.monitor].into_iter().flatten() {
            fill_in_timeouts(action);
        }
        let seconds = self.start_timeout_ms / 1_000;
        self.deprecated_start_timeout_s = u32::try_from(seconds).unwrap_or(u32::MAX);
        let dependencies = std::mem::take(&mut self.cached_dependencies);
        if !dependencies.is_empty() {
            let user = &self.legacy_download_user;
            let actions = dependencies.into_iter().map(|it| as_download(it, user)).collect();
            let all = ParallelAction { actions, ..ParallelAction::default() };
            let first = Action::Parallel(Box::new(all));
            let actions = std::iter::once(first).chain(self.setup.take()).collect();
            let serial = SerialAction { actions, ..SerialAction::default() };
            self.setup = Some(Action::Serial(Box::new(serial)));
        }
    }
}

/// A dependency as a download. Its checksum is not said: readers of this form know of none there.
fn as_download(given: CachedDependency, user: &str) -> Action {
    Action::Download(Box::new(DownloadAction {
        artifact: given.name,
        from: given.from,
        to: given.to,
        cache_key: given.cache_key,
        log_source: given.log_source,
        user: user.to_owned(),
        ..DownloadAction::default()
    }))
}

/// How deep it goes was looked at when the definition came.
fn fill_in_timeouts(action: &mut Action) {
    match action {
        Action::Download(_) | Action::Upload(_) | Action::Run(_) => {}
        Action::Timeout(it) => {
            let nanos = it.timeout_ms.saturating_mul(1_000_000);
            it.deprecated_timeout_ns = i64::try_from(nanos).unwrap_or(i64::MAX);
            it.action.iter_mut().for_each(fill_in_timeouts);
        }
        Action::EmitProgress(it) => it.action.iter_mut().for_each(fill_in_timeouts),
        Action::Try(it) => it.action.iter_mut().for_each(fill_in_timeouts),
        Action::Parallel(it) => it.actions.iter_mut().for_each(fill_in_timeouts),
        Action::Serial(it) => it.actions.iter_mut().for_each(fill_in_timeouts),
        Action::Codependent(it) => it.actions.iter_mut().for_each(fill_in_timeouts),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_oldest_form_has_setup_in_the_place_of_dependencies_and_layers() {
        let mut definition: LrpDefinition = serde_json::from_value(json!({
            "legacy_download_user": "vcap", "start_timeout_ms": 61_500,
            "setup": {"run": {"path": "/bin/true", "user": "root"}},
            "monitor": {"try": {"action": {"timeout": {
                "action": {"run": {"path": "/bin/probe", "user": "root"}}, "timeout_ms": 20,
            }}}},
            "cached_dependencies": [{"name": "b", "from": "http://a/b", "to": "/b"}],
            "image_layers": [
                {"url": "http://a/s", "destination_path": "/s", "layer_type": "SHARED",
                 "media_type": "TGZ"},
                {"url": "http://a/e", "destination_path": "/e", "layer_type": "EXCLUSIVE",
                 "media_type": "TGZ", "digest_algorithm": "SHA256", "digest_value": "ab"},
            ],
        }))
        .unwrap();
        definition.in_oldest_form();
        let shown = serde_json::to_value(&definition).unwrap();
        assert_eq!(shown["deprecated_timeout_ns"], 61, "the key says otherwise, in Diego too");
        assert_eq!(shown["monitor"]["try"]["action"]["timeout"]["timeout"], 20_000_000);
        assert_eq!((shown.get("cached_dependencies"), shown.get("image_layers")), (None, None));
        let outer = &shown["setup"]["serial"]["actions"];
        let downloads = &outer[0]["parallel"]["actions"];
        assert_eq!(downloads[0]["download"]["from"], "http://a/s", "the layer first");
        assert_eq!(downloads[1]["download"]["from"], "http://a/b");
        let inner = &outer[1]["serial"]["actions"];
        assert_eq!(inner[0]["parallel"]["actions"][0]["download"]["cache_key"], "sha256:ab");
        assert_eq!(inner[1]["run"]["path"], "/bin/true");
    }
}
