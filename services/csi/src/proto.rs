//! The interfaces on the wire, generated from `proto/csi`.

#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]

tonic::include_proto!("csi.v1");

/// The registration of plugins.
pub mod registration {
    tonic::include_proto!("pluginregistration");
}
