//! What `rma-bench` and `rma-icount` measure with.
//!
//! [`null`] is a fabric that costs nothing and [`duo`] two engines over it: for figures that do not
//! depend on the hardware, counted by [`callgrind`]. [`stats`] and [`table`] are for times: [`plan`] says how many
//! operations are timed together, [`series`] what is said of their times, [`record`] is a row with its
//! [`environment`], [`output`] prints it. [`sequence`] is what an epoch sends, message by message; [`page`] shows all that.

pub mod callgrind;
pub mod compare;
pub mod duo;
pub mod environment;
pub mod environments;
mod gains;
mod glance;
pub mod null;
pub mod output;
pub mod page;
pub mod peers;
pub mod plan;
pub mod plot;
pub mod record;
pub mod sequence;
pub mod series;
pub mod stats;
pub mod table;
