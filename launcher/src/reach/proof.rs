//! The mutual proof that both ends of a connection belong to the same job. Pure: bytes in, bytes out.
//!
//! Each side sends a nonce, and answers the other's with a keyed hash (HMAC-SHA-256) of both nonces under the
//! job's secret. The listening side proves itself first, so that the connecting side says who it is only to its
//! own job. Four messages of fixed length:
//!
//! | from | bytes | what |
//! | --- | --- | --- |
//! | connecting side | 40 | magic, its nonce |
//! | listening side | 72 | magic, its nonce, hash("listening") |
//! | connecting side | 36 | its number (little-endian), hash("connecting", number) |
//! | listening side | 32 | hash("welcome", number) |
//!
//! The first word of what is hashed says whose hash it is, so none can be sent back to its maker.

use std::fmt;
use std::io;

use hmac::{Hmac, KeyInit, Mac};
use rustix::rand::{getrandom, GetRandomFlags};
use sha2::Sha256;

/// Bytes of the secret and of each nonce.
const NONCE_BYTES: usize = 32;

/// Bytes of a key, as the hash takes it.
const KEY_BYTES: usize = 64;

/// Bytes of a hash.
const HASH_BYTES: usize = 32;

/// Says what protocol follows, and its version.
const MAGIC: [u8; 8] = *b"rmarun\x00\x01";

/// Bytes of the connecting side's first message.
pub(crate) const HELLO_BYTES: usize = MAGIC.len() + NONCE_BYTES;

/// Bytes of the listening side's answer.
pub(crate) const CHALLENGE_BYTES: usize = MAGIC.len() + NONCE_BYTES + HASH_BYTES;

/// Bytes of the connecting side's second message.
pub(crate) const CLAIM_BYTES: usize = 4 + HASH_BYTES;

/// Bytes of the listening side's last message.
pub(crate) const WELCOME_BYTES: usize = HASH_BYTES;

/// What every part of one job knows and nobody else: 32 random bytes. Never printed; it travels over the standard
/// input of whatever starts an agent.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret([u8; NONCE_BYTES]);

impl Secret {
    /// A new one, from the kernel's random numbers.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub(crate) fn new() -> io::Result<Self> {
        random().map(Self::of_bytes)
    }

    /// As hexadecimal digits, for the job's description.
    pub(crate) fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What [`Secret::to_hex`] has written; `None` for anything else.
    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * NONCE_BYTES {
            return None;
        }
        let mut bytes = [0; NONCE_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = (digit(0)? * 16 + digit(1)?) as u8;
        }
        Some(Self::of_bytes(bytes))
    }

    pub(crate) const fn of_bytes(bytes: [u8; NONCE_BYTES]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Why the other side is not believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// It speaks another protocol, or another version of this one.
    Protocol,
    /// It does not know the secret of this job.
    Secret,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Protocol => "something answers there that does not speak rmarun's protocol",
            Self::Secret => "what answers there belongs to another job",
        })
    }
}

/// What the two sides hash.
#[derive(Clone, Copy, Debug)]
struct Nonces {
    connecting: [u8; NONCE_BYTES],
    listening: [u8; NONCE_BYTES],
}

impl Nonces {
    fn hash(&self, secret: &Secret, label: &str, id: u32) -> Hmac<Sha256> {
        // A key is a block of the hash, filled up with zeros.
        let mut key = [0; KEY_BYTES];
        key[..NONCE_BYTES].copy_from_slice(&secret.0);
        let mut hash = Hmac::<Sha256>::new(&key.into());
        hash.update(label.as_bytes());
        hash.update(&[0]);
        hash.update(&self.connecting);
        hash.update(&self.listening);
        hash.update(&id.to_le_bytes());
        hash
    }

    fn of_challenge(&self, secret: &Secret) -> Hmac<Sha256> {
        self.hash(secret, "listening", 0)
    }

    fn of_claim(&self, secret: &Secret, id: u32) -> Hmac<Sha256> {
        self.hash(secret, "connecting", id)
    }

    fn of_welcome(&self, secret: &Secret, id: u32) -> Hmac<Sha256> {
        self.hash(secret, "welcome", id)
    }
}

/// Compares in constant time.
fn check(hash: Hmac<Sha256>, bytes: &[u8]) -> Result<(), Refusal> {
    hash.verify_slice(bytes).map_err(|_| Refusal::Secret)
}

/// Collects one message of known length, and never a byte more.
#[derive(Debug)]
struct Message {
    bytes: Vec<u8>,
    len: usize,
}

impl Message {
    fn of(len: usize) -> Self {
        Self { bytes: Vec::with_capacity(len), len }
    }

    fn missing(&self) -> usize {
        self.len - self.bytes.len()
    }

    /// Takes what it lacks from `bytes`; returns the message when it is complete.
    fn take(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(self.missing())]);
        (self.missing() == 0).then_some(&self.bytes)
    }
}

/// The listening side of one connection.
#[derive(Debug)]
pub(crate) struct Host {
    nonce: [u8; NONCE_BYTES],
    /// Known from the first message on.
    nonces: Option<Nonces>,
    message: Message,
}

