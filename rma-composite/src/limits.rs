//! What two providers can do together: what both can.

use rma_core::dtype::Dtype;
use rma_core::provider::{CompletionScope, Limits, NativeOps, Order};

/// Sizes that both keep, and orders that both keep.
pub(crate) fn limits(network: &Limits, shm: &Limits) -> Limits {
    let completes_remotely = |limits: &Limits| limits.put_completes == CompletionScope::Remote;
    let scope = match completes_remotely(network) && completes_remotely(shm) {
        true => CompletionScope::Remote,
        false => CompletionScope::Local,
    };
    Limits {
        inject_bytes_max: network.inject_bytes_max.min(shm.inject_bytes_max),
        send_bytes_max: network.send_bytes_max.min(shm.send_bytes_max),
        message_bytes_max: network.message_bytes_max.min(shm.message_bytes_max),
        outstanding_max: network.outstanding_max.min(shm.outstanding_max),
        receive_buffers: network.receive_buffers + shm.receive_buffers,
        order: Order {
            put_before_send: network.order.put_before_send && shm.order.put_before_send,
            put_before_get: network.order.put_before_get && shm.order.put_before_get,
        },
        put_completes: scope,
        needs_target_progress: network.needs_target_progress || shm.needs_target_progress,
        vector_local_max: network.vector_local_max.min(shm.vector_local_max),
        vector_remote_max: network.vector_remote_max.min(shm.vector_remote_max),
    }
}

/// Puts and gets, and no atomics: those of a NIC and those of a processor are not atomic towards each other, so that
/// the target's processor executes all of them.
pub(crate) fn native(network: &NativeOps) -> NativeOps {
    NativeOps {
        put: network.put,
        get: network.get,
        atomic: [0; Dtype::COUNT],
        fetch_atomic: [0; Dtype::COUNT],
        compare_atomic: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: Limits = Limits {
        inject_bytes_max: 64,
        send_bytes_max: 8000,
        message_bytes_max: 1 << 30,
        outstanding_max: 100,
        receive_buffers: 10,
        order: Order { put_before_send: true, put_before_get: false },
        put_completes: CompletionScope::Remote,
        needs_target_progress: true,
        vector_local_max: 4,
        vector_remote_max: 1,
    };

    #[test]
    fn nothing_is_promised_that_only_one_keeps() {
        let shm = Limits {
            inject_bytes_max: 0,
            send_bytes_max: 8192,
            message_bytes_max: 1 << 22,
            outstanding_max: 1024,
            receive_buffers: 20,
            order: Order { put_before_send: true, put_before_get: true },
            needs_target_progress: false,
            vector_local_max: 8,
            vector_remote_max: 8,
            ..NETWORK
        };
        let both = limits(&NETWORK, &shm);
        let expected =
            Limits { inject_bytes_max: 0, message_bytes_max: 1 << 22, receive_buffers: 30, ..NETWORK };
        assert_eq!(both, expected);
        let local = Limits { put_completes: CompletionScope::Local, ..NETWORK };
        assert_eq!(limits(&local, &shm).put_completes, CompletionScope::Local);
    }

    #[test]
    fn atomics_are_the_target_s_processor_s() {
        let able = NativeOps { put: true, get: false, atomic: [1; Dtype::COUNT], ..NativeOps::default() };
        assert_eq!(native(&able), NativeOps { put: true, ..NativeOps::default() });
    }
}
