//! What callers of the API may do.

use serde::{Deserialize, Serialize};

use crate::schema::{Components, Schema};

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look at everything, also at what definitions hold: environments, passwords of images.
    Read,
    /// Desire, change, remove; and look.
    Write,
    /// Tell how the instances and tasks of one cell fare, as Diego's cells do; and look. Only certificates
    /// have it, and their name is the cell's.
    Cell,
    /// All of that; and let machines in and out, make certificates, and see to the coordinator itself.
    Admin,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 4] = [Role::Read, Role::Write, Role::Cell, Role::Admin];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Write => "write",
            Role::Cell => "cell",
            Role::Admin => "admin",
        }
    }

    /// Whether it suffices for what needs that one.
    pub const fn may(self, needed: Role) -> bool {
        match (self, needed) {
            (Role::Admin, _) | (_, Role::Read) => true,
            (Role::Write, Role::Write) | (Role::Cell, Role::Cell) => true,
            (Role::Read | Role::Cell, Role::Write) | (Role::Read | Role::Write, Role::Cell) => {
                false
            }
            (Role::Read | Role::Write | Role::Cell, Role::Admin) => false,
        }
    }
}

impl std::str::FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Role::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| {
            format!(
                "{text:?} is no role: read, write or admin is wanted, of a cell's certificate cell"
            )
        })
    }
}

impl Schema for Role {
    fn schema(_: &mut Components) -> serde_json::Value {
        serde_json::json!({ "type": "string", "enum": Role::ALL.map(Role::name) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_in_json_the_same() {
        for role in Role::ALL {
            assert_eq!(role.name().parse(), Ok(role));
            assert_eq!(serde_json::to_value(role).unwrap(), role.name());
        }
        assert!("root".parse::<Role>().is_err());
    }
}
