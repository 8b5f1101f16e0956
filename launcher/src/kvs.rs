//! The key-value space of a job: what ranks have put, and who waits for what has not been put yet.
//! Pure: no socket, no clock.

use std::collections::BTreeMap;

/// How many keys one rank may put.
const KEYS_PER_RANK_MAX: u32 = 256;

/// How many gets of one rank may wait at the same time. A client of ours keeps fewer.
const WAITING_PER_RANK_MAX: u32 = 256;

/// In the place of a rank: the space that all ranks share. No job has as many ranks.
const SHARED: u32 = u32::MAX;

/// A get that waits for its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiter {
    /// Who asks.
    pub(crate) rank: u32,
    /// The asker's number for the get.
    pub(crate) request: u32,
}

/// What became of a get.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Get {
    /// The value.
    Found(Vec<u8>),
    /// Not put yet; a later put returns the waiter.
    Waiting,
    /// The asker waits for too much.
    Refused(String),
}

/// What one rank uses of the limits.
#[derive(Clone, Default, Debug)]
struct Usage {
    keys: u32,
    waiting: u32,
}

/// The key-value space. Keys are (rank, name), so ranks cannot overwrite each other's.
#[derive(Debug)]
pub(crate) struct Kvs {
    values: BTreeMap<(u32, String), Vec<u8>>,
    waiters: BTreeMap<(u32, String), Vec<Waiter>>,
    usage: Vec<Usage>,
}

impl Kvs {
    /// The empty space of a job of `size` ranks.
    pub(crate) fn new(size: u32) -> Self {
        Self {
            values: BTreeMap::new(),
            waiters: BTreeMap::new(),
            usage: vec![Usage::default(); size as usize],
        }
    }

    /// Stores a value of `rank`; returns who has waited for it.
    ///
    /// # Errors
    /// A message when the key exists or the rank has put too many.
    pub(crate) fn put(&mut self, rank: u32, key: &str, value: Vec<u8>) -> Result<Vec<Waiter>, String> {
        let name = (rank, key.to_owned());
        if self.values.contains_key(&name) {
            return Err(format!("key '{key}' was put before; a value never changes"));
        }
        self.count_key(rank, key)?;
        let waiters = self.waiters.remove(&name).unwrap_or_default();
        self.values.insert(name, value);
        self.stop_waiting(&waiters);
        Ok(waiters)
    }

    /// Stores a value that `rank` puts into the space that all ranks share, which programs that speak PMI
    /// use.
    ///
    /// # Errors
    /// A message when the key exists or the rank has put too many.
    pub(crate) fn put_shared(&mut self, rank: u32, key: &str, value: Vec<u8>) -> Result<(), String> {
        let name = (SHARED, key.to_owned());
        if self.values.contains_key(&name) {
            return Err(format!("key '{key}' was put before; a value never changes"));
        }
        self.count_key(rank, key)?;
        self.values.insert(name, value);
        Ok(())
    }

    /// The value under `key` in the space that all ranks share.
    pub(crate) fn shared(&self, key: &str) -> Option<&[u8]> {
        self.values.get(&(SHARED, key.to_owned())).map(Vec::as_slice)
    }

    /// The value of (`rank`, `key`), which `waiter` wants.
    pub(crate) fn get(&mut self, waiter: Waiter, rank: u32, key: String) -> Get {
        let name = (rank, key);
        if let Some(value) = self.values.get(&name) {
            return Get::Found(value.clone());
        }
        let usage = &mut self.usage[waiter.rank as usize];
        if usage.waiting == WAITING_PER_RANK_MAX {
            return Get::Refused(format!(
                "a rank may wait for {WAITING_PER_RANK_MAX} values at the same time"
            ));
        }
        usage.waiting += 1;
        self.waiters.entry(name).or_default().push(waiter);
        Get::Waiting
    }

    /// Takes out everybody who waits for a value of `rank`, which will put nothing more.
    pub(crate) fn abandon(&mut self, rank: u32) -> Vec<Waiter> {
        let first = (rank, String::new());
        let names: Vec<_> = self.waiters.range(first..).take_while(|((of, _), _)| *of == rank).collect();
        let names: Vec<_> = names.into_iter().map(|(name, _)| name.clone()).collect();
        let waiters: Vec<_> = names.iter().filter_map(|name| self.waiters.remove(name)).flatten().collect();
        self.stop_waiting(&waiters);
        waiters
    }

