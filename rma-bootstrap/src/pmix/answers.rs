//! What the PMIx library answers, from its own thread. One table for the process, as the library is one for
//! the process: what goes through the library is a number and no pointer, so an answer that comes late,
//! whatever has become of who asked, finds nothing to harm.

use std::ffi::{c_int, c_void, CStr};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::event::EventfdFlags;

use super::abi;
use crate::wire::VALUE_BYTES_MAX;

/// What an answer says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// A value of bytes or of text.
    Bytes(Vec<u8>),
    /// A value that is a number.
    Number(u32),
    /// Done, without a value.
    Done,
    /// No value, or one of another type: the status.
    Failed(c_int),
}

/// Most answers that wait to be taken: more than a client asks for at the same time.
const ANSWERS_MAX: usize = 256;

/// Longest text: the ranks of a host, in digits.
const TEXT_BYTES_MAX: usize = 1 << 16;

static ANSWERS: Mutex<Vec<(u32, Answer)>> = Mutex::new(Vec::new());

/// Readable while there are answers.
static EVENT: OnceLock<OwnedFd> = OnceLock::new();

/// The descriptor that is readable while there are answers.
pub(super) fn event() -> Result<&'static OwnedFd, String> {
    if let Some(event) = EVENT.get() {
        return Ok(event);
    }
    let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let event = event.map_err(|error| format!("no event descriptor: {error}"))?;
    Ok(EVENT.get_or_init(|| event))
}

/// Takes all answers that have come.
pub(super) fn take() -> Vec<(u32, Answer)> {
    if let Some(event) = EVENT.get() {
        // Not readable means that there is nothing to take back.
        let _ = rustix::io::read(event.as_fd(), &mut [0; 8]);
    }
    std::mem::take(&mut *answers())
}

/// A request's number as the library hands it back.
pub(super) fn context(number: u32) -> *mut c_void {
    ptr::without_provenance_mut(number as usize)
}

/// Called by the library with the answer to a get.
///
/// # Safety
/// `value` is null or points to a value that stays during the call.
pub(super) unsafe extern "C" fn on_value(status: c_int, value: *const abi::Value, context: *mut c_void) {
    let answer = if status != abi::SUCCESS || value.is_null() {
        Answer::Failed(status)
    } else {
        // SAFETY: not null, and the caller vouches for it.
        let value = unsafe { *value };
        // SAFETY: as for the value itself.
        unsafe { decode(&value) }
    };
    add(context, answer);
}

/// Called by the library at the end of a fence.
///
/// # Safety
/// None is needed; the type of a callback has it.
pub(super) unsafe extern "C" fn on_done(status: c_int, context: *mut c_void) {
    add(context, if status == abi::SUCCESS { Answer::Done } else { Answer::Failed(status) });
}

/// # Safety
/// A byte object in `value` has as many bytes as it says, and text is terminated.
unsafe fn decode(value: &abi::Value) -> Answer {
    match value.kind {
        // SAFETY: the type says which member was written.
        abi::TYPE_UINT16 => Answer::Number(unsafe { value.data.uint16 }.into()),
        // SAFETY: as above.
        abi::TYPE_UINT32 => Answer::Number(unsafe { value.data.uint32 }),
        abi::TYPE_STRING => {
            // SAFETY: as above.
            let text = unsafe { value.data.text };
            if text.is_null() {
                return Answer::Failed(abi::SUCCESS);
            }
            // SAFETY: not null, and the caller vouches for its terminator.
            let text = unsafe { CStr::from_ptr(text) }.to_bytes();
            // Only what is about one host is asked for as text.
            match text.len() <= TEXT_BYTES_MAX {
                true => Answer::Bytes(text.to_vec()),
                false => Answer::Failed(abi::SUCCESS),
            }
        }
        abi::TYPE_BYTE_OBJECT => {
            // SAFETY: as above.
            let object = unsafe { value.data.byte_object };
            if object.bytes.is_null() || object.len == 0 {
                return Answer::Bytes(Vec::new());
            }
            if object.len > VALUE_BYTES_MAX {
                return Answer::Failed(abi::SUCCESS);
            }
            // SAFETY: not null, and the caller vouches for the length.
            Answer::Bytes(
                unsafe { std::slice::from_raw_parts(object.bytes.cast::<u8>(), object.len) }.to_vec(),
            )
        }
        _ => Answer::Failed(abi::SUCCESS),
    }
}

fn add(context: *mut c_void, answer: Answer) {
    let number = context.addr() as u32;
    let mut answers = answers();
    if answers.len() < ANSWERS_MAX {
        answers.push((number, answer));
    }
    drop(answers);
    if let Some(event) = EVENT.get() {
        // It only fails when the count is full, and then it is readable.
        let _ = rustix::io::write(event.as_fd(), &1u64.to_ne_bytes());
    }
}

fn answers() -> MutexGuard<'static, Vec<(u32, Answer)>> {
    ANSWERS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_every_type_come_through() {
        event().unwrap();
        let mut bytes = abi::Value::of_bytes(b"here");
        // SAFETY: null, or a value that lives; so below.
        unsafe { on_value(0, &bytes, context(1)) };
        // SAFETY: as above.
        unsafe { on_value(-46, ptr::null(), context(2)) };
        bytes.kind = 99;
        // SAFETY: as above.
        unsafe { on_value(0, &bytes, context(3)) };
        bytes.kind = abi::TYPE_UINT16;
        bytes.data.uint16 = 7;
        // SAFETY: as above.
        unsafe { on_value(0, &bytes, context(4)) };
        let long = abi::Value::of_bytes(&[0; VALUE_BYTES_MAX + 1]);
        // SAFETY: as above.
        unsafe { on_value(0, &long, context(5)) };
        let empty = abi::Value::of_bytes(b"");
        // SAFETY: as above.
        unsafe { on_value(0, &empty, context(6)) };
        let mut text = abi::Value::of_bytes(b"");
        text.kind = abi::TYPE_STRING;
        text.data.text = c"0,1".as_ptr();
        // SAFETY: as above.
        unsafe { on_value(0, &text, context(7)) };
        // SAFETY: nothing is needed.
        unsafe { on_done(0, context(u32::MAX)) };
        let expected = [
            (1, Answer::Bytes(b"here".to_vec())),
            (2, Answer::Failed(-46)),
            (3, Answer::Failed(0)),
            (4, Answer::Number(7)),
            (5, Answer::Failed(0)),
            (6, Answer::Bytes(Vec::new())),
            (7, Answer::Bytes(b"0,1".to_vec())),
            (u32::MAX, Answer::Done),
        ];
        assert_eq!(take(), expected);
        assert!(take().is_empty());
        // SAFETY: nothing is needed.
        (0..2 * ANSWERS_MAX).for_each(|_| unsafe { on_done(0, context(0)) });
        assert_eq!(take().len(), ANSWERS_MAX);
    }
}
