//! Whether a container may have the host's root inside: only where the cell's own configuration
//! says so. A definition may ask for it, never grant it.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

/// A privileged container was asked for on a cell that runs none. Nothing was made; the definition
/// or the cell's configuration has to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this cell runs no privileged containers")]
pub struct NotAllowed;

/// What [`ContainerSpec::privileged`](crate::shim::wire::ContainerSpec::privileged) is to be, given what
/// the definition wants and what the cell's configuration allows. Who asks for privilege and may
/// not have it is refused, not run without.
pub fn allow(wanted: bool, cell_allows: bool) -> Result<bool, NotAllowed> {
    match (wanted, cell_allows) {
        (false, false | true) => Ok(false),
        (true, true) => Ok(true),
        (true, false) => Err(NotAllowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privilege_needs_the_wish_and_the_leave() {
        assert_eq!(allow(false, false), Ok(false));
        assert_eq!(allow(false, true), Ok(false));
        assert_eq!(allow(true, false), Err(NotAllowed));
        assert_eq!(allow(true, true), Ok(true));
    }
}