/// What the listening side has to do next.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Read on.
    Wait,
    /// Send this, and read on.
    Send(Vec<u8>),
    /// Send this; the other side has proved itself and says that this is its number.
    Welcome(u32, Vec<u8>),
}

impl Host {
    /// For a connection that has just been accepted.
    ///
    /// # Errors
    /// When the kernel gives no random numbers.
    pub(crate) fn new() -> io::Result<Self> {
        random().map(Self::with_nonce)
    }

    pub(crate) fn with_nonce(nonce: [u8; NONCE_BYTES]) -> Self {
        Self { nonce, nonces: None, message: Message::of(HELLO_BYTES) }
    }

    /// How many bytes may be read; none after the welcome.
    pub(crate) fn wanted(&self) -> usize {
        self.message.missing()
    }

    /// Takes what has arrived, at most [`Host::wanted`] bytes of it.
    ///
    /// # Errors
    /// When the connection is to be closed, without a word.
    pub(crate) fn on_bytes(&mut self, secret: &Secret, bytes: &[u8]) -> Result<Step, Refusal> {
        let Some(message) = self.message.take(bytes) else { return Ok(Step::Wait) };
        let Some(nonces) = self.nonces else {
            let connecting = nonce_after_magic(message)?;
            let nonces = Nonces { connecting, listening: self.nonce };
            self.nonces = Some(nonces);
            self.message = Message::of(CLAIM_BYTES);
            let hash = nonces.of_challenge(secret).finalize().into_bytes();
            return Ok(Step::Send([&MAGIC[..], &self.nonce, &hash].concat()));
        };
        let Some((id, hash)) = message.split_first_chunk().filter(|(_, hash)| hash.len() == HASH_BYTES)
        else {
            return Err(Refusal::Protocol);
        };
        let id = u32::from_le_bytes(*id);
        check(nonces.of_claim(secret, id), hash)?;
        self.message = Message::of(0);
        Ok(Step::Welcome(id, nonces.of_welcome(secret, id).finalize().into_bytes().to_vec()))
    }
}

/// The connecting side of one connection.
#[derive(Debug)]
pub(crate) struct Guest {
    id: u32,
    nonce: [u8; NONCE_BYTES],
    /// Known from the challenge on.
    nonces: Option<Nonces>,
    message: Message,
}

/// What the connecting side has heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// Not enough yet.
    Nothing,
    /// The other side has proved itself: [`Guest::claim`] may be sent.
    Host,
    /// The other side has taken the claim.
    Welcome,
}

impl Guest {
    /// For a connection that is to be made; `id` is the number of this side in the job.
    ///
    /// # Errors
    /// When the kernel gives no random numbers.
    pub(crate) fn new(id: u32) -> io::Result<Self> {
        Ok(Self::with_nonce(id, random()?))
    }

    pub(crate) fn with_nonce(id: u32, nonce: [u8; NONCE_BYTES]) -> Self {
        Self { id, nonce, nonces: None, message: Message::of(CHALLENGE_BYTES) }
    }

    /// The first message.
    pub(crate) fn hello(&self) -> Vec<u8> {
        [&MAGIC[..], &self.nonce].concat()
    }

    /// How many bytes may be read.
    pub(crate) fn wanted(&self) -> usize {
        self.message.missing()
    }

    /// Takes what has arrived, at most [`Guest::wanted`] bytes of it.
    ///
    /// # Errors
    /// When the other side is not the one that is looked for.
    pub(crate) fn on_bytes(&mut self, secret: &Secret, bytes: &[u8]) -> Result<Heard, Refusal> {
        let Some(message) = self.message.take(bytes) else { return Ok(Heard::Nothing) };
        if let Some(nonces) = self.nonces {
            check(nonces.of_welcome(secret, self.id), message)?;
            self.message = Message::of(0);
            return Ok(Heard::Welcome);
        }
        let (hello, hash) = message.split_at(HELLO_BYTES);
        let nonces = Nonces { connecting: self.nonce, listening: nonce_after_magic(hello)? };
        check(nonces.of_challenge(secret), hash)?;
        self.nonces = Some(nonces);
        self.message = Message::of(WELCOME_BYTES);
        Ok(Heard::Host)
    }

    /// The second message; `None` while the other side has not proved itself.
    pub(crate) fn claim(&self, secret: &Secret) -> Option<Vec<u8>> {
        let hash = self.nonces?.of_claim(secret, self.id).finalize().into_bytes();
        Some([&self.id.to_le_bytes()[..], &hash].concat())
    }
}

fn nonce_after_magic(message: &[u8]) -> Result<[u8; NONCE_BYTES], Refusal> {
    let nonce = message.strip_prefix(&MAGIC).ok_or(Refusal::Protocol)?;
    nonce.try_into().map_err(|_| Refusal::Protocol)
}

