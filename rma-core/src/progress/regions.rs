//! Native access to regions of dynamic windows: records are asked for, remembered, and given back.

use super::issue::Again;
use super::issue_native::RemotePlace;
use super::target_role::Answer;
use super::Process;
use crate::bootstrap::Bootstrap;
use crate::ids::Rank;
use crate::mutation::Mutation;
use crate::provider::{Endpoint, PostError};
use crate::table::{is_before, Question};
use crate::window::{Owed, Window};
use crate::wire::{Header, Metadata, PacketKind, Reader, RegionQuery, RegionRecord, WireError, Writer};

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Where the fabric finds the region that the operation accesses. Asks the target for it once; who is told
    /// nothing, or finds the answer gone, takes a message, and the target judges.
    ///
    /// Implements: ours: native regions.
    pub(super) fn region_of(
        &mut self,
        w: &mut Window<E::Region>,
        t: u32,
        op: u32,
    ) -> Result<RemotePlace, Again> {
        let Some(dynamic) = w.dynamic.as_deref_mut() else { return Ok(RemotePlace::Message) };
        let rank = self.targets[t].rank;
        if dynamic.owes(rank) {
            return Ok(RemotePlace::Awaited);
        }
        let element = &self.operations[op];
        let query = RegionQuery { address: element.disp, len: element.len };
        if let Some(record) = dynamic.records.find(rank, query.address, query.len) {
            self.targets[t].question = Question::Idle;
            // A displacement is an address there.
            let base = record.addr.wrapping_sub(record.base);
            return Ok(RemotePlace::Known(Metadata {
                size: Metadata::ANY_ADDRESS,
                base,
                key: record.key,
                disp_unit: 1,
                misalignment: 0,
            }));
        }
        match self.targets[t].question {
            Question::Idle => self.ask_for_region(w, t, query).map(|()| RemotePlace::Awaited),
            Question::Asked { .. } => Ok(RemotePlace::Awaited),
            // Its rest goes by message when the fabric has nothing of it any more.
            Question::Answered if element.outstanding > 0 => Ok(RemotePlace::Awaited),
            Question::Answered => {
                self.targets[t].question = Question::Idle;
                self.go_by_message(t, op);
                Ok(RemotePlace::Message)
            }
        }
    }

    fn go_by_message(&mut self, t: u32, op: u32) {
        let element = &mut self.operations[op];
        (element.native, element.regional, element.packed) = (false, false, true);
        // Its notification goes with it.
        let is_counted = core::mem::take(&mut element.counts_note);
        self.targets[t].notes -= u32::from(is_counted);
    }

    fn ask_for_region(&mut self, w: &mut Window<E::Region>, t: u32, query: RegionQuery) -> Result<(), Again> {
        let (Some(peer), Some(dynamic)) = (self.targets[t].peer, w.dynamic.as_deref_mut()) else {
            return Err(Again);
        };
        let token = dynamic.token.wrapping_add(1);
        let header = Header {
            kind: PacketKind::RegionQuery,
            flags: 0,
            count: 0,
            window: w.id,
            sender: self.rank,
            token,
        };
        match self.send(peer, header.kind, &header.encode(), &query.to_bytes()) {
            Ok(()) => {
                dynamic.token = token;
                self.targets[t].question = Question::Asked { token, floor: None };
                Ok(())
            }
            Err(error) => Err(self.refused(w, t, error)),
        }
    }

    /// An origin asks how it may access a region here. There is a free reply buffer.
    pub(super) fn on_region_query(
        &mut self,
        w: &mut Window<E::Region>,
        request: &Header,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        let query = RegionQuery::decode(reader)?;
        let Some(dynamic) = w.dynamic.as_deref_mut() else {
            return Err(WireError::Kind(request.kind as u8));
        };
        let Some(mut answer) = self.begin_answer() else { return Ok(()) };
        let record = dynamic.grant(request.sender, query.address, query.len);
        let mut out = Writer::new(&mut answer.buffer, Header::BYTES);
        let count = record.is_some_and(|record| record.encode(&mut out));
        answer.len = out.len();
        let header = Header {
            kind: PacketKind::RegionReply,
            flags: 0,
            count: count.into(),
            window: w.id,
            sender: self.rank,
            token: request.token,
        };
        self.send_answer(request.sender, &header, answer);
        Ok(())
    }

    /// The answer. One to an element that is gone is of no use any more.
    pub(super) fn on_region_reply(
        &mut self,
        w: &mut Window<E::Region>,
        header: &Header,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        let record = if header.count > 0 { Some(RegionRecord::decode(reader)?) } else { None };
        let rank = header.sender;
        let (Some(t), true) = (w.find(&self.targets, rank), w.dynamic.is_some()) else { return Ok(()) };
        let Question::Asked { token, floor } = self.targets[t].question else { return Ok(()) };
        if token != header.token {
            return Ok(());
        }
        self.targets[t].question = Question::Answered;
        let is_taken_back =
            |record: &RegionRecord| floor.is_some_and(|floor| is_before(record.version, floor));
        let record = record.filter(|record| !is_taken_back(record));
        if let (Some(record), Some(dynamic)) = (record, w.dynamic.as_deref_mut()) {
            dynamic.records.insert(rank, record);
        }
        w.dirty = true;
        // Now, before another answer could need the record's place.
        self.make_rma_progress_target(w, t);
        Ok(())
    }

    /// Asks who has records of regions here to give them up, as far as the fabric takes it.
    pub(crate) fn send_revokes(&mut self, w: &mut Window<E::Region>) {
        while let Some((rank, version)) = w.dynamic.as_ref().and_then(|dynamic| dynamic.holders.next_to_ask())
        {
            let header = Header {
                kind: PacketKind::Revoke,
                flags: 0,
                count: 0,
                window: w.id,
                sender: self.rank,
                token: version,
            };
            let is_lost = match self.peer(rank) {
                Ok(Some(peer)) => match self.send(peer, header.kind, &header.encode(), &[]) {
                    Ok(()) => false,
                    Err(PostError::Again) => return,
                    Err(PostError::Failed(_)) => true,
                },
                Ok(None) => return,
                Err(_) => true,
            };
            let Some(dynamic) = w.dynamic.as_deref_mut() else { return };
            if is_lost {
                dynamic.holders.on_lost(rank);
            } else {
                dynamic.holders.on_asked(rank, version);
            }
        }
    }

    /// A target wants its records back. There is a free reply buffer, which the answer keeps.
    pub(super) fn on_revoke(&mut self, w: &mut Window<E::Region>, request: &Header) -> Result<(), WireError> {
        let (rank, version) = (request.sender, request.token);
        if let Some(t) = w.find(&self.targets, rank) {
            if let Question::Asked { floor, .. } = &mut self.targets[t].question {
                *floor = Some(version);
            }
        }
        let Some(dynamic) = w.dynamic.as_deref_mut() else {
            return Err(WireError::Kind(request.kind as u8));
        };
        if !Mutation::RevokedRecordKept.is_on() {
            dynamic.records.forget_before(rank, version);
        }
        let Some(answer) = self.begin_answer() else { return Ok(()) };
        dynamic.owed.push(Owed { rank, version, index: answer.index, buffer: answer.buffer });
        self.settle_revokes(w);
        Ok(())
    }

    /// Answers the targets whose records nothing uses any more.
    #[inline]
    pub(super) fn settle_revokes(&mut self, w: &mut Window<E::Region>) {
        if w.dynamic.as_ref().is_some_and(|dynamic| !dynamic.owed.is_empty()) {
            self.settle_revokes_slow(w);
        }
    }

    #[cold]
    fn settle_revokes_slow(&mut self, w: &mut Window<E::Region>) {
        let mut at = 0;
        while let Some(rank) = w.dynamic.as_ref().and_then(|dynamic| Some(dynamic.owed.get(at)?.rank)) {
            if self.uses_regions_of(w, rank) && !Mutation::RevokeAnsweredEarly.is_on() {
                at += 1;
                continue;
            }
            let Some(dynamic) = w.dynamic.as_deref_mut() else { return };
            let Owed { version, index, buffer, .. } = dynamic.owed.remove(at);
            let header = Header {
                kind: PacketKind::RevokeReply,
                flags: 0,
                count: 0,
                window: w.id,
                sender: self.rank,
                token: version,
            };
            self.send_answer(rank, &header, Answer::of_buffer(index, buffer));
            // Operations that have waited may ask again.
            w.dirty = true;
        }
    }

    /// Whether the fabric may still access memory of the rank for this one.
    fn uses_regions_of(&mut self, w: &mut Window<E::Region>, rank: Rank) -> bool {
        let Some(t) = w.slots.find(&self.targets, rank) else { return false };
        let te = &self.targets[t];
        if te.native_outstanding() == 0 && te.unflushed && !te.flush_outstanding {
            // What does not leave now is tried again.
            let _ = self.post_flush(w, t);
        }
        self.targets[t].has_natives()
    }

    /// A rank has given its records up.
    pub(super) fn on_revoke_reply(w: &mut Window<E::Region>, header: &Header) -> Result<(), WireError> {
        let dynamic = w.dynamic.as_deref_mut().ok_or(WireError::Kind(header.kind as u8))?;
        let is_due = dynamic.holders.on_given_up(header.sender, header.token);
        is_due.then_some(()).ok_or(WireError::Length(header.token))
    }

    /// Nothing will be known of, or given up by, a rank that is gone.
    pub(super) fn forget_regions(&mut self, w: &mut Window<E::Region>, rank: Rank) {
        let Some(dynamic) = w.dynamic.as_deref_mut() else { return };
        dynamic.records.forget(rank);
        if !Mutation::RecordsAwaitedFromDead.is_on() {
            dynamic.holders.on_lost(rank);
        }
    }
}
