//! The rep: represents the containers of this cell on the board, and does what the coordinator orders.
//!
//! [`logic`] decides, from what it hears of containers, of the coordinator and of time; [`driver`] has
//! the executor and the mesh do it; [`store`] keeps what a cell needs to start again by itself after a
//! power cut, in the form of [`assignments`]. A sync is asked for in pages by the rules of [`paging`]. Both tables of the protocol (`rep_lrp`, `rep_task`) are asked here and nowhere else.

pub mod assignments;
pub mod driver;
pub mod facts;
pub mod logic;
pub mod paging;
pub mod self_test;
pub mod status;
pub mod store;
pub mod view;
