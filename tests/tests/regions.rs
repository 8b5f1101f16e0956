//! Random programs over dynamic windows on random fabrics: memory is attached and detached, between accesses and
//! during them. The fabric watches that no key is used after its region was closed; a model says what every byte
//! has to be.
#![allow(unsafe_code)] // attached memory

use rma_conformance::{simulated, World};
use rma_core::config::Config;
use rma_core::error::{ErrorClass, RmaError};
use rma_core::ids::WindowId;
use rma_core::info::WindowOptions;
use rma_sim::{FabricConfig, Random, SimBootstrap, SimEndpoint, SimFabric};

/// Random programs in one test.
const SEEDS: u64 = 250;

/// Regions that each rank may attach.
const REGIONS: usize = 3;

/// Memory that a rank attaches now and then, divided among the origins.
struct Region {
    owner: u32,
    words: Vec<u64>,
    model: Vec<u8>,
    is_attached: bool,
}

impl Region {
    fn base(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }

    fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}

/// A get under way, and what it must bring.
struct Get {
    buffer: Box<[u8]>,
    expected: Vec<u8>,
}

struct Program {
    seed: u64,
    random: Random,
    world: World<SimEndpoint, SimBootstrap>,
    window: WindowId,
    regions: Vec<Region>,
    slot: usize,
}

