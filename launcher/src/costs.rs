//! What one rank costs the launcher, counted: messages, bytes and memory of simulated sessions against the server
//! part, without a process or a socket. All of it is the same for each rank, however many there are. The times, which
//! nobody asserts, and the rest are in docs/launcher.md:
//! `cargo test --release -p launcher costs -- --nocapture`.
#![allow(unsafe_code)] // a counting allocator

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use rma_bootstrap::pmi::wire::{Message, Syntax};
use rma_bootstrap::wire::{encode_frame, Request, VERSION};

use crate::job::{Action, Job, Wishes};
use crate::session::State;

/// Numbers of ranks that are compared.
const SIZES: [u32; 5] = [64, 128, 256, 512, 8192];

/// Others that each rank looks up.
const LOOKUPS: u32 = 2;

/// Bytes of a provider's address over tcp, as it is published.
const ADDRESS_BYTES: usize = 51;

struct Counting;

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    // A thread that ends is not counted any more.
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promises are the same.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as i64 - layout.size() as i64);
        // SAFETY: the caller's promises are the same.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What has come from all ranks and gone to them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Costs {
    messages_in: usize,
    bytes_in: usize,
    messages_out: usize,
    bytes_out: usize,
}

impl Costs {
    /// The share of one rank; all have the same.
    fn of_one(self, size: u32) -> Self {
        let share = |all: usize| {
            assert_eq!(all % size as usize, 0, "{self:?} of {size} ranks");
            all / size as usize
        };
        Self {
            messages_in: share(self.messages_in),
            bytes_in: share(self.bytes_in),
            messages_out: share(self.messages_out),
            bytes_out: share(self.bytes_out),
        }
    }
}

/// Simulated sessions, and what they have cost.
struct Sessions {
    job: Job,
    size: u32,
    costs: Costs,
}

impl Sessions {
    fn new(size: u32) -> Self {
        let wishes = Wishes {
            size,
            job_id: "j".into(),
            timeout: None,
            grace: Duration::from_secs(2),
            keep_going: false,
            patience: Duration::from_secs(60),
            hosts: Vec::new(),
        };
        Self { job: Job::new(wishes), size, costs: Costs::default() }
    }

    /// Every rank says this over its control connection.
    fn all_say(&mut self, request: impl Fn(u32) -> Request) {
        for rank in 0..self.size {
            let (request, mut frame) = (request(rank), Vec::new());
            encode_frame(&request, &mut frame).unwrap();
            self.costs.messages_in += 1;
            self.costs.bytes_in += frame.len();
            self.job.on_request(rank, request, Duration::ZERO);
            self.take_replies();
        }
    }

    /// Every rank says this by PMI.
    fn all_say_pmi(&mut self, syntax: Syntax, message: impl Fn(u32) -> Message) {
        for rank in 0..self.size {
            let (message, mut bytes) = (message(rank), Vec::new());
            message.encode(syntax, &mut bytes).unwrap();
            self.costs.messages_in += 1;
            self.costs.bytes_in += bytes.len();
            self.job.on_pmi(rank, &message, Duration::ZERO);
            self.take_replies();
        }
    }

    fn take_replies(&mut self) {
        while let Some(action) = self.job.poll_action() {
            let mut bytes = Vec::new();
            match action {
                Action::Send(_, reply) => encode_frame(&reply, &mut bytes).unwrap(),
                Action::SendPmi(_, message) => message.encode(Syntax::Lines, &mut bytes).unwrap(),
                Action::SpeakPmi(..) => continue,
                other => panic!("nothing goes wrong here: {other:?}"),
            }
            self.costs.messages_out += 1;
            self.costs.bytes_out += bytes.len();
        }
    }

    fn finish(self) -> Costs {
        assert!((0..self.size).all(|rank| self.job.state(rank) == State::Finalized));
        self.costs.of_one(self.size)
    }
}

