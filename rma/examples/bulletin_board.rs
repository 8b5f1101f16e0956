//! Bulletin boards: each rank has one, and every rank pins notes to any of them, and reads them, when it likes. Who pins
//! has the board for itself (an exclusive lock); many may read at a time (shared locks).
//!
//! `rmarun -n 4 target/debug/examples/bulletin_board`

use rma::{Job, LockType, Rank, Window};

/// Notes that a board has room for; then the oldest is covered.
const NOTES: u64 = 8;

/// Words of a note: who wrote it, and what.
const WORDS: u64 = 4;

/// Where a board says how many notes were pinned to it ever; the notes are behind it.
const PINNED: u64 = 0;
const FIRST: u64 = 1;

/// Notes that each rank pins.
const EACH: u64 = 100;

/// Pins a note, and gives back how many there were before.
fn pin(boards: &Window<u64>, board: Rank, author: u64, text: u64) -> rma::Result<u64> {
    let note = [author, text, author ^ text, author + text];
    boards.lock(board, LockType::Exclusive, |epoch| {
        // Nobody else is at the board: what is read here is still so when the note is there.
        let pinned = epoch.get_value(PINNED)?;
        epoch.batch(|batch| batch.put(FIRST + pinned % NOTES * WORDS, &note))?;
        epoch.put_value(PINNED, pinned + 1)?;
        Ok(pinned)
    })
}

/// How many notes were pinned, and those that are to be seen.
fn read(boards: &Window<u64>, board: Rank) -> rma::Result<(u64, Vec<u64>)> {
    let mut words = vec![0; (FIRST + NOTES * WORDS) as usize];
    // The lock, the get and the unlock are one packet, and one comes back.
    boards.lock(board, LockType::Shared, |epoch| epoch.get(0, &mut words))?;
    let pinned = words[PINNED as usize];
    words.drain(..FIRST as usize);
    words.truncate((pinned.min(NOTES) * WORDS) as usize);
    Ok((pinned, words))
}

/// Notes are whole, and of ranks of the job.
fn check(notes: &[u64], size: u32) {
    for note in notes.chunks(WORDS as usize) {
        let [author, text] = [note[0], note[1]];
        assert!(author < u64::from(size) && text < EACH, "{note:?}");
        assert_eq!(note[2..], [author ^ text, author + text], "a note that was read while it was written");
    }
}

fn main() -> rma::Result<()> {
    let job = Job::init()?;
    let (rank, size) = (u64::from(job.rank().0), job.size());
    let boards = job.allocate::<u64>((FIRST + NOTES * WORDS) as usize)?;
    let mut seen = vec![0; size as usize];
    for text in 0..EACH {
        let board = (rank + text * 7) % u64::from(size);
        pin(&boards, Rank(board as u32), rank, text)?;
        let other = ((rank + text) % u64::from(size)) as u32;
        let (pinned, notes) = read(&boards, Rank(other))?;
        check(&notes, size);
        // Boards are only added to.
        assert!(pinned >= seen[other as usize]);
        seen[other as usize] = pinned;
    }

    job.barrier()?;
    let mut all = 0;
    for board in 0..size {
        let (pinned, notes) = read(&boards, Rank(board))?;
        check(&notes, size);
        all += pinned;
    }
    assert_eq!(all, EACH * u64::from(size), "each note was pinned once");
    println!("rank {rank}: {all} notes on {size} boards");
    boards.free()?;
    job.finalize()
}
