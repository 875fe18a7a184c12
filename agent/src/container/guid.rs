//! The name of a container.

use std::fmt;

use serde::{Deserialize, Serialize};
use volvox_protocol::id::{InstanceGuid, TaskGuid};

/// The name of a container: the guid of its instance, or of its task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContainerGuid(InstanceGuid);

impl ContainerGuid {
    /// The name's text: letters, digits, `_` and `-`, so it is safe as the name of a file.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl From<InstanceGuid> for ContainerGuid {
    fn from(guid: InstanceGuid) -> Self {
        ContainerGuid(guid)
    }
}

impl From<&TaskGuid> for ContainerGuid {
    fn from(guid: &TaskGuid) -> Self {
        ContainerGuid(InstanceGuid::new(guid.as_str()).expect("both admit the same texts"))
    }
}

impl fmt::Display for ContainerGuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
