//! What providers cannot do: faults of theirs that nothing above them can make good.
//!
//! Every provider runs every test of the contract (`tests/contract`) and every behaviour of the
//! conformance suite; the rows here are all that is left out. docs/libfabric.md prints them.

use core::fmt;

/// A test of the contract that a provider cannot pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exception {
    /// `fabric_attr.prov_name` as libfabric returns it.
    pub provider: &'static str,
    /// The test's name.
    pub test: &'static str,
    /// What the provider does instead.
    pub reason: &'static str,
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, test, reason } = self;
        write!(f, "| `{provider}` | `{test}` | {reason} |")
    }
}

/// Why the test is left out on this provider, if it is.
pub fn of(provider: &str, test: &str) -> Option<&'static Exception> {
    EXCEPTIONS.iter().find(|row| row.provider == provider && row.test == test)
}

const fn row(provider: &'static str, test: &'static str, reason: &'static str) -> Exception {
    Exception { provider, test, reason }
}

const NO_ANSWER: &str = "never answers an access with a key that is not known";
const REGISTERS_FOR_WRITING: &str = "registers sources as if they were to be written, and fails with EFAULT";
const RXM_REFUSES: &str =
    "refuses for ever, as if for want of resources, what is posted to a peer that has died; the launcher tells";
const CHOOSES_KEYS: &str = "chooses the keys itself, so no two endpoints have the same";
const RXD_RESENDS: &str =
    "sends again for ever to a peer that is gone, and reports nothing; the launcher tells";
const SHM_WAITS: &str = "waits for ever for a peer that is gone, and reports nothing; the launcher tells";

/// All of them, on libfabric 1.17 and on 2.x.
pub const EXCEPTIONS: [Exception; 15] = [
    row("udp;ofi_rxd", "a_wrong_key_fails_the_operation", NO_ANSWER),
    row("udp;ofi_rxd", "keys_of_another_endpoint_open_nothing", NO_ANSWER),
    row("udp;ofi_rxd", "line_3_an_idle_peer_that_died_is_noticed", RXD_RESENDS),
    row("udp;ofi_rxd", "line_3_a_peer_that_died_is_noticed_by_replies", RXD_RESENDS),
    row("udp;ofi_rxd", "line_3_a_killed_peer_gives_errors_and_no_hang", RXD_RESENDS),
    row("verbs;ofi_rxm", "a_source_may_be_a_constant", REGISTERS_FOR_WRITING),
    row("verbs;ofi_rxm", "a_large_source_may_be_a_constant", REGISTERS_FOR_WRITING),
    row("verbs;ofi_rxm", "line_3_an_idle_peer_that_died_is_noticed", RXM_REFUSES),
    row("verbs;ofi_rxm", "line_3_a_peer_that_died_is_noticed_by_replies", RXM_REFUSES),
    row("verbs;ofi_rxm", "keys_of_another_endpoint_open_nothing", CHOOSES_KEYS),
    row("shm", "a_wrong_key_fails_the_operation", NO_ANSWER),
    row("shm", "keys_of_another_endpoint_open_nothing", NO_ANSWER),
    row("shm", "line_3_an_idle_peer_that_died_is_noticed", SHM_WAITS),
    row("shm", "line_3_a_peer_that_died_is_noticed_by_replies", SHM_WAITS),
    row("shm", "line_3_a_killed_peer_gives_errors_and_no_hang", SHM_WAITS),
];

#[cfg(test)]
mod tests {
    use super::EXCEPTIONS;

    #[test]
    fn the_documentation_lists_them_all() {
        let text = include_str!("../../docs/libfabric.md");
        for exception in &EXCEPTIONS {
            println!("{exception}");
            assert!(text.contains(&exception.to_string()), "docs/libfabric.md lacks this row: {exception}");
        }
        let names_a_test = |line: &&str| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            cells.len() == 5 && [cells[1], cells[2]].iter().all(|cell| cell.len() > 2 && cell.ends_with('`'))
        };
        let listed = text.lines().filter(names_a_test).count();
        assert_eq!(listed, EXCEPTIONS.len(), "docs/libfabric.md lists exceptions that there are not");
    }
}
