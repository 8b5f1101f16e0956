//! In which order the PMIx library is asked for values. Pure: no library, no clock.
//!
//! Several at the same time, until the library answers one of several with "not found": 4.2.2 does that although
//! the rank is about to publish, and is asked for one after the other from then on. What was not found is asked
//! again a little later, since "never" cannot be told from "not yet" by that answer; the time limit of the
//! request ends it.

use std::collections::VecDeque;
use std::time::Duration;

/// When a value that was not found is asked for again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Questions that are asked at the same time of a library that answers them.
const WIDTH_MAX: usize = 16;

/// How long a question may be unanswered before the next one is asked all the same: its rank may never
/// publish, and others have.
const PATIENCE: Duration = Duration::from_secs(1);

/// A value to ask for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Question {
    /// The request's number.
    pub(super) number: u32,
    /// Whose value.
    pub(super) rank: u32,
    /// Under which key.
    pub(super) key: String,
    begun_at: Duration,
    /// When it may be asked, and once it is asked, when it was.
    at: Duration,
}

/// The questions that have no answer yet. As many as there are requests, which bound them.
#[derive(Debug)]
pub(super) struct Questions {
    waiting: VecDeque<Question>,
    asked: VecDeque<Question>,
    /// How many may be asked at the same time.
    width: usize,
}

impl Default for Questions {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), asked: VecDeque::new(), width: WIDTH_MAX }
    }
}

impl Questions {
    /// One more, at the time `now`.
    pub(super) fn push(&mut self, number: u32, rank: u32, key: &str, now: Duration) {
        self.waiting.push_back(Question { number, rank, key: key.to_owned(), begun_at: now, at: now });
    }

    /// The question to ask now, if there is one. Forgets those that are older than `limit`: nobody waits for
    /// the answer any more.
    pub(super) fn poll(&mut self, now: Duration, limit: Duration) -> Option<&Question> {
        self.waiting.retain(|question| now.saturating_sub(question.begun_at) < limit);
        self.asked.retain(|question| now.saturating_sub(question.begun_at) < limit);
        let is_recent = |question: &&Question| now.saturating_sub(question.at) < PATIENCE;
        if self.asked.iter().filter(is_recent).count() >= self.width {
            return None;
        }
        let index = self.waiting.iter().position(|question| question.at <= now)?;
        let mut question = self.waiting.remove(index)?;
        question.at = now;
        self.asked.push_back(question);
        self.asked.back()
    }

    /// The question has its answer.
    pub(super) fn on_answer(&mut self, number: u32) {
        self.asked.retain(|question| question.number != number);
    }

    /// The value is not there, or not yet.
    pub(super) fn on_not_found(&mut self, number: u32, now: Duration) {
        if self.asked.len() > 1 && self.asked.iter().any(|question| question.number == number) {
            self.width = 1;
        }
        self.ask_again(number, now);
    }

