//! Deployments: processes with several definitions, and rolling updates.

use super::route::Route;

/// The routes.
pub(super) fn routes() -> Vec<Route> {
    Vec::new()
}
