//! What went wrong, and where.

use std::fmt;

use rma::Rank;

/// What a behaviour comes to.
pub(crate) type Outcome = Result<(), Failure>;

/// Something that is not as it must be.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    whose: Option<(&'static str, Rank)>,
}

impl Failure {
    /// With a message.
    pub(crate) fn new(message: String) -> Self {
        Self { message, whose: None }
    }

    /// In this behaviour, at this rank.
    pub(crate) fn of(self, behaviour: &'static str, rank: Rank) -> Self {
        Self { whose: Some((behaviour, rank)), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = crate::watchdog::place();
        match self.whose {
            Some((behaviour, rank)) => {
                write!(f, "FAILED {behaviour} on rank {rank}, last call {place}: {}", self.message)
            }
            None => write!(f, "FAILED, last call {place}: {}", self.message),
        }
    }
}

impl From<rma::Error> for Failure {
    fn from(error: rma::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// Fails the behaviour unless both are equal.
macro_rules! same {
    ($left:expr, $right:expr) => {{
        let (left, right) = ($left, $right);
        if left != right {
            let place = concat!(file!(), ":", line!());
            let what = concat!(stringify!($left), " is ");
            return Err($crate::failure::Failure::new(format!("{place}: {what}{left:?} and not {right:?}")));
        }
    }};
}

/// Fails the behaviour unless the condition holds.
macro_rules! holds {
    ($condition:expr) => {
        if !$condition {
            let place = concat!(file!(), ":", line!(), ": does not hold: ", stringify!($condition));
            return Err($crate::failure::Failure::new(place.to_owned()));
        }
    };
}

pub(crate) use {holds, same};