    /// The library or its server has given up waiting for the value: version 5 does so after two seconds.
    pub(super) fn ask_again(&mut self, number: u32, now: Duration) {
        let Some(index) = self.asked.iter().position(|question| question.number == number) else { return };
        if let Some(mut question) = self.asked.remove(index) {
            question.at = now + RETRY_INTERVAL;
            self.waiting.push_back(question);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn poll(questions: &mut Questions, now: Duration) -> Option<u32> {
        questions.poll(now, LIMIT).map(|question| question.number)
    }

    #[test]
    fn several_at_the_same_time_and_no_more() {
        let mut questions = Questions::default();
        let now = Duration::ZERO;
        (1..=20).for_each(|number| questions.push(number, number, "k", now));
        let asked: Vec<u32> = std::iter::from_fn(|| poll(&mut questions, now)).collect();
        assert_eq!(asked, (1..=WIDTH_MAX as u32).collect::<Vec<_>>());
        questions.on_answer(99);
        assert_eq!(poll(&mut questions, now), None);
        questions.on_answer(7);
        assert_eq!(poll(&mut questions, now), Some(17));
        // Nobody answers for a while: the next ones are not held up any longer.
        assert_eq!(poll(&mut questions, PATIENCE), Some(18));
    }

    /// Each rank that is looked up is asked for once, and no other: `push` is called once for each (`Requests`).
    #[test]
    fn as_many_questions_as_ranks_are_looked_up() {
        for count in [0, 1, 7, 50] {
            let mut questions = Questions::default();
            let ranks: Vec<u32> = (0..count).map(|index| index * 20_011).collect();
            ranks.iter().for_each(|&rank| questions.push(rank, rank, "address", Duration::ZERO));
            let mut asked = Vec::new();
            while let Some(number) = poll(&mut questions, Duration::ZERO) {
                asked.push(number);
                questions.on_answer(number);
            }
            assert_eq!(asked, ranks);
        }
    }

    #[test]
    fn a_library_that_does_not_find_one_of_several_is_asked_one_after_the_other() {
        let mut questions = Questions::default();
        let now = Duration::ZERO;
        (1..4).for_each(|number| questions.push(number, number, "k", now));
        (1..4).for_each(|number| assert_eq!(poll(&mut questions, now), Some(number)));
        questions.on_not_found(2, now);
        questions.on_answer(1);
        questions.on_answer(3);
        (4..6).for_each(|number| questions.push(number, number, "k", now));
        assert_eq!(poll(&mut questions, now), Some(4));
        assert_eq!(poll(&mut questions, now), None);
        questions.on_answer(4);
        assert_eq!(poll(&mut questions, RETRY_INTERVAL), Some(2));
        questions.on_answer(2);
        assert_eq!(poll(&mut questions, RETRY_INTERVAL), Some(5));
        // Nobody answers for a while: the next is not held up any longer.
        questions.push(6, 6, "k", RETRY_INTERVAL);
        assert_eq!(poll(&mut questions, RETRY_INTERVAL), None);
        assert_eq!(poll(&mut questions, RETRY_INTERVAL + PATIENCE), Some(6));
        assert_eq!(questions.asked.len(), 2);
    }

    #[test]
    fn a_library_that_gives_up_waiting_is_asked_again_and_as_widely() {
        let mut questions = Questions::default();
        (1..3).for_each(|number| questions.push(number, number, "k", Duration::ZERO));
        (1..3).for_each(|number| assert_eq!(poll(&mut questions, Duration::ZERO), Some(number)));
        questions.ask_again(1, Duration::ZERO);
        assert_eq!(poll(&mut questions, Duration::ZERO), None);
        assert_eq!((poll(&mut questions, RETRY_INTERVAL), questions.width), (Some(1), WIDTH_MAX));
    }

    #[test]
    fn a_single_one_that_is_not_there_says_nothing_about_the_library() {
        let mut questions = Questions::default();
        questions.push(1, 1, "k", Duration::ZERO);
        assert_eq!(poll(&mut questions, Duration::ZERO), Some(1));
        questions.on_not_found(1, Duration::ZERO);
        assert_eq!(questions.width, WIDTH_MAX);
    }

    #[test]
    fn what_is_not_found_is_asked_again_until_nobody_waits() {
        let mut questions = Questions::default();
        questions.push(1, 0, "k", Duration::ZERO);
        let (mut now, mut count) = (Duration::ZERO, 0);
        while now < 2 * LIMIT {
            if poll(&mut questions, now).is_some() {
                count += 1;
                questions.on_not_found(1, now);
            }
            now += Duration::from_millis(1);
        }
        assert_eq!(count, 60_000 / 20);
        assert!(questions.waiting.is_empty() && questions.asked.is_empty());
    }

    #[test]
    fn a_retry_holds_nobody_up() {
        let mut questions = Questions::default();
        questions.push(1, 0, "k", Duration::ZERO);
        questions.push(2, 0, "k", Duration::ZERO);
        assert_eq!(poll(&mut questions, Duration::ZERO), Some(1));
        questions.on_not_found(1, Duration::ZERO);
        assert_eq!(poll(&mut questions, Duration::ZERO), Some(2));
        questions.on_answer(2);
        assert_eq!(poll(&mut questions, Duration::ZERO), None);
        assert_eq!(poll(&mut questions, RETRY_INTERVAL), Some(1));
    }
}
