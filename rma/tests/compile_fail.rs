//! Mistakes that do not compile. The expected messages are beside the programs; a new compiler may word
//! them anew (`TRYBUILD=overwrite cargo test -p rma --test compile_fail`, then review the difference).

#[test]
fn mistakes_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
