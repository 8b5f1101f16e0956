//! The libfabric 2.x of the tests that are called `version_2_*`, in this crate and in those of the conformance suite.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Once;

/// The library that `RMA_TEST_LIBFABRIC2` names. Where it names none, one line on standard error, which the harness does
/// not keep back as it does what tests print, says what its tests do instead.
///
/// # Panics
/// Where it names none, and `RMA_TEST_REQUIRE_LIBFABRIC2` is set: nobody is to take such tests for what they are called.
pub(crate) fn library(instead: &str) -> Option<PathBuf> {
    static SAID: Once = Once::new();
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = set("RMA_TEST_LIBFABRIC2") {
        return Some(path.into());
    }
    let why = "RMA_TEST_LIBFABRIC2 names no libfabric 2.x (ci/libfabric2.sh prepares one)";
    assert!(set("RMA_TEST_REQUIRE_LIBFABRIC2").is_none(), "{why}, and RMA_TEST_REQUIRE_LIBFABRIC2 is set");
    SAID.call_once(|| {
        let _ = writeln!(io::stderr(), "tests version_2_*: {instead}, as {why}");
    });
    None
}
