//! All routes.

use super::route::Route;
use super::{
    cells, certificates, deployments, domains, events, exec, logs, lrps, members, operating, rep,
    tasks,
};

/// The table. Paths are distinct.
pub(crate) fn table() -> Vec<Route> {
    let table: Vec<Route> = [
        domains::routes(),
        cells::routes(),
        lrps::routes(),
        deployments::routes(),
        tasks::routes(),
        rep::routes(),
        logs::routes(),
        exec::routes(),
        events::routes(),
        members::routes(),
        certificates::routes(),
        operating::routes(),
    ]
    .into_iter()
    .flatten()
    .collect();
    debug_assert!(
        table.iter().all(|one| table.iter().filter(|it| it.path == one.path).count() == 1),
        "two routes have one path"
    );
    table
}
