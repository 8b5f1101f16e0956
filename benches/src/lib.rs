//! What `rma-bench` and `rma-icount` measure with.
//!
//! [`null`] is a fabric that costs nothing and [`duo`] two engines over it: for figures that do not
//! depend on the hardware, counted by [`callgrind`]. [`stats`] and [`table`] are for times: [`plan`] says how many
//! operations are timed together, [`series`] what is said of their times, [`record`] is a row with its
//! [`environment`], [`output`] prints it.

pub mod callgrind;
pub mod compare;
pub mod duo;
pub mod environment;
pub mod null;
pub mod output;
pub mod page;
pub mod peers;
pub mod plan;
pub mod plot;
pub mod record;
pub mod series;
pub mod stats;
pub mod table;
