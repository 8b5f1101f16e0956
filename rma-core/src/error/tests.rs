//! Every error says who, what, in which state, and against which rule.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::*;

/// What an error's message has to have beside its call, class, rule and section: the ranks that it concerns, and the
/// state or the sizes that make it wrong.
struct Case {
    error: RmaError,
    words: &'static [&'static str],
}

/// Makes the list of cases and a place in it for each kind of error; a kind without case does not compile.
macro_rules! cases {
    ($($kind:ident { $($field:ident: $value:expr),* $(,)? } => $words:expr;)+) => {
        fn cases() -> Vec<Case> {
            vec![$(Case { error: RmaError::$kind { call: CALL, $($field: $value),* }, words: &$words }),+]
        }

        fn name(error: &RmaError) -> &'static str {
            match error { $(RmaError::$kind { .. } => stringify!($kind)),+ }
        }
    };
}

const CALL: Call = Call::Unlock;
const RANK: Rank = Rank(3);
const GONE: FabricCode = FabricCode { code: 7, text: "gone" };

cases! {
    Epoch { target: Some(RANK), state: "PerTarget", rule: Rule::NotLocked } => ["rank 3", "state PerTarget"];
    Unclosed { window: WindowId(5), state: "FenceGranted" } => ["window 5", "state FenceGranted"];
    Range { target: RANK, offset_bytes: 60, len_bytes: 8, window_bytes: 64 } =>
        ["8 bytes at byte offset 60", "window of rank 3", "has 64 bytes"];
    NotAttached { target: RANK, address: 0x1000, len_bytes: 8 } => ["8 bytes at address 0x1000", "rank 3 has attached"];
    Conflict { target: RANK, access: "put", earlier: "get", origin: Rank(1), offset_bytes: 8, len_bytes: 4 } =>
        ["put of 4 bytes at byte 8", "window of rank 3", "get by rank 1"];
    Rank { target: RANK, size: 2 } => ["rank 3", "ranks are 0 to 1"];
    Argument { what: "7 of 8", rule: Rule::WholeElements } => ["7 of 8"];
    Invalid { class: ErrorClass::Disp, what: "the unit is 0", rule: Rule::UnitPositive } => ["the unit is 0"];
    Setting { name: "slots", asked: 9, most: 4 } => ["slots is 9", "at most 4"];
    Info { key: "no_locks", value: "perhaps".into(), wanted: "true or false" } =>
        ["no_locks", "\"perhaps\"", "true or false"];
    Elsewhere { class: ErrorClass::NoMemory, target: RANK } => ["rank 3 could not"];
    Operation { op: "band", dtype: "f64" } => ["band is not defined for f64"];
    Window { window: WindowId(5) } => ["window 5 does not exist at this rank"];
    NotHeld { target: RANK } => ["rank 3", "not locked by this process"];
    NotExposed { target: RANK } => ["rank 3", "not exposed to this process"];
    Refused { target: RANK } => ["rank 3"];
    Peer { target: RANK, code: GONE } => ["rank 3", "gone (code 7)"];
    LockLost { target: RANK } => ["rank 3", "was lost"];
    Endpoint { code: GONE } => ["gone (code 7)"];
    Provider { message: "no such provider".into() } => ["no such provider"];
    Bootstrap { message: "no launcher".into() } => ["no launcher"];
    Shared { message: "rank 2 cannot map it".into() } => ["rank 2 cannot map it"];
    Memory { bytes: 4096 } => ["4096 bytes"];
    Reported { target: RANK } => ["rank 3"];
    Stalled { seconds: 15, waiting_for: "the grant of rank 3".into() } => ["15 s", "the grant of rank 3"];
}

/// What is nobody's misuse: of these, and of no others, no rule is named.
const BEYOND_THE_PROGRAM: [&str; 7] =
    ["Refused", "Peer", "LockLost", "Endpoint", "Provider", "Bootstrap", "Reported"];

