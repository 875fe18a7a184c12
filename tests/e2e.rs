//! End to end: the real programs, real containers, real wires. Each test has a site of its own, so they
//! run at the same time, and beside a second copy of themselves. They need root.

mod e2e {
    pub(crate) mod evacuation;
    pub(crate) mod faults;
    pub(crate) mod life;
    pub(crate) mod offline;
    pub(crate) mod operating;
    pub(crate) mod partitions;
    pub(crate) mod rolling;
    pub(crate) mod stage;
    pub(crate) mod tasks;
    pub(crate) mod updates;
}