/// Each rank joins, asks for others, publishes, and finalizes.
fn control(size: u32) -> Costs {
    let mut sessions = Sessions::new(size);
    sessions.all_say(|rank| Request::Hello { version: VERSION, rank, process: 1, job: "j".into() });
    // Before it is there, and after.
    let get = |rank: u32, distance: u32| Request::Get {
        request: distance,
        rank: (rank + distance) % size,
        key: "address".into(),
    };
    sessions.all_say(|rank| get(rank, 1));
    sessions.all_say(|_| Request::Put { request: 9, key: "address".into(), value: vec![7; ADDRESS_BYTES] });
    (2..=LOOKUPS).for_each(|distance| sessions.all_say(|rank| get(rank, distance)));
    sessions.all_say(|_| Request::Finalize);
    sessions.finish()
}

/// The same by PMI. Ranks are written with as many digits everywhere, so that bytes can be compared: a decimal more
/// for ten times the ranks is all that grows.
fn pmi(size: u32, version: u32) -> Costs {
    let mut sessions = Sessions::new(size);
    let is_one = version == 1;
    let syntax = if is_one { Syntax::Lines } else { Syntax::Counted };
    let named = |one: &str, two: &str| Message::new(if is_one { one } else { two });
    let key = |rank: u32| format!("rma-{:07}-address-0", rank % size);
    let init = || Message::new("init").with("pmi_version", version).with("pmi_subversion", 0);
    sessions.all_say_pmi(Syntax::Lines, |_| init());
    sessions.all_say_pmi(syntax, |rank| {
        let put = named("put", "kvs-put").with("key", key(rank));
        put.with("value", "7".repeat(2 * ADDRESS_BYTES))
    });
    sessions.all_say_pmi(syntax, |_| named("barrier_in", "kvs-fence"));
    for distance in 1..=LOOKUPS {
        sessions.all_say_pmi(syntax, |rank| named("get", "kvs-get").with("key", key(rank + distance)));
    }
    sessions.all_say_pmi(syntax, |_| named("barrier_in", "kvs-fence"));
    if !is_one {
        // Whether that was a barrier.
        sessions.all_say_pmi(syntax, |_| Message::new("kvs-get").with("key", "rma-all-done"));
    }
    sessions.all_say_pmi(syntax, |_| Message::new("finalize"));
    sessions.finish()
}

#[test]
fn a_rank_costs_as_many_messages_and_bytes_however_many_there_are() {
    let peers = LOOKUPS as usize;
    for (kind, messages_in, messages_out) in [
        // In: hello, put, gets, finalize. Out: welcome, values, all finalized.
        ("rmarun", 3 + peers, 2 + peers),
        // In: init, put, two barriers, gets, finalize. Out: as many, and that all have finalized.
        ("PMI-1", 5 + peers, 6 + peers),
        // And one look-up more.
        ("PMI-2", 6 + peers, 7 + peers),
    ] {
        let mut first = None;
        for size in SIZES {
            let begun = Instant::now();
            let costs = match kind {
                "PMI-1" => pmi(size, 1),
                "PMI-2" => pmi(size, 2),
                _ => control(size),
            };
            println!("{kind}, {size} sessions: {costs:?} each, {:.1?} each", begun.elapsed() / size);
            assert_eq!((costs.messages_in, costs.messages_out), (messages_in, messages_out), "{kind} {size}");
            assert_eq!(*first.get_or_insert(costs), costs, "{kind} {size}");
        }
    }
}

/// Bytes that the server part holds for each rank when all have joined and published, and each has been asked for.
fn memory(size: u32) -> i64 {
    let before = LIVE.get();
    let mut sessions = Sessions::new(size);
    sessions.all_say(|rank| Request::Hello { version: VERSION, rank, process: 1, job: "j".into() });
    let get = |rank: u32| Request::Get { request: 1, rank: (rank + 1) % size, key: "address".into() };
    sessions.all_say(get);
    let waiting = LIVE.get() - before;
    sessions.all_say(|_| Request::Put { request: 9, key: "address".into(), value: vec![7; ADDRESS_BYTES] });
    let most = waiting.max(LIVE.get() - before);
    drop(sessions);
    assert_eq!(LIVE.get(), before, "all of it is the job's");
    most / i64::from(size)
}

#[test]
fn a_rank_costs_as_much_memory_however_many_there_are() {
    let first = memory(SIZES[0]);
    for size in SIZES {
        let each = memory(size);
        println!("{size} sessions: {each} bytes each");
        assert!(
            each > 0 && 4 * each <= 5 * first,
            "{each} bytes each of {size}, and {first} of {}",
            SIZES[0]
        );
    }
}
