//! The coordinator of a Volvox fleet. So far: the BBS, the board of desired and actual state.

pub mod bbs;
