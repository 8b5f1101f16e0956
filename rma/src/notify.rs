//! Puts that tell the target of themselves, and the order of operations.

use rma_core::engine::Notification;
use rma_core::ids::Rank;

use crate::element::Element;
use crate::epoch::{Epoch, LockEpoch};
use crate::error::Result;
use crate::window::Window;

impl<'scope, T: Element> Epoch<'scope, '_, T> {
    /// [`Epoch::put`], and then `notification` changes a word of 8 bytes of the target's window: who sees the change
    /// ([`Window::wait_notification`]) sees the elements. Neither side makes a round trip for it, and the target
    /// need not lock, fence or poll anything.
    ///
    /// ```
    /// use rma::{Change, Notification, Rank};
    ///
    /// let job = rma::Job::init()?;
    /// // 3 elements of data, and the word.
    /// let window = job.allocate::<u64>(4)?;
    /// let arrived = Notification { disp: 3, change: Change::Add(1) };
    /// window.lock_all(|epoch| {
    ///     epoch.put_notify(job.rank(), 0, &[5, 6, 7], arrived)?;
    ///     // The target, which is this rank too here:
    ///     window.wait_notification(3, 1)?;
    ///     assert_eq!(window.local().get(2)?, 7);
    ///     Ok(())
    /// })?;
    /// window.free()?;
    /// # Ok::<(), rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Epoch::put`], and when the word is outside of the window or its address at the target is no multiple
    /// of 8 bytes: at the latest, where this rank does not know the target's window yet, when the scope ends.
    pub fn put_notify(
        &self,
        target: Rank,
        disp: u64,
        source: &'scope [T],
        notification: Notification,
    ) -> Result<()> {
        let (origin, len) = (source.as_ptr().cast(), size_of_val(source));
        // SAFETY: see `Epoch::put`.
        unsafe { self.lend().put_notify(origin, len, target, disp, notification) }
    }

    /// Orders what follows to `target` behind what was posted to it, without waiting: whoever sees a later operation
    /// sees every earlier one. Without it only accumulates to the same elements are ordered.
    ///
    /// ```
    /// # use rma::Rank;
    /// # let job = rma::Job::init()?;
    /// let window = job.allocate::<u64>(4)?;
    /// window.fence(|epoch| {
    ///     epoch.put(Rank(0), 0, &[1, 2, 3])?;
    ///     epoch.order(Rank(0))?;
    ///     epoch.put(Rank(0), 3, &[1]) // who finds it finds the others
    /// })?;
    /// # window.free()?;
    /// # Ok::<(), rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the rank does not exist.
    pub fn order(&self, target: Rank) -> Result<()> {
        self.raw().order(target)
    }

    /// The same for each rank.
    ///
    /// # Errors
    /// When the window exists no more.
    pub fn order_all(&self) -> Result<()> {
        self.raw().order_all()
    }
}

impl<'scope, T: Element> LockEpoch<'scope, '_, T> {
    /// See [`Epoch::put_notify`].
    ///
    /// # Errors
    /// See [`Epoch::put_notify`].
    pub fn put_notify(&self, disp: u64, source: &'scope [T], notification: Notification) -> Result<()> {
        self.epoch().put_notify(self.target(), disp, source, notification)
    }

    /// See [`Epoch::order`].
    ///
    /// # Errors
    /// See [`Epoch::order`].
    pub fn order(&self) -> Result<()> {
        self.epoch().order(self.target())
    }
}

impl<T: Element> Window<T> {
    /// Waits until the notified word of this rank's own window, at element `disp`, is at least `until`, and returns
    /// it. What was put before the notifications that it counts is there.
    ///
    /// # Errors
    /// When the word is outside of the window or not aligned to 8 bytes, or a process of the job is lost.
    pub fn wait_notification(&self, disp: u64, until: u64) -> Result<u64> {
        self.raw().wait_notification(disp, until)
    }

    /// The same word as it is now; makes progress.
    ///
    /// # Errors
    /// When the word is outside of the window or not aligned to 8 bytes.
    pub fn test_notification(&self, disp: u64) -> Result<u64> {
        self.raw().test_notification(disp)
    }
}