impl Program {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let ranks = random.pick(&[2, 3, 4, 6]);
        let fabric = SimFabric::new(FabricConfig::draw(ranks, &mut random));
        let config = draw_config(&mut random);
        let mut world = simulated::world(&fabric, ranks, &config, |endpoint, _| endpoint);
        let window = world.make(|engine, _| engine.start_create_dynamic(&WindowOptions::DEFAULT));
        let slot = random.pick(&[16, 64, 512, 4096]);
        let regions = (0..ranks as usize * REGIONS).map(|index| Region {
            owner: (index / REGIONS) as u32,
            words: vec![0; slot / 8 * ranks as usize],
            model: vec![0; slot * ranks as usize],
            is_attached: false,
        });
        Self { seed, random, world, window, regions: regions.collect(), slot }
    }

    /// Epochs of lock_all, each with several rounds of accesses and changes.
    fn run(mut self) {
        for _ in 0..self.random.between(1, 3) {
            for rank in self.world.ranks() {
                let started = self.world.engines[rank as usize].start_lock_all(self.window, false);
                self.world.wait(rank, started).expect("an epoch opens");
            }
            for _ in 0..self.random.between(1, 4) {
                self.attach_some();
                self.access();
                self.detach_some();
            }
            let calls = self.world.ranks().map(|rank| {
                (rank, self.world.engines[rank as usize].start_unlock_all(self.window).expect("it is open"))
            });
            let calls = calls.collect();
            self.world.wait_all(calls).expect("everything was flushed");
        }
        self.world.free(self.window).expect("no epoch is open");
        self.world.check_idle();
        self.check_memory();
    }

    fn attach_some(&mut self) {
        for region in &mut self.regions {
            if !region.is_attached && self.random.chance(600) {
                let (base, len) = (region.base(), region.model.len());
                // SAFETY: the memory lives as long as the program, and is read only when nothing is under way.
                let done =
                    unsafe { self.world.engines[region.owner as usize].attach(self.window, base, len) };
                done.expect("regions do not overlap");
                region.is_attached = true;
            }
        }
    }

    /// Every rank accesses its part of some regions, some of them detached, and flushes.
    fn access(&mut self) {
        let ranks = self.world.ranks().count();
        let mut puts: Vec<Box<[u8]>> = Vec::new();
        let mut gets: Vec<Get> = Vec::new();
        let mut is_wrong = vec![false; ranks];
        for (origin, is_wrong) in is_wrong.iter_mut().enumerate() {
            for index in 0..self.regions.len() {
                let region = &mut self.regions[index];
                if region.owner as usize == origin || !self.random.chance(500) {
                    continue;
                }
                let first = self.slot * origin + self.random.index(self.slot);
                let len = 1 + self.random.index(self.slot * (origin + 1) - first);
                let disp = region.base().addr() as u64 + first as u64;
                *is_wrong |= !region.is_attached;
                if self.random.chance(500) {
                    let mut data = vec![0; len].into_boxed_slice();
                    self.random.fill(&mut data);
                    if region.is_attached {
                        region.model[first..first + len].copy_from_slice(&data);
                    }
                    let done = self.world.put(origin as u32, self.window, region.owner, disp, &data);
                    done.expect("a put is judged at the target");
                    puts.push(data);
                } else {
                    let mut buffer = vec![0xaa; len].into_boxed_slice();
                    let done = self.world.get(origin as u32, self.window, region.owner, disp, &mut buffer);
                    done.expect("a get is judged at the target");
                    let unread = vec![0xaa; len];
                    let is_attached = region.is_attached;
                    let expected =
                        if is_attached { region.model[first..first + len].to_vec() } else { unread };
                    gets.push(Get { buffer, expected });
                }
            }
        }
        for (rank, result) in self.flush_with(&[]).into_iter().enumerate() {
            match result {
                Ok(()) => assert!(!is_wrong[rank], "rank {rank} accessed what is not attached"),
                Err(error) => {
                    assert!(is_wrong[rank] && error.class() == ErrorClass::RmaRange, "rank {rank}: {error}");
                }
            }
        }
        for get in gets {
            assert!(*get.buffer == get.expected, "a get of {} bytes brought others", get.expected.len());
        }
        self.check_memory();
    }

    /// Flushes of all ranks, and detaches, at the same time; the flushes' results.
    fn flush_with(&mut self, detached: &[usize]) -> Vec<Result<(), RmaError>> {
        let mut calls = Vec::new();
        for &index in detached {
            let region = &mut self.regions[index];
            let engine = &mut self.world.engines[region.owner as usize];
            calls.push((region.owner, engine.start_detach(self.window, region.base()).expect("attached")));
        }
        for rank in self.world.ranks() {
            let engine = &mut self.world.engines[rank as usize];
            calls.push((rank, engine.start_flush_all(self.window).expect("an epoch is open")));
        }
        let mut results = self.world.wait_each(calls);
        let flushes = results.split_off(detached.len());
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        flushes
    }

    /// Some regions go, some of them while others put to them: what is in them then, stays.
    fn detach_some(&mut self) {
        let mut detached = Vec::new();
        for index in 0..self.regions.len() {
            if self.regions[index].is_attached && self.random.chance(400) {
                detached.push(index);
            }
        }
        let mut puts: Vec<Box<[u8]>> = Vec::new();
        let is_racing = self.random.chance(500);
        for &index in detached.iter().filter(|_| is_racing) {
            for origin in self.world.ranks() {
                let region = &mut self.regions[index];
                if region.owner != origin && self.random.chance(500) {
                    let data = vec![origin as u8; self.slot].into_boxed_slice();
                    let disp = region.base().addr() as u64 + u64::from(origin) * self.slot as u64;
                    let done = self.world.put(origin, self.window, region.owner, disp, &data);
                    done.expect("a put is judged at the target");
                    puts.push(data);
                }
            }
        }
        for _ in 0..self.random.below(20) {
            self.world.step();
        }
        for (rank, result) in self.flush_with(&detached).into_iter().enumerate() {
            if let Err(error) = result {
                assert!(is_racing && error.class() == ErrorClass::RmaRange, "rank {rank}: {error}");
            }
        }
        for index in detached {
            let region = &mut self.regions[index];
            (region.model, region.is_attached) = (region.bytes(), false);
        }
    }

    fn check_memory(&self) {
        for (index, region) in self.regions.iter().enumerate() {
            assert!(region.bytes() == region.model, "seed {}: region {index} holds others", self.seed);
        }
    }
}

fn draw_config(random: &mut Random) -> Config {
    let config = Config {
        force_message_path: random.chance(100),
        single_op_lock: random.chance(500),
        piggyback: random.chance(500),
        coalesce: random.chance(500),
        small_bytes_max: random.pick(&[0, 64, 2048]),
        native_region_bytes_min: random.pick(&[0, 1, 64, 1000]),
        region_records: random.pick(&[1, 2, 64]),
        region_holders: random.pick(&[0, 1, 2, 64]),
        slots: random.pick(&[1, 64]),
        operation_pool: random.pick(&[1, 3, 128]),
        operation_pool_global: random.pick(&[0, 64]),
        target_pool: random.pick(&[1, 2, 32]),
        target_pool_global: random.pick(&[0, 64]),
        reply_buffers: random.pick(&[1, 2, 16]),
        peers: random.pick(&[2, 16]),
        ..Config::default()
    };
    config.normalized()
}

/// Shows: MPI_Win_attach, MPI_Win_detach, ours: native regions, MPI-4.1 13.2.4.
#[test]
fn random_regions_on_random_fabrics() {
    for seed in 0..SEEDS {
        println!("seed {seed}");
        Program::new(seed).run();
    }
}
