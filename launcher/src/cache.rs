//! What an agent has seen of the job's values, so that many ranks of its hosts who ask for the same value cost the
//! launcher one answer. Values never change, so nothing is ever wrong; only so much is kept. Pure.

use std::collections::{BTreeMap, BTreeSet};

use rma_bootstrap::tree::{Down, Up};
use rma_bootstrap::wire::{Reply, Request};

/// Most values that are kept; what comes then is not.
const VALUES_MAX: usize = 65_536;

/// Most questions that are remembered until their answers pass.
const QUESTIONS_MAX: usize = 65_536;

/// The values, and who may be given them.
#[derive(Default, Debug)]
pub(crate) struct Cache {
    values: BTreeMap<(u32, String), Vec<u8>>,
    /// What each unanswered question of a rank asks for, by the rank and its number for it.
    questions: BTreeMap<(u32, u32), (u32, String)>,
    /// Ranks that have joined the job and not left it: only these ask as a rule.
    joined: BTreeSet<u32>,
}

impl Cache {
    /// Looks at what goes up; returns the answer if it is known here, and then nothing need go up.
    pub(crate) fn on_up(&mut self, up: &Up) -> Option<Down> {
        match up {
            Up::Said { rank: asker, request: Request::Get { request, rank, key } } => {
                if !self.joined.contains(asker) {
                    return None;
                }
                let name = (*rank, key.clone());
                if let Some(value) = self.values.get(&name) {
                    let reply = Reply::Value { request: *request, value: value.clone() };
                    return Some(Down::Reply { rank: *asker, reply });
                }
                if self.questions.len() < QUESTIONS_MAX {
                    self.questions.insert((*asker, *request), name);
                }
            }
            Up::Said { request: Request::Put { .. }, .. } => {}
            Up::Said { rank, .. } | Up::ControlEnded { rank, .. } | Up::Exited { rank, .. } => {
                self.forget_asker(*rank);
            }
            _ => {}
        }
        None
    }

    /// Looks at what goes down.
    pub(crate) fn on_down(&mut self, down: &Down) {
        match down {
            Down::Reply { rank, reply: Reply::Welcome { .. } } => drop(self.joined.insert(*rank)),
            Down::Reply { rank, reply: Reply::Value { request, value } } => {
                let name = self.questions.remove(&(*rank, *request));
                if let Some(name) = name.filter(|_| self.values.len() < VALUES_MAX) {
                    self.values.insert(name, value.clone());
                }
            }
            Down::Reply { rank, reply: Reply::Missing { request, .. } | Reply::Refused { request, .. } } => {
                self.questions.remove(&(*rank, *request));
            }
            Down::Close { rank } => self.forget_asker(*rank),
            _ => {}
        }
    }

    fn forget_asker(&mut self, rank: u32) {
        self.joined.remove(&rank);
        let questions: Vec<_> =
            self.questions.range((rank, 0)..=(rank, u32::MAX)).map(|(name, _)| *name).collect();
        questions.iter().for_each(|name| drop(self.questions.remove(name)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(asker: u32, request: u32) -> Up {
        Up::Said { rank: asker, request: Request::Get { request, rank: 9, key: "address".into() } }
    }

    fn reply(rank: u32, reply: Reply) -> Down {
        Down::Reply { rank, reply }
    }

    fn welcome(cache: &mut Cache, rank: u32) {
        cache.on_down(&reply(rank, Reply::Welcome { version: 1, size: 10 }));
    }

    #[test]
    fn the_second_who_asks_is_answered_here() {
        let mut cache = Cache::default();
        welcome(&mut cache, 1);
        welcome(&mut cache, 2);
        assert_eq!(cache.on_up(&get(1, 7)), None);
        cache.on_down(&reply(1, Reply::Value { request: 7, value: vec![5] }));
        assert_eq!(cache.on_up(&get(2, 3)), Some(reply(2, Reply::Value { request: 3, value: vec![5] })));
        assert!(cache.questions.is_empty());
        assert_eq!(cache.on_up(&get(4, 3)), None, "who has not joined asks the launcher, which refuses");
    }

    #[test]
    fn who_has_left_is_not_answered() {
        let ends = [
            Up::Said { rank: 2, request: Request::Finalize },
            Up::ControlEnded { rank: 2, why: None },
            Up::Exited { rank: 2, exit: rma_bootstrap::tree::Exit::Code(0) },
        ];
        for end in ends {
            let mut cache = Cache::default();
            welcome(&mut cache, 2);
            cache.on_up(&get(2, 1));
            cache.on_down(&reply(2, Reply::Value { request: 1, value: vec![5] }));
            cache.on_up(&get(2, 2));
            cache.on_up(&end);
            assert_eq!(cache.on_up(&get(2, 3)), None, "{end:?}");
            assert!(cache.questions.is_empty());
        }
    }

    #[test]
    fn what_is_missing_is_not_kept() {
        let mut cache = Cache::default();
        welcome(&mut cache, 1);
        cache.on_up(&get(1, 7));
        cache.on_down(&reply(1, Reply::Missing { request: 7, reason: "gone".into() }));
        assert!(cache.questions.is_empty() && cache.values.is_empty());
        cache.on_down(&reply(1, Reply::Value { request: 7, value: vec![5] }));
        assert!(cache.values.is_empty(), "an answer to nothing");
    }

    #[test]
    fn only_so_much_is_kept() {
        let mut cache = Cache::default();
        welcome(&mut cache, 1);
        for number in 0..u32::try_from(VALUES_MAX).unwrap() + 5 {
            let request = Request::Get { request: number, rank: number, key: "k".into() };
            cache.on_up(&Up::Said { rank: 1, request });
            cache.on_down(&reply(1, Reply::Value { request: number, value: vec![] }));
        }
        assert_eq!(cache.values.len(), VALUES_MAX);
    }
}
