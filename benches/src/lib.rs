//! What `rma-bench` and `rma-icount` measure with.
//!
//! [`null`] is a fabric that costs nothing and [`duo`] two engines over it: for figures that do not
//! depend on the hardware, counted by [`callgrind`]. [`stats`] and [`table`] are for times.

pub mod callgrind;
pub mod duo;
pub mod null;
pub mod stats;
pub mod table;
