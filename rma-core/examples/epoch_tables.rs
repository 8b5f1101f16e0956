//! Prints the state tables of docs/epochs.md, or with `--dot` the same as Graphviz digraphs.

use rma_core::state::{TargetLockState, WindowState};

fn main() {
    if std::env::args().any(|argument| argument == "--dot") {
        println!("{}\n{}", WindowState::dot(), TargetLockState::dot());
    } else {
        println!("{}\n{}", WindowState::markdown(), TargetLockState::markdown());
    }
}