fn random() -> io::Result<[u8; NONCE_BYTES]> {
    let mut bytes = [0; NONCE_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: Secret = Secret::of_bytes([7; NONCE_BYTES]);

    /// Both sides with these secrets, byte by byte; what became of it, and all that was sent.
    fn meet(host_secret: &Secret, guest_secret: &Secret) -> Result<(u32, Vec<Vec<u8>>), Refusal> {
        let mut host = Host::with_nonce([1; NONCE_BYTES]);
        let mut guest = Guest::with_nonce(5, [2; NONCE_BYTES]);
        let mut sent = vec![guest.hello()];
        let mut last = Step::Wait;
        while let Some(bytes) = sent.last().filter(|_| last == Step::Wait) {
            for byte in bytes.clone() {
                last = host.on_bytes(host_secret, &[byte])?;
            }
            let answer = match &last {
                Step::Wait => panic!("a whole message was sent"),
                Step::Send(answer) | Step::Welcome(_, answer) => answer.clone(),
            };
            let mut heard = Heard::Nothing;
            for byte in &answer {
                heard = guest.on_bytes(guest_secret, &[*byte])?;
            }
            sent.push(answer);
            match last {
                Step::Welcome(id, _) => {
                    assert_eq!(heard, Heard::Welcome);
                    return Ok((id, sent));
                }
                _ => {
                    assert_eq!(heard, Heard::Host);
                    sent.push(guest.claim(guest_secret).unwrap());
                    last = Step::Wait;
                }
            }
        }
        unreachable!("it ends with a welcome or a refusal")
    }

    #[test]
    fn two_that_know_the_secret_meet() {
        let (id, sent) = meet(&SECRET, &SECRET).unwrap();
        assert_eq!(id, 5);
        let lengths: Vec<usize> = sent.iter().map(Vec::len).collect();
        assert_eq!(lengths, [HELLO_BYTES, CHALLENGE_BYTES, CLAIM_BYTES, WELCOME_BYTES]);
        // A secret that is on the wire is none.
        assert!(sent.iter().all(|bytes| !bytes.windows(8).any(|part| part == [7; 8])));
    }

    #[test]
    fn another_secret_is_refused_by_both_sides() {
        let other = Secret::of_bytes([8; NONCE_BYTES]);
        assert_eq!(meet(&other, &SECRET).unwrap_err(), Refusal::Secret);
        let mut host = Host::with_nonce([1; NONCE_BYTES]);
        let mut guest = Guest::with_nonce(5, [2; NONCE_BYTES]);
        // A guest that believes everybody, as an attacker's.
        let Step::Send(challenge) = host.on_bytes(&SECRET, &guest.hello()).unwrap() else { panic!() };
        assert_eq!(guest.claim(&other), None);
        let forged = Nonces { connecting: [2; 32], listening: [1; 32] };
        assert_eq!(guest.on_bytes(&other, &challenge), Err(Refusal::Secret));
        guest.nonces = Some(forged);
        assert_eq!(host.on_bytes(&SECRET, &guest.claim(&other).unwrap()), Err(Refusal::Secret));
    }

    #[test]
    fn what_one_has_said_cannot_be_said_back_or_for_another() {
        let mut host = Host::with_nonce([1; NONCE_BYTES]);
        let guest = Guest::with_nonce(5, [1; NONCE_BYTES]);
        let Step::Send(challenge) = host.on_bytes(&SECRET, &guest.hello()).unwrap() else { panic!() };
        let reflected = [&5u32.to_le_bytes()[..], &challenge[HELLO_BYTES..]].concat();
        assert_eq!(host.on_bytes(&SECRET, &reflected), Err(Refusal::Secret));

        let (_, sent) = meet(&SECRET, &SECRET).unwrap();
        let mut renamed = sent[2].clone();
        renamed[0] = 6;
        let mut host = Host::with_nonce([1; NONCE_BYTES]);
        host.on_bytes(&SECRET, &sent[0]).unwrap();
        assert_eq!(host.on_bytes(&SECRET, &renamed), Err(Refusal::Secret));
        // A recorded claim answers another nonce.
        let mut host = Host::with_nonce([9; NONCE_BYTES]);
        host.on_bytes(&SECRET, &sent[0]).unwrap();
        assert_eq!(host.on_bytes(&SECRET, &sent[2]), Err(Refusal::Secret));
    }

    #[test]
    fn another_protocol_is_told_from_another_job() {
        let http =
            b"HTTP/1.1 400 Bad Request\r\nServer: nginx\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let mut guest = Guest::with_nonce(5, [2; NONCE_BYTES]);
        assert_eq!(guest.on_bytes(&SECRET, &http[..guest.wanted()]), Err(Refusal::Protocol));
        let mut host = Host::with_nonce([1; NONCE_BYTES]);
        assert_eq!(host.on_bytes(&SECRET, &http[..host.wanted()]), Err(Refusal::Protocol));
    }

    #[test]
    fn secrets_differ_and_are_not_printed() {
        let (one, other) = (Secret::new().unwrap(), Secret::new().unwrap());
        assert_ne!(one, other);
        assert_eq!(Secret::from_hex(&one.to_hex()), Some(one.clone()));
        assert_eq!(format!("{one:?}"), "Secret");
        for text in ["", "00", &"0".repeat(65), &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(Secret::from_hex(text), None, "{text}");
        }
    }
}
