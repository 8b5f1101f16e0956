//! What an epoch costs in a job of a million ranks, of which one or two are there.
//!
//! Fences, and post and start among neighbours, are run *mirrored*: every rank does the same as rank 0 at the same time, only with all
//! rank numbers shifted. So whenever rank 0 sends something to rank d, rank P - d sends the same to rank 0,
//! and that packet, with its sender's number, is all that is simulated. This is exact as long as the programs
//! do not depend on absolute rank numbers, and windows are alike everywhere.
//!
//! Passive epochs are run by a *lone* origin. All its targets are played by one further engine, which takes
//! each packet in the name of the rank to which it was sent. What it keeps of an origin is a count of shared
//! holders, so this is exact as long as all locks are shared and nobody else asks for any.

mod endpoint;
mod measure;
mod report;

pub use endpoint::LogGp;
pub use measure::{measure, neighbours, Cost, Epoch, Figures};
pub use report::{markdown, svg, table};
