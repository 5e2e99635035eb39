//! The interface on the wire, generated from `proto/cri`.

#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]

tonic::include_proto!("runtime.v1");

/// The event stream of containerd.
pub mod containerd {
    tonic::include_proto!("containerd.services.events.v1");
}