#[test]
fn every_error_names_call_ranks_state_and_rule() {
    for Case { error, words } in cases() {
        let (name, message) = (name(&error), error.to_string());
        assert!(message.starts_with("unlock: "), "{name}: {message}");
        let class = error.class().name();
        let Some(rule) = error.rule() else {
            assert!(BEYOND_THE_PROGRAM.contains(&name), "{name} names no rule: {message}");
            assert!(message.ends_with(&text(&[" [", class, "]"])), "{name}: {message}");
            continue;
        };
        assert!(!BEYOND_THE_PROGRAM.contains(&name), "{name}: {message}");
        assert!(message.ends_with(&text(&[" [", class, ", ", rule.section(), "]"])), "{name}: {message}");
        let at = message.find(rule.text());
        assert!(at.is_some(), "{name}: {message}");
        for word in words {
            let word_at = message.find(word);
            assert!(word_at.is_some(), "{name} lacks '{word}': {message}");
            assert!(word_at < at, "{name}: '{word}' comes first: {message}");
        }
    }
}

#[test]
fn a_broken_promise_is_a_conflict_with_a_rule_of_its_own() {
    let conflict = |earlier| {
        let (access, origin) = ("put", Rank(1));
        RmaError::Conflict {
            call: CALL,
            target: RANK,
            access,
            earlier,
            origin,
            offset_bytes: 8,
            len_bytes: 4,
        }
    };
    assert_eq!(conflict(NO_PUT).rule(), Some(Rule::NoPutKept));
    assert_eq!(conflict("put").rule(), Some(Rule::NoConflict));
}

#[test]
fn an_error_on_behalf_of_another_call_keeps_its_rule() {
    for Case { error, .. } in cases().into_iter().filter(|case| name(&case.error) != "Range") {
        let rule = error.rule();
        assert_eq!(error.clone().on_behalf_of(Call::Fence).rule(), rule, "{}", name(&error));
        assert!(error.on_behalf_of(Call::Fence).to_string().starts_with("fence: "));
    }
}

#[test]
fn rules_are_told_apart_and_have_a_section() {
    let own = [Rule::AlignedWord, Rule::SettingInLimits];
    for (at, rule) in Rule::ALL.iter().enumerate() {
        assert!(Rule::ALL[..at].iter().all(|other| other.text() != rule.text()), "{rule:?}");
        assert!(rule.text().len() > 20, "{rule:?}");
        let section = rule.section();
        let is_of_mpi =
            section.starts_with("MPI-4.1 section") && section.ends_with(|last: char| last.is_ascii_digit());
        assert!(is_of_mpi != own.contains(rule), "{rule:?}: {section}");
    }
}

/// Accesses of a rank's own memory are no operations.
#[test]
fn ranges_name_the_rule_of_what_was_called() {
    let of =
        |call| RmaError::Range { call, target: RANK, offset_bytes: u64::MAX, len_bytes: 8, window_bytes: 64 };
    assert_eq!(of(Call::Put).rule(), Some(Rule::InsideWindow));
    assert_eq!(of(Call::LocalWrite).rule(), Some(Rule::OwnMemory));
    assert!(of(Call::Put)
        .to_string()
        .contains("8 bytes at byte offset -1 (unsigned: 18446744073709551615) reach"));
    let mut far = of(Call::Put);
    if let RmaError::Range { offset_bytes, .. } = &mut far {
        *offset_bytes = i64::MAX as u64;
    }
    assert!(far.to_string().contains("8 bytes at byte offset 2^63 or more reach"), "{far}");
    let nobody = RmaError::Rank { call: Call::Lock, target: Rank::NULL, size: 2 };
    assert!(nobody.to_string().contains("no rank was given"), "{nobody}");
    assert_eq!(RmaError::Rank { call: Call::Group, target: RANK, size: 2 }.rule(), Some(Rule::GroupOfRanks));
}

fn text(parts: &[&str]) -> String {
    parts.concat()
}