    fn count_key(&mut self, rank: u32, key: &str) -> Result<(), String> {
        let usage = &mut self.usage[rank as usize];
        if usage.keys == KEYS_PER_RANK_MAX {
            return Err(format!("key '{key}' is one too many: a rank may put {KEYS_PER_RANK_MAX}"));
        }
        usage.keys += 1;
        Ok(())
    }

    fn stop_waiting(&mut self, waiters: &[Waiter]) {
        for waiter in waiters {
            self.usage[waiter.rank as usize].waiting -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKER: Waiter = Waiter { rank: 1, request: 7 };

    #[test]
    fn put_then_get_and_get_then_put() {
        let mut kvs = Kvs::new(4);
        assert_eq!(kvs.put(0, "a", vec![1]), Ok(vec![]));
        assert_eq!(kvs.get(ASKER, 0, "a".into()), Get::Found(vec![1]));
        assert_eq!(kvs.get(ASKER, 2, "a".into()), Get::Waiting);
        assert_eq!(kvs.get(Waiter { rank: 3, request: 1 }, 2, "a".into()), Get::Waiting);
        assert_eq!(kvs.put(2, "b", vec![]), Ok(vec![]));
        assert_eq!(kvs.put(2, "a", vec![2]), Ok(vec![ASKER, Waiter { rank: 3, request: 1 }]));
        assert_eq!(kvs.get(ASKER, 2, "a".into()), Get::Found(vec![2]));
    }

    #[test]
    fn limits_hold_and_are_given_back() {
        let mut kvs = Kvs::new(2);
        assert!(kvs.put(0, "a", vec![]).is_ok());
        assert!(kvs.put(0, "a", vec![]).unwrap_err().contains("before"));
        for number in 1..KEYS_PER_RANK_MAX {
            assert!(kvs.put(0, &number.to_string(), vec![]).is_ok());
        }
        assert!(kvs.put(0, "more", vec![]).unwrap_err().contains("too many"));
        for number in 0..WAITING_PER_RANK_MAX {
            assert_eq!(kvs.get(ASKER, 1, number.to_string()), Get::Waiting);
        }
        assert!(matches!(kvs.get(ASKER, 1, "more".into()), Get::Refused(_)));
        assert_eq!(kvs.put(1, "5", vec![]), Ok(vec![ASKER]));
        assert_eq!(kvs.get(ASKER, 1, "more".into()), Get::Waiting);
    }

    #[test]
    fn the_shared_space_is_apart_and_counts_for_who_puts() {
        let mut kvs = Kvs::new(2);
        assert_eq!(kvs.put(0, "a", vec![1]), Ok(vec![]));
        assert_eq!(kvs.shared("a"), None);
        assert_eq!(kvs.put_shared(1, "a", vec![2]), Ok(()));
        assert_eq!(kvs.shared("a"), Some(&[2][..]));
        assert!(kvs.put_shared(0, "a", vec![3]).unwrap_err().contains("before"));
        for number in 1..KEYS_PER_RANK_MAX {
            assert_eq!(kvs.put_shared(1, &number.to_string(), vec![]), Ok(()));
        }
        assert!(kvs.put_shared(1, "more", vec![]).unwrap_err().contains("too many"));
        assert!(kvs.put(1, "more", vec![]).is_err());
    }

    #[test]
    fn abandoning_releases_that_ranks_waiters_only() {
        let mut kvs = Kvs::new(4);
        for rank in [1, 2, 2, 3] {
            assert_eq!(kvs.get(Waiter { rank: 0, request: rank }, rank, format!("k{rank}")), Get::Waiting);
        }
        assert_eq!(kvs.get(ASKER, 2, String::new()), Get::Waiting);
        assert_eq!(kvs.abandon(2).len(), 3);
        assert_eq!(kvs.abandon(2), []);
        assert_eq!(kvs.abandon(3), [Waiter { rank: 0, request: 3 }]);
        assert_eq!(kvs.usage[0].waiting, 1);
    }
}
