//! The gets that a rank has asked its launcher for: a bounded table without a clock or a socket.

use std::time::Duration;

/// How many gets may be remembered at the same time. A caller that finds the table full is told to
/// ask again later, so the number bounds memory and not what can be asked.
const REQUESTS_MAX: usize = 64;

/// What the caller of a get is told.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// Nobody has asked yet: send the request with this number.
    Send(u32),
    /// Asked, not answered. Also when the table is full.
    Waiting,
    /// The answer; it is forgotten now.
    Answered(Result<Vec<u8>, String>),
    /// Not answered for longer than the limit; it is forgotten now.
    Expired,
}

/// One get.
#[derive(Debug)]
struct Entry {
    number: u32,
    rank: u32,
    key: String,
    asked_at: Duration,
    answer: Option<Result<Vec<u8>, String>>,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Requests {
    entries: Vec<Entry>,
    next_number: u32,
    limit: Duration,
}

impl Requests {
    /// An empty table whose entries expire after `limit`.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { entries: Vec::new(), next_number: 1, limit }
    }

    /// A number that no other request in flight has; never 0.
    pub(crate) fn take_number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number = number.checked_add(1).unwrap_or(1);
        number
    }

    /// Asks for the value of (`rank`, `key`) at the time `now`.
    pub(crate) fn ask(&mut self, rank: u32, key: &str, now: Duration) -> Ask {
        let Some(index) = self.entries.iter().position(|entry| entry.rank == rank && entry.key == key) else {
            return self.ask_anew(rank, key, now);
        };
        if self.entries[index].answer.is_none() {
            if now.saturating_sub(self.entries[index].asked_at) < self.limit {
                return Ask::Waiting;
            }
            self.entries.swap_remove(index);
            return Ask::Expired;
        }
        self.entries.swap_remove(index).answer.map_or(Ask::Waiting, Ask::Answered)
    }

    /// Stores the answer to request `number`. One that nobody waits for any more is dropped.
    pub(crate) fn answer(&mut self, number: u32, answer: Result<Vec<u8>, String>) -> bool {
        let entry = self.entries.iter_mut().find(|entry| entry.number == number);
        entry.map(|entry| entry.answer = Some(answer)).is_some()
    }

    fn ask_anew(&mut self, rank: u32, key: &str, now: Duration) -> Ask {
        if self.entries.len() == REQUESTS_MAX && !self.forget_one(now) {
            return Ask::Waiting;
        }
        let number = self.take_number();
        self.entries.push(Entry { number, rank, key: key.to_owned(), asked_at: now, answer: None });
        Ask::Send(number)
    }

    /// Drops an entry whose asker has lost interest: answered or expired and not picked up. Asking for
    /// it again is harmless.
    fn forget_one(&mut self, now: Duration) -> bool {
        let limit = self.limit;
        let stale = |entry: &Entry| entry.answer.is_some() || now.saturating_sub(entry.asked_at) >= limit;
        let index = self.entries.iter().position(stale);
        index.map(|index| self.entries.swap_remove(index)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn asks_once_waits_and_answers_once() {
        let mut requests = Requests::new(SECOND);
        assert_eq!(requests.ask(3, "a", Duration::ZERO), Ask::Send(1));
        assert_eq!(requests.ask(3, "a", Duration::ZERO), Ask::Waiting);
        assert_eq!(requests.ask(3, "b", Duration::ZERO), Ask::Send(2));
        assert!(requests.answer(1, Ok(vec![7])));
        assert!(!requests.answer(9, Ok(vec![7])));
        assert_eq!(requests.ask(3, "a", 2 * SECOND), Ask::Answered(Ok(vec![7])));
        assert_eq!(requests.ask(3, "a", 2 * SECOND), Ask::Send(3));
    }

    #[test]
    fn expires_at_the_limit_and_may_be_asked_again() {
        let mut requests = Requests::new(SECOND);
        assert_eq!(requests.ask(0, "a", SECOND), Ask::Send(1));
        assert_eq!(requests.ask(0, "a", 2 * SECOND - Duration::from_nanos(1)), Ask::Waiting);
        assert_eq!(requests.ask(0, "a", 2 * SECOND), Ask::Expired);
        assert_eq!(requests.ask(0, "a", 2 * SECOND), Ask::Send(2));
    }

    #[test]
    fn a_full_table_makes_the_caller_wait_until_an_entry_is_stale() {
        let mut requests = Requests::new(SECOND);
        for rank in 0..REQUESTS_MAX as u32 {
            assert_eq!(requests.ask(rank, "a", Duration::ZERO), Ask::Send(rank + 1));
        }
        assert_eq!(requests.ask(1000, "a", Duration::ZERO), Ask::Waiting);
        assert!(requests.answer(5, Err("gone".into())));
        assert!(matches!(requests.ask(1000, "a", Duration::ZERO), Ask::Send(_)));
        assert_eq!(requests.ask(1001, "a", Duration::ZERO), Ask::Waiting);
        assert!(matches!(requests.ask(1001, "a", SECOND), Ask::Send(_)));
        assert_eq!(requests.entries.len(), REQUESTS_MAX);
    }

    #[test]
    fn numbers_never_become_zero() {
        let mut requests = Requests::new(SECOND);
        requests.next_number = u32::MAX;
        assert_eq!((requests.take_number(), requests.take_number()), (u32::MAX, 1));
    }
}
