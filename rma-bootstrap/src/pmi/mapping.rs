//! Which ranks share a host, as PMI servers say it: `(vector,(0,2,4),(2,1,1))` means four ranks on each of
//! two hosts from host 0, then one on host 2; and again from the front while ranks are left.

use crate::neighbours::NEIGHBOURS_MAX;

/// Most blocks that a mapping may have.
const BLOCKS_MAX: usize = 65_536;

/// A run of hosts with the same number of ranks each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Block {
    first_host: u32,
    hosts: u32,
    ranks_each: u32,
}

/// A parsed mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    blocks: Vec<Block>,
}

impl Mapping {
    /// The mapping that a server sent, or `None` when it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let inner = text.trim().strip_prefix("(vector")?.strip_suffix(')')?.trim();
        let mut blocks = Vec::new();
        let mut rest = inner;
        while !rest.is_empty() {
            let body = rest.strip_prefix(',')?.trim_start().strip_prefix('(')?;
            let (body, tail) = body.split_once(')')?;
            let mut numbers = body.split(',').map(|number| number.trim().parse::<u32>().ok());
            let (first_host, hosts, ranks_each) = (numbers.next()??, numbers.next()??, numbers.next()??);
            if numbers.next().is_some() || hosts == 0 || ranks_each == 0 || blocks.len() == BLOCKS_MAX {
                return None;
            }
            first_host.checked_add(hosts)?;
            blocks.push(Block { first_host, hosts, ranks_each });
            rest = tail.trim();
        }
        (!blocks.is_empty()).then_some(Self { blocks })
    }

    /// The rank of `rank` among the ranks on its host, and how many these are, in a job of `size` ranks.
    /// Takes time for each block that is passed, and no memory.
    pub fn place(&self, rank: u32, size: u32) -> Option<(u32, u32)> {
        let host = self.runs(size).find(|run| rank < run.end)?.host_of(rank);
        let (mut before, mut all) = (0, 0);
        for run in self.runs(size) {
            let (first, last) = run.ranks_on(host);
            all += last - first;
            before += rank.clamp(first, last) - first;
        }
        (rank < size).then_some((before, all))
    }

    /// The ranks on the host of `rank`, in order, in a job of `size` ranks. None, where they are more than processes
    /// that a host can have.
    pub fn neighbours(&self, rank: u32, size: u32) -> Vec<u32> {
        let Some((_, count)) = self.place(rank, size).filter(|(_, count)| *count <= NEIGHBOURS_MAX) else {
            return Vec::new();
        };
        let mut neighbours = Vec::with_capacity(count as usize);
        if let Some(host) = self.runs(size).find(|run| rank < run.end).map(|run| run.host_of(rank)) {
            for run in self.runs(size) {
                let (first, end) = run.ranks_on(host);
                neighbours.extend(first..end);
            }
        }
        neighbours
    }

    /// The blocks one after the other, and from the front again, until all ranks have a host.
    fn runs(&self, size: u32) -> impl Iterator<Item = Run> + '_ {
        let mut next = 0;
        self.blocks.iter().cycle().map_while(move |block| {
            let first = next;
            let count = u64::from(block.hosts) * u64::from(block.ranks_each);
            // At most `size`, hence within 32 bits.
            next = (u64::from(first) + count).min(u64::from(size)) as u32;
            (first < size).then_some(Run { first, end: next, block: *block })
        })
    }
}

/// The ranks that one turn of a block places.
struct Run {
    first: u32,
    end: u32,
    block: Block,
}

impl Run {
    fn host_of(&self, rank: u32) -> u32 {
        self.block.first_host + (rank - self.first) / self.block.ranks_each
    }

    /// The ranks on this host: the first, and the one behind the last.
    fn ranks_on(&self, host: u32) -> (u32, u32) {
        let Some(index) = host.checked_sub(self.block.first_host).filter(|index| *index < self.block.hosts)
        else {
            return (self.first, self.first);
        };
        let first = u64::from(self.first) + u64::from(index) * u64::from(self.block.ranks_each);
        let end = (first + u64::from(self.block.ranks_each)).min(u64::from(self.end)) as u32;
        let first = first.min(u64::from(self.end)) as u32;
        (first, end)
    }
}

