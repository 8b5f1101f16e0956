//! Order between operations to one target, without waiting.

use super::{epoch_error, Engine};
use crate::bootstrap::Bootstrap;
use crate::error::{Call, RmaError, Rule};
use crate::ids::{Rank, WindowId};
use crate::pool::NONE;
use crate::provider::Endpoint;

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Orders the operations to `target` that follow behind those that were posted to it: whoever sees the
    /// effect of a later one sees that of every earlier one, and a later get reads what an earlier put wrote.
    /// The call itself waits for nothing. Operations that travel as packets are in order anyway; others are
    /// kept until what they follow is complete, where the fabric does not order them.
    ///
    /// Implements: ours: order.
    ///
    /// # Errors
    /// When no epoch is open, or not to the rank.
    pub fn order(&mut self, window: WindowId, target: Rank) -> Result<(), RmaError> {
        let call = Call::Order;
        self.check_order(call, window, Some(target))?;
        // What was complete at once is seen before what follows.
        self.process.pass_fence();
        let Some(w) = self.windows.get_mut(window) else { return Ok(()) };
        // As do the program's own loads and stores, where it has them.
        w.mem_sync();
        w.has_ordered = true;
        w.ordered_detached = !w.acks.is_empty();
        if let Some(t) = w.find(&self.process.targets, target) {
            self.process.begin_order(w, t);
        }
        Ok(())
    }

    /// The same for each rank: operations to one rank follow those to the same rank.
    ///
    /// Implements: ours: order_all.
    ///
    /// # Errors
    /// When no epoch is open.
    pub fn order_all(&mut self, window: WindowId) -> Result<(), RmaError> {
        self.check_order(Call::OrderAll, window, None)?;
        self.process.pass_fence();
        let Some(w) = self.windows.get_mut(window) else { return Ok(()) };
        w.mem_sync();
        w.has_ordered = true;
        w.ordered_detached = !w.acks.is_empty();
        let mut t = w.slots.next(&self.process.targets, NONE);
        while let Some(index) = t {
            t = w.slots.next(&self.process.targets, index);
            self.process.begin_order(w, index);
        }
        Ok(())
    }

    fn check_order(&mut self, call: Call, window: WindowId, target: Option<Rank>) -> Result<(), RmaError> {
        let state = self.window(call, window)?.state();
        if state.is_passive() {
            return self.check_flush(call, window, target).map(|_| ());
        }
        if let Some(target) = target {
            self.check_rank(call, target)?;
        }
        if state.is_access_epoch() {
            Ok(())
        } else {
            Err(epoch_error(call, target, state, Rule::NoEpoch))
        }
    }
}
