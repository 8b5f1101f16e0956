//! Random correct programs on random fabrics, and the judge of what they see.

mod alone;
mod census;
mod draw;
mod engine;
mod haunt;
mod library;
mod memory;
#[cfg(test)]
mod model;
mod mortal;
mod oracle;
mod plan;
mod run;
mod script;
mod shape;
mod shared;
mod survival;

pub use alone::run_rank;
pub use census::Census;
pub use draw::{plan, Bounds};
pub use engine::{EngineLibrary, SimEngine};
pub use haunt::has_ghosts;
pub use library::{Call, Library, OriginBuffers, Place, Posted, Progress};
pub use memory::{Buffer, Exposed};
pub use mortal::run_with_death;
pub use plan::{
    Action, DirectPlan, FenceAssertions, Form, Members, OperationPlan, Over, Payload, Phase, Plan, Role,
    Span, Store, Verb, Which, WindowPlan, THREADS_MAX,
};
pub use run::{run, Report, Verdict};
pub use shape::layouts_of;
pub use survival::run_survival;
