//! A text that must not end up in a log.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// A password or the like: it is stored and sent as any text, but `{:?}` does not show it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Deref for Secret {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Secret(text.to_owned())
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Secret(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "none" } else { "secret" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_shown_to_nobody_but_the_wire() {
        let secret = Secret::from("hunter2");
        assert_eq!(format!("{secret:?} {:?}", Secret::default()), "secret none");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"hunter2\"");
        assert_eq!(&*secret, "hunter2");
    }
}