/// The mapping of a job with these hosts of its ranks, in whatever order ranks take hosts.
pub fn describe(hosts: &[u32]) -> String {
    // Runs of ranks on one host; then neighbouring hosts with runs of the same length are a block.
    let runs = hosts.chunk_by(|a, b| a == b).map(|run| (run[0], run.len()));
    let mut blocks: Vec<(u32, u32, usize)> = Vec::new();
    for (host, len) in runs {
        match blocks.last_mut() {
            Some((first, count, each)) if *each == len && first.checked_add(*count) == Some(host) => {
                *count += 1
            }
            _ => blocks.push((host, 1, len)),
        }
    }
    // A description begins again at its end, so ranks that take the hosts in turn need one turn.
    let is_turn = |block: &(u32, u32, usize)| *block == blocks[0];
    let (last, turns) = (blocks.last().copied(), &blocks[..blocks.len().saturating_sub(1)]);
    let is_begun =
        |last: (u32, u32, usize)| last.0 == blocks[0].0 && last.1 <= blocks[0].1 && last.2 == blocks[0].2;
    if turns.iter().all(is_turn) && last.is_some_and(is_begun) {
        blocks.truncate(1);
    }
    let text = |(first, count, each): &(u32, u32, usize)| format!(",({first},{count},{each})");
    format!("(vector{})", blocks.iter().map(text).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which host each rank is on, written out.
    fn places(text: &str, size: u32) -> Vec<(u32, u32)> {
        let mapping = Mapping::parse(text).unwrap();
        (0..size).map(|rank| mapping.place(rank, size).unwrap()).collect()
    }

    #[test]
    fn blocks_and_turns() {
        assert_eq!(places("(vector,(0,2,2))", 4), [(0, 2), (1, 2), (0, 2), (1, 2)]);
        assert_eq!(places("(vector,(0,1,1))", 3), [(0, 3), (1, 3), (2, 3)]);
        assert_eq!(places("(vector,(0,2,1))", 3), [(0, 2), (0, 1), (1, 2)]);
        assert_eq!(places("(vector, (0,1,3),(1,1,1))", 4), [(0, 3), (1, 3), (2, 3), (0, 1)]);
        assert_eq!(places("(vector,(5,1,1),(0,1,2))", 5), [(0, 2), (0, 3), (1, 3), (1, 2), (2, 3)]);
        assert_eq!(places("(vector,(0,4294967295,4294967295))", 1), [(0, 1)]);
        assert_eq!(Mapping::parse("(vector,(0,1,1))").unwrap().place(3, 3), None);
    }

    #[test]
    fn neighbours_are_those_of_the_job_and_as_many_as_can_be() {
        let mapping = Mapping::parse("(vector,(5,1,1),(0,1,2))").unwrap();
        assert_eq!(mapping.neighbours(4, 5), [1, 2, 4]);
        assert_eq!(mapping.neighbours(5, 5), []);
        let all_on_one = Mapping::parse("(vector,(0,1,4294967295))").unwrap();
        assert_eq!(all_on_one.neighbours(0, NEIGHBOURS_MAX + 1), []);
        assert_eq!(all_on_one.neighbours(0, 3), [0, 1, 2]);
    }

    #[test]
    fn what_is_no_mapping() {
        for text in [
            "",
            "(vector)",
            "(vector,(0,1))",
            "(vector,(0,0,1))",
            "(vector,(0,1,0))",
            "(vector,(1,2,3,4))",
            "(x)",
            "(vector,(0,1,1)",
            "(vector,(-1,1,1))",
            "(vector,(4294967295,4294967295,1))",
            "(vector,(0,1,1)x)",
        ] {
            assert_eq!(Mapping::parse(text), None, "{text}");
        }
    }

    #[test]
    fn any_order_of_hosts_is_described() {
        assert_eq!(describe(&[0, 0, 1, 1, 2]), "(vector,(0,2,2),(2,1,1))");
        assert_eq!(describe(&[0, 1, 2, 0, 1, 2, 0]), "(vector,(0,3,1))");
        assert_eq!(describe(&[0, 0, 0]), "(vector,(0,1,3))");
        assert_eq!(describe(&[0, 1, 1, 0]), "(vector,(0,1,1),(1,1,2),(0,1,1))");
        for hosts in [&[0, 0, 1, 1, 2][..], &[0, 1, 2, 0, 1, 2], &[0, 1, 2, 0, 1], &[0, 1, 1, 0], &[3]] {
            let place = |rank: usize| {
                let same = |range: &[u32]| range.iter().filter(|host| **host == hosts[rank]).count() as u32;
                (same(&hosts[..rank]), same(hosts))
            };
            let expected: Vec<_> = (0..hosts.len()).map(place).collect();
            assert_eq!(places(&describe(hosts), hosts.len() as u32), expected, "{hosts:?}");
            let mapping = Mapping::parse(&describe(hosts)).unwrap();
            for (rank, host) in (0..).zip(hosts) {
                let here = (0..).zip(hosts).filter(|(_, other)| *other == host).map(|(other, _)| other);
                let here: Vec<u32> = here.collect();
                assert_eq!(mapping.neighbours(rank, hosts.len() as u32), here, "{hosts:?}");
            }
        }
    }
}
