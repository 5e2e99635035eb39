//! The interface on the wire, generated from `proto/kubelet`.

#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]

tonic::include_proto!("v1beta1");
