//! The null fabric by the name that the library's platform has for its own.

pub(crate) use rma_bench::null::NullEndpoint as FabricEndpoint;
