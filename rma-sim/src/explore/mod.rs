//! Every interleaving of small programs, on the engine that runs over real fabrics.
//!
//! A *scenario* is a handful of calls for each of two or three ranks, with pools so small that every
//! protocol has to do its worst. At every moment the search may let any rank take its next step, or deliver
//! any one thing that is on the way; it tries all of them, depth first. A state that was reached before, by
//! whatever schedule, is not searched again: states are told apart by their [`fingerprint`].
//!
//! What is judged: no call fails, what the programs see is what MPI allows, locks exclude each other, the
//! engine keeps the provider contract, nothing is left over at the end, and from **every** state that can be
//! reached an end can be reached, so that there is neither deadlock nor a circle without a way out.

mod act;
mod deaths;
pub mod fingerprint;
mod memo;
mod neighbours;
mod parts;
mod scenario;
mod search;
mod words;
mod world;

pub use act::{Act, Program};
pub use parts::Parts;
pub use scenario::{scenarios, AfterDeath, Protocol, Scenario};
pub use search::{explore, Limits, Outcome, Report};
pub use world::{Choice, Grounds, World};
