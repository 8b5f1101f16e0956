//! What can go wrong, with the remedy.

use std::fmt;
use std::sync::Arc;

use rma_bootstrap::settings::SettingsError;
use rma_core::bootstrap::BootstrapError;
use rma_core::error::{Call, ErrorClass, RmaError, Rule};
use rma_core::ids::WindowId;
use rma_core::provider::ProviderError;

/// The outcome of every call that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this library: what was called, what is wrong, what to do about it.
///
/// One word wide, so that success costs nothing. It prints the same with `{}` and `{:?}` (but for a
/// hint at the end of the latter, where a job cannot be joined), so that a `main` that returns it shows users something readable.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Report>);

/// An error, and where it happened if that was a call on a window.
#[derive(Clone, PartialEq, Eq)]
struct Report {
    kind: ErrorKind,
    place: Option<Place>,
    /// What the fabric said of memory that it did not have.
    memory: Option<Box<str>>,
}

/// The window whose call failed, and the rank that made the call.
#[derive(Clone, PartialEq, Eq)]
struct Place {
    rank: u32,
    window: WindowId,
    name: Option<Arc<str>>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "window '{name}'"),
            None => write!(f, "window {}", self.window),
        }?;
        write!(f, " at rank {}", self.rank)
    }
}

/// What kind of error it is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A call on a job or a window failed; [`RmaError`] tells misuse, operations and peers apart.
    Rma(RmaError),
    /// A setting (`RMA_*`) cannot be used.
    Settings(String),
    /// No provider could be opened.
    Provider(String),
    /// The launcher, or another process's address, could not be had.
    Bootstrap(String),
    /// A call came after [`crate::Job::finalize`].
    Finalized {
        /// The call.
        call: Call,
    },
    /// The operating system refused something.
    System(String),
}

impl Error {
    /// What kind of error it is.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The error of a call on a job or window, if it is one.
    pub fn rma(&self) -> Option<&RmaError> {
        match self.kind() {
            ErrorKind::Rma(error) => Some(error),
            _ => None,
        }
    }

    /// Whether a call took longer than it may, and is not over.
    pub(crate) fn is_stalled(&self) -> bool {
        matches!(self.rma(), Some(RmaError::Stalled { .. }))
    }

    /// MPI's class of the error.
    pub fn class(&self) -> ErrorClass {
        self.rma().map_or(ErrorClass::Other, RmaError::class)
    }

    #[cold]
    pub(crate) fn system(what: &str, error: &dyn fmt::Display) -> Self {
        Self::new(ErrorKind::System(format!("{what}: {error}")))
    }

    #[cold]
    pub(crate) fn new(kind: ErrorKind) -> Self {
        Self(Box::new(Report { kind, place: None, memory: None }))
    }

    /// The same of the call that the program made, where that is made of others.
    #[cold]
    pub(crate) fn on_behalf_of(mut self, user: Call) -> Self {
        self.0.kind = match self.0.kind {
            ErrorKind::Rma(error) => ErrorKind::Rma(error.on_behalf_of(user)),
            ErrorKind::Finalized { .. } => ErrorKind::Finalized { call: user },
            other => other,
        };
        self
    }

    /// The same with what the fabric says of the memory, where that is what could not be had.
    #[cold]
    pub(crate) fn without_memory(mut self, refusal: Option<String>) -> Self {
        if matches!(self.rma(), Some(RmaError::Memory { .. })) {
            self.0.memory = refusal.map(Into::into);
        }
        self
    }

    /// The same of a call of `rank` on a window, which may have a name.
    #[cold]
    pub(crate) fn of_window(mut self, rank: u32, window: WindowId, name: Option<Arc<str>>) -> Self {
        self.0.place = Some(Place { rank, window, name });
        self
    }

    /// The name of the window whose call failed, if it has one ([`crate::Window::set_name`]).
    pub fn window_name(&self) -> Option<&str> {
        self.0.place.as_ref()?.name.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.0.place {
            write!(f, "{place}: ")?;
        }
        match self.kind() {
            ErrorKind::Rma(error) => error.fmt(f).and_then(|()| match &self.0.memory {
                Some(refusal) => write!(f, ": {refusal}"),
                None => Ok(()),
            }),
            ErrorKind::Settings(message)
            | ErrorKind::Provider(message)
            | ErrorKind::Bootstrap(message)
            | ErrorKind::System(message) => f.write_str(message),
            ErrorKind::Finalized { call } => {
                let (rule, class) = (Rule::FreeBeforeEnd, self.class());
                write!(f, "{call}: the job is finalized; make this call before Job::finalize; rule: ")?;
                write!(f, "{} [{class}, {}]", rule.text(), rule.section())
            }
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.to_string();
        let is_of_setup =
            matches!(self.kind(), ErrorKind::Settings(_) | ErrorKind::Provider(_) | ErrorKind::Bootstrap(_));
        if !is_of_setup || message.contains("rma-bench info") {
            return f.write_str(&message);
        }
        write!(f, "{message}\n(`rma-bench info` shows what there is on this host and what was chosen)")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self.kind() {
            ErrorKind::Rma(error) => Some(error),
            _ => None,
        }
    }
}

impl From<RmaError> for Error {
    #[cold]
    fn from(error: RmaError) -> Self {
        Self::new(ErrorKind::Rma(error))
    }
}

impl From<SettingsError> for Error {
    #[cold]
    fn from(error: SettingsError) -> Self {
        Self::new(ErrorKind::Settings(error.to_string()))
    }
}

impl From<ProviderError> for Error {
    #[cold]
    fn from(error: ProviderError) -> Self {
        Self::new(ErrorKind::Provider(error.message))
    }
}

impl From<BootstrapError> for Error {
    #[cold]
    fn from(error: BootstrapError) -> Self {
        Self::new(ErrorKind::Bootstrap(error.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_is_display_and_both_fit_a_word() {
        let error = Error::new(ErrorKind::Finalized { call: Call::Put });
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(error.to_string().starts_with("put: the job is finalized"));
        assert!(error.to_string().ends_with("[MPI_ERR_OTHER, MPI-4.1 section 13.2.5]"), "{error}");
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn a_hint_follows_where_a_job_cannot_be_joined_and_only_once() {
        let hints = |kind| format!("{:?}", Error::new(kind)).matches("rma-bench info").count();
        let of = |message: &str| message.to_owned();
        assert_eq!(hints(ErrorKind::Settings(of("RMA_SLOTS=many"))), 1);
        assert_eq!(hints(ErrorKind::Bootstrap(of("no launcher"))), 1);
        assert_eq!(hints(ErrorKind::Provider(of("none fits"))), 1);
        assert_eq!(hints(ErrorKind::Provider(of("none fits; `rma-bench info` shows all"))), 1);
        assert_eq!(hints(ErrorKind::System(of("no thread"))), 0);
        assert_eq!(hints(ErrorKind::Rma(RmaError::Memory { call: Call::Allocate, bytes: 7 })), 0);
    }

    #[test]
    fn the_cause_is_kept() {
        let cause = RmaError::Memory { call: Call::Allocate, bytes: 7 };
        let error = Error::from(cause.clone());
        assert_eq!(error.rma(), Some(&cause));
        assert!(std::error::Error::source(&error).is_some_and(|source| source.to_string().contains('7')));
    }
}
